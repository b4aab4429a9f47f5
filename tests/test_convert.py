"""`cbquant.convert.quantize_file`: what stands in the new file, and what is refused before there is one."""

from __future__ import annotations

import os
import struct
import sys
import tracemalloc

import gguf
import numpy as np
import pytest

import cbquant
from cbquant.convert import Imatrix, _quantize, quantize_file
from tests import convert_files as cf
from tests import gguf_bytes as gb
from tests import oracles


@pytest.fixture
def model(tmp_path):
    return cf.write_gguf(tmp_path / "model.gguf", cf.arrays(), [("text", "two\nlines")])


@pytest.fixture
def dst(tmp_path):
    return tmp_path / "new.gguf"


@pytest.fixture
def fake(monkeypatch):
    """Every format has an encoder, and its calls are noted."""
    calls = []
    monkeypatch.setattr(cbquant, "quantize", cf.fake_quantize(calls))
    return calls


# --- the new file ------------------------------------------------------------------------------------------


def test_weights_are_quantized_and_the_rest_is_copied(model, dst):
    report = quantize_file(model, dst, "q8_0")
    arrays, file = cf.arrays(), cbquant.open(dst)
    assert list(file) == list(arrays)
    kept = [cf.BIAS, cf.NORM, cf.ROUTER]
    assert [name for name, fmt in cf.formats(file).items() if fmt != "q8_0"] == kept
    for name, array in arrays.items():
        expected = array if name in kept else cbquant.quantize(array, "q8_0")
        assert file[name].shape == array.shape
        assert cf.raw(file, name) == expected.tobytes()
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(dst).tensors}
    assert list(theirs) == list(arrays)
    assert theirs[cf.V].data.tobytes() == cf.raw(file, cf.V)
    assert report.bytes_after == dst.stat().st_size == os.path.getsize(dst)
    assert report.bytes_before == model.stat().st_size
    assert (report.resumed, report.dropped, report.fallbacks) == (0, (), ())
    assert cf.leftovers(dst.parent) == []


@pytest.mark.parametrize("source", ["f16", "bf16", "f64", "q8_0", "q4_0", "iq4_nl"])
def test_sources_are_decoded_first(tmp_path, dst, source):
    values = np.random.default_rng(1).normal(size=(6, 64))
    if source == "f64":
        tensor, expected = values, cbquant.quantize(values, "q4_0")
    elif source in ("f16", "bf16"):
        bits = values.astype(np.float32).view(np.uint32)
        blocks = values.astype(np.float16).view(np.uint8) if source == "f16" else (bits >> 16).astype(np.uint16)
        tensor = (source, blocks.view(np.uint8))
        expected = cbquant.quantize(cbquant.dequant(tensor[1], source), "q4_0")
    else:
        f = next(f for f in cbquant.formats() if f.name == source)
        blocks = np.random.default_rng(2).integers(0, 60, (6, 64 // f.elements * f.bytes), np.uint8)
        tensor = (source, blocks)
        expected = blocks if source == "q4_0" else cbquant.quantize(cbquant.dequant(blocks, source), "q4_0")
    quantize_file(cf.write_gguf(tmp_path / "model.gguf", {"a.weight": tensor}), dst, "q4_0")
    assert cf.raw(cbquant.open(dst), "a.weight") == expected.tobytes()


@pytest.mark.parametrize("elements", [1, 64, 65, 1000, 10**9])
def test_bytes_do_not_depend_on_the_pieces(model, dst, monkeypatch, elements):
    quantize_file(model, dst, "q4_0")
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", elements)
    quantize_file(model, dst.with_name("other.gguf"), "q4_0", threads=1)
    assert dst.with_name("other.gguf").read_bytes() == dst.read_bytes()


@pytest.mark.parametrize("target", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("source", ["f32", "f16", "q8_0"])
def test_plain_targets(tmp_path, dst, source, target):
    values = np.random.default_rng(3).normal(size=(5, 32)).astype(np.float32)
    tensor = {"f32": values, "f16": values.astype(np.float16), "q8_0": ("q8_0", cbquant.quantize(values, "q8_0"))}[
        source
    ]
    src = cf.write_gguf(tmp_path / "model.gguf", {"a.weight": tensor})
    quantize_file(src, dst, target)
    decoded = np.asarray(cbquant.open(src)["a.weight"], np.float32)
    file = cbquant.open(dst)
    assert cf.formats(file) == {"a.weight": target}
    out = np.empty(decoded.shape, np.uint16)
    name = {"f16": "float16", "bf16": "bfloat16"}.get(target, "float32")
    expected = (
        decoded
        if target == "f32"
        else cbquant.dequant(decoded, "f32", dtype=name, out=out if target == "bf16" else None, shape=decoded.shape)
    )
    assert cf.raw(file, "a.weight") == expected.tobytes()


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files: this one has 256 MiB")
def test_memory_is_bounded(tmp_path, dst, monkeypatch):
    head = gb.gguf([], [gb.info("a.weight", [2**16, 2**10], gb.F32, 0)])
    src = tmp_path / "big.gguf"
    src.write_bytes(head)
    os.truncate(src, len(head) + 4 * 2**26)
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 2**20)
    tracemalloc.start()
    try:
        quantize_file(src, dst, "q8_0")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**24
    assert cbquant.open(dst)["a.weight"].rows([0, 1023]).any() == np.False_


@pytest.mark.parametrize("importance", [None, np.arange(1024.0)])
@pytest.mark.parametrize(("source", "target"), [("f32", "q8_0"), ("q4_0", "q4_k"), ("q8_0", "q4_0"), ("f32", "f16")])
def test_long_rows_are_cut(tmp_path, dst, monkeypatch, source, target, importance):
    values = np.random.default_rng(3).normal(size=(3, 1024)).astype(np.float32)
    tensor = values if source == "f32" else (source, cbquant.quantize(values, source))
    src = cf.write_gguf(tmp_path / "model.gguf", {"a.weight": tensor})
    given = None if importance is None else {"a.weight": importance}
    quantize_file(src, dst, target, imatrix=given)
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 600)
    seen = []
    other = dst.with_name("other.gguf")
    quantize_file(src, other, target, imatrix=given, progress=lambda *call: seen.append(call))
    assert other.read_bytes() == dst.read_bytes()
    is_whole = target == "q4_0" and importance is not None  # weights depend on the mean square of the row
    assert len(seen) == (3 if is_whole else 6)


def test_a_place_in_a_cut_row(tmp_path, dst, monkeypatch):
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 600)
    values = np.ones((2, 1024), np.float32)
    values[1, 1000] = np.nan
    with pytest.raises(ValueError, match=r"nan at \(1, 1000\) of shape \(2, 1024\)"):
        quantize_file(cf.write_gguf(tmp_path / "model.gguf", {"a.weight": values}), dst, "q8_0")


def test_empty_tensors_and_scalars(tmp_path, dst):
    src = tmp_path / "model.gguf"
    infos = [gb.info("none.weight", [64, 0], gb.F32, 0), gb.info("scalar", [], gb.F64, 0), gb.info("i", [4], gb.I8, 32)]
    src.write_bytes(gb.gguf([], infos, struct.pack("<d", 0.5).ljust(32, b"\0") + bytes(range(4))))
    quantize_file(src, dst, "q8_0")
    file = cbquant.open(dst)
    assert file["none.weight"].shape == (0, 64)
    assert cf.formats(file) == {"none.weight": "q8_0", "scalar": "f64", "i": "i8"}
    assert float(file["scalar"]) == 0.5
    assert file["i"].tolist() == [0, 1, 2, 3]


# --- metadata ----------------------------------------------------------------------------------------------


def test_metadata_is_kept_with_its_types(tmp_path, dst):
    src = tmp_path / "model.gguf"
    bad = [gb.pair(b"\xff", gb.STRING, gb.string(b"\xfe")), gb.pair("general.alignment", gb.UINT32, gb.u32(64))]
    types = [
        gb.pair("general.file_type", gb.UINT32, gb.u32(1)),
        gb.pair("general.architecture", gb.STRING, gb.string("x")),
    ]
    shard = [gb.pair("split.count", gb.UINT16, struct.pack("<H", 1))]
    sample = gb.sample()
    pairs = sample[24 : sample.index(gb.string("matrix"))]  # all kinds of values, as they stand in the sample
    src.write_bytes(
        gb.gguf(
            [pairs, *bad, *types, *shard],
            [gb.info(b"w\xff", [32], gb.F32, 0)],
            bytes(128),
            n_pairs=18 + 5,
            alignment=64,
        )
    )
    quantize_file(src, dst, "q4_0")
    before, after = cbquant.open(src).metadata, cbquant.open(dst).metadata
    own = {"general.file_type": 2, "general.quantization_version": 2}
    assert list(after) == [key for key in before if key != "split.count"] + ["general.quantization_version"]
    for key in after:
        if key in own:
            assert (after[key], after.type_of(key)) == (own[key], "uint32")
        else:
            assert after.encoded(key) == before.encoded(key)
    info = cbquant.open(dst).infos["w\udcff"]
    assert info.offset % 64 == 0


@pytest.mark.parametrize(
    ("fmt", "number"), [("f16", 1), ("q8_0", 7), ("q4_k", 14), ("q6_k", 18), ("iq4_xs", 30), ("mxfp4", 38)]
)
def test_the_file_type_is_llama_cpps(model, dst, fake, fmt, number):
    quantize_file(model, dst, fmt)
    assert cbquant.open(dst).metadata["general.file_type"] == number


def test_shards_become_one_file(tmp_path, dst):
    arrays = cf.arrays()
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=3)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    gb.save(writer)
    quantize_file(tmp_path / "m-00002-of-00003.gguf", dst, "q8_0")
    file = cbquant.open(dst)
    assert list(file) == list(arrays)
    assert len(file.paths) == 1
    assert [key for key in file.metadata if key.startswith("split")] == []


# --- formats for tensors -----------------------------------------------------------------------------------


def test_rows_that_are_no_whole_blocks_fall_back(tmp_path, dst, fake):
    shapes = {"whole.weight": (2, 256), "small.weight": (2, 96), "odd.weight": (2, 33)}
    src = cf.write_gguf(tmp_path / "m.gguf", {name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    for fmt, small in [("q4_k", "q5_0"), ("q2_k", "q4_0"), ("q6_k", "q8_0"), ("iq3_s", "iq4_nl"), ("q8_0", "q8_0")]:
        report = quantize_file(src, dst, fmt, overwrite=True)
        assert list(cf.formats(cbquant.open(dst)).values()) == [fmt, small, "f16"]
        fallen = [(tensor.name, tensor.wanted, tensor.format) for tensor in report.fallbacks]
        assert fallen == [(n, fmt, f) for n, f in [("small.weight", small), ("odd.weight", "f16")] if f != fmt]
    assert report.notes() == ["f16 in place of q8_0, because of rows of 33: 'odd.weight'"]
    assert report.notes()[0] in repr(report)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["attn_v=q8_0"], {cf.V: "q8_0"}),
        ({"attn_v": "q8_0", "attn": "f16"}, {cf.V: "q8_0", cf.Q: "f16"}),
        ({"attn": "F16", "attn_v": "q8_0"}, {cf.V: "f16", cf.Q: "f16"}),
        (["blk.*=q8_0"], {cf.Q: "q8_0", cf.V: "q8_0", cf.EXPERTS: "q8_0", cf.ROUTER: "q8_0"}),
        (["blk.?.attn_[qv].*=q8_0"], {cf.Q: "q8_0", cf.V: "q8_0"}),
        (["ffn_gate=q8_0", "ffn=q8_0"], {cf.EXPERTS: "q8_0"}),
        ([f"{cf.ROUTER}=q8_0"], {cf.ROUTER: "q8_0"}),
        (["output.weight=keep"], {"output.weight": "f32"}),
        (["output.weight=drop", "bias=drop"], {"output.weight": None, cf.BIAS: None}),
    ],
)
def test_map(model, dst, rules, expected):
    if rules == ["ffn_gate=q8_0", "ffn=q8_0"]:  # the router alone has it in its name, and is not meant
        with pytest.raises(ValueError, match="map: no tensor that can be quantized has a name with 'ffn_gate'"):
            quantize_file(model, dst, "q4_0", map=rules)
        rules = rules[1:]
    report = quantize_file(model, dst, "q4_0", map=rules)
    kept = {cf.BIAS: "f32", cf.NORM: "f32", cf.ROUTER: "f32"}
    wanted = {**dict.fromkeys(cf.arrays(), "q4_0"), **kept, **expected}
    assert cf.formats(cbquant.open(dst)) == {name: fmt for name, fmt in wanted.items() if fmt}
    assert list(report.dropped) == [name for name, fmt in wanted.items() if fmt is None]


@pytest.mark.parametrize(
    ("rules", "error", "message"),
    [
        ("attn_v=q8_0", TypeError, "map: expected a dict or a list of 'pattern=format', got 'attn_v=q8_0'"),
        (["attn_v"], ValueError, "map: expected 'pattern=format', got 'attn_v'"),
        ([3], ValueError, "map: expected 'pattern=format', got 3"),
        (["=q8_0"], ValueError, "map: expected a pattern of names, got ''"),
        (["attn_v=q9"], ValueError, "map: 'attn_v': unknown format 'q9'"),
        ({"attn_v": 8}, TypeError, "map: 'attn_v': expected the name of a format, got int"),
        (["attn_v=i8"], ValueError, "map: 'attn_v': expected a block format or f32, f16, bf16, got i8"),
        (["attn_w=q8_0"], ValueError, "map: no tensor that can be quantized has a name with 'attn_w'"),
        (["bias=q8_0"], ValueError, "map: no tensor that can be quantized has a name with 'bias'"),
    ],
)
def test_map_that_cannot_be(model, dst, rules, error, message):
    with pytest.raises(error, match=message):
        quantize_file(model, dst, "q4_0", map=rules)
    assert sorted(os.listdir(dst.parent)) == ["model.gguf"]


# --- importance --------------------------------------------------------------------------------------------


def test_experts_have_importance_of_their_own(model, dst, fake, monkeypatch):
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 10 * 64)
    experts = np.arange(4 * 64, dtype=np.float32).reshape(4, 64)
    for is_flat in (False, True):  # as the older files are
        fake.clear()
        matrix = Imatrix({cf.EXPERTS: experts.reshape(-1) if is_flat else experts, cf.V: experts[1:2]})
        matrix.is_flat = is_flat
        quantize_file(model, dst, "q4_1", imatrix=matrix, overwrite=True)
        given = [(shape, w) for shape, _, w, *_ in fake if w is not None]
        assert [shape[0] for shape, _ in given] == [10, 10, 10, 2] + [10, 6] * 4
        for (_, found), expected in zip(given, experts[[1] * 4 + [0, 0, 1, 1, 2, 2, 3, 3]], strict=True):
            np.testing.assert_array_equal(found, expected)
    metadata = cbquant.open(dst).metadata
    assert metadata["quantize.imatrix.entries_count"] == 2


def test_ones_are_for_the_formats_that_need_them(tmp_path, dst, fake):
    src = cf.write_gguf(tmp_path / "m.gguf", {name: np.ones((2, 256), np.float32) for name in ("a.weight", "b.weight")})
    quantize_file(src, dst, "iq2_xs", imatrix="ones", map={"b": "q4_k"})
    weights = {fmt: w for shape, fmt, w, *_ in fake if shape == (2, 256)}
    assert weights["q4_k"] is None
    np.testing.assert_array_equal(weights["iq2_xs"], np.ones(256))


@pytest.mark.parametrize("fmt", [f.name for f in cbquant.formats() if f.needs_imatrix])
def test_formats_that_need_an_imatrix(tmp_path, dst, fake, fmt):
    shapes = {"a.weight": (2, 256), "b.weight": (2, 256), "small.weight": (2, 32)}
    src = cf.write_gguf(tmp_path / "m.gguf", {name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    with pytest.raises(ValueError, match=f"imatrix: {fmt} cannot be encoded without an importance matrix: .*'ones'"):
        quantize_file(src, dst, fmt)
    with pytest.raises(ValueError, match=f"imatrix: {fmt} cannot be encoded without values for 'b.weight': .*map"):
        quantize_file(src, dst, fmt, imatrix={"a.weight": np.ones(256)})
    assert sorted(os.listdir(tmp_path)) == ["m.gguf"]
    quantize_file(src, dst, fmt, imatrix={"a.weight": np.ones(256)}, map={"b.weight": "q8_0"})


@pytest.mark.parametrize(
    ("imatrix", "error", "message"),
    [
        ({cf.V: np.ones(63)}, ValueError, rf"imatrix: tensor '{cf.V}': expected values of shape \(64,\), got \(63,\)"),
        ({cf.EXPERTS: np.ones(64)}, ValueError, r"expected values of shape \(4, 64\), got \(64,\)"),
        ({cf.EXPERTS: np.ones((64, 4))}, ValueError, r"expected values of shape \(4, 64\), got \(64, 4\)"),
        ({cf.EXPERTS: np.ones(256)}, ValueError, r"expected values of shape \(4, 64\), got \(256,\)"),
        ({cf.V: np.ones((64, 1))}, ValueError, r"expected values of shape \(64,\), got \(64, 1\)"),
        ({cf.V: ["1"] * 64}, TypeError, f"imatrix: tensor '{cf.V}': expected float32, got str_"),
        (Imatrix({cf.V: np.ones(64, complex)}), TypeError, "expected float32, got complex128"),
        ({cf.V: [[1], [1, 2]]}, ValueError, f"imatrix: tensor '{cf.V}': "),
        ({3: np.ones(64)}, TypeError, "imatrix: expected names of tensors, got a key of type int"),
        ({cf.V: np.full(64, 1e300)}, ValueError, "expected finite numbers from 0 up, got inf"),
        ({cf.V: np.full(64, np.nan)}, ValueError, "imatrix: .*expected finite numbers from 0 up, got nan"),
        ({cf.V: -np.ones(64)}, ValueError, "expected finite numbers from 0 up, got -1.0"),
        ({"other": np.ones(64)}, ValueError, "imatrix: none of its 1 tensors is quantized here"),
        (3, TypeError, "imatrix: expected a path, a dict, 'ones' or None, got int"),
        ("no such file", FileNotFoundError, "no such file"),
    ],
)
def test_imatrix_that_cannot_be(model, dst, imatrix, error, message):
    with pytest.raises(error, match=message):
        quantize_file(model, dst, "q4_0", imatrix=imatrix)
    assert sorted(os.listdir(dst.parent)) == ["model.gguf"]


def test_options_reach_the_encoder(model, dst, fake):
    quantize_file(model, dst, "q4_0", method="mse", nonfinite="allow", threads=3)
    assert {call[3:] for call in fake[1:]} == {("mse", "allow", 3)}
    with pytest.raises(ValueError, match="threads"):
        quantize_file(model, dst, "q4_0", threads=0, overwrite=True)


@pytest.mark.skipif(not oracles.Ggml.available(), reason="no libggml-base: install pywhispercpp")
@pytest.mark.parametrize("fmt", ["q8_0", "q4_k", "mxfp4"])
def test_ggml_reads_the_file(model, dst, fake, fmt):
    quantize_file(model, dst, fmt)
    lib = oracles._library()
    context = lib.gguf_init_from_file(str(dst).encode(), oracles._GgufInitParams(True, None))
    assert context
    lib.gguf_free(context)


def test_long_lists_of_fallbacks_are_cut(tmp_path, dst, fake):
    tensors = {f"{number}.weight": np.ones((2, 32), np.float32) for number in range(9)}
    report = quantize_file(cf.write_gguf(tmp_path / "m.gguf", tensors), dst, "q4_k")
    note = "q5_0 in place of q4_k, because of rows of 32: '0.weight', '1.weight', '2.weight' and 6 more"
    assert report.notes() == [note]
    assert len(report.fallbacks) == 9
