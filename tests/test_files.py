"""`cbquant.open` on sound GGUF files: against the gguf library, which reads and writes them too."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref

import gguf
import numpy as np
import pytest

import cbquant
from tests import gguf_bytes as gb

WRITABLE = {int(kind) for kind in gguf.GGMLQuantizationType}
FORMATS = [fmt for fmt in cbquant.formats() if fmt.tag in WRITABLE]


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "sample.gguf"
    path.write_bytes(gb.sample())
    return path


# --- what the gguf library reads ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def oracle(model_path):
    return gguf.GGUFReader(model_path)


def test_open_lists_the_tensors_of_a_model(model_path, oracle):
    with cbquant.open(model_path) as file:
        assert list(file) == [tensor.name for tensor in oracle.tensors]
        for theirs in oracle.tensors:
            ours = file.infos[theirs.name]
            assert ours.shape == tuple(theirs.shape.tolist()[::-1])
            assert (ours.tag, ours.offset, ours.nbytes) == (
                theirs.tensor_type,
                theirs.data_offset,
                theirs.n_bytes,
            )
            assert ours.format == theirs.tensor_type.name.lower()


def test_open_gives_the_bytes_of_a_model(model_path, oracle):
    file = cbquant.open(str(model_path))
    for theirs in oracle.tensors:
        ours = file[theirs.name]
        if isinstance(ours, cbquant.QuantTensor):
            ours = ours.raw
        assert ours.dtype == theirs.data.dtype
        assert not ours.flags.writeable
        np.testing.assert_array_equal(ours.reshape(-1), theirs.data.reshape(-1))


def test_open_decodes_a_model(model_path, oracle):
    file = cbquant.open(model_path)
    for theirs in oracle.tensors[:10]:
        if theirs.name != "token_embd.weight":
            expected = gguf.dequantize(theirs.data, theirs.tensor_type)
            np.testing.assert_array_equal(np.asarray(file[theirs.name]), expected)


def test_metadata_of_a_model(model_path, oracle):
    metadata = cbquant.open(model_path).metadata
    fields = {key: field for key, field in oracle.fields.items() if not key.startswith("GGUF.")}
    assert list(metadata) == list(fields)
    for key, field in fields.items():
        ours = metadata[key]
        assert (ours.tolist() if isinstance(ours, np.ndarray) else ours) == field.contents()
        names = [kind.name.lower() for kind in field.types]
        assert metadata.type_of(key) == (names[0] if len(names) == 1 else f"array[{names[1]}]")


# --- what the gguf library writes --------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_open_reads_every_type_that_gguf_writes(tmp_path, fmt):
    data = np.random.default_rng(fmt.tag).integers(0, 256, (3, 2 * fmt.bytes), np.uint8)
    kind = gguf.GGMLQuantizationType(fmt.tag)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_tensor("before", np.arange(5, dtype=np.int8))
    writer.add_tensor("w", data, raw_dtype=kind)
    gb.save(writer)
    file = cbquant.open(tmp_path / "one.gguf")
    tensor, info = file["w"], file.infos["w"]
    assert tensor.shape == info.shape == (3, 2 * fmt.elements)
    assert (info.format, info.tag, info.nbytes) == (fmt.name, fmt.tag, data.nbytes)
    if isinstance(tensor, np.ndarray):
        assert fmt.kind == "plain"
        assert tensor.dtype.itemsize == fmt.bytes
        assert tensor.tobytes() == data.tobytes()
    else:
        assert tensor.format == fmt.name
        np.testing.assert_array_equal(tensor.raw, data)
        np.testing.assert_array_equal(tensor.dequant(), cbquant.dequant(data, fmt.name, tensor.shape))


def test_ndarrays_are_of_the_plain_formats_but_bf16(tmp_path):
    plain = [fmt for fmt in cbquant.formats() if fmt.kind == "plain"]
    infos = [gb.info(fmt.name, [1], fmt.tag, 0) for fmt in plain]
    (tmp_path / "plain.gguf").write_bytes(gb.gguf([], infos, bytes(8)))
    file = cbquant.open(tmp_path / "plain.gguf")
    dtypes = {name: tensor.dtype.name for name, tensor in file.items() if isinstance(tensor, np.ndarray)}
    assert dtypes == {
        "f32": "float32",
        "f16": "float16",
        "f64": "float64",
        "i8": "int8",
        "i16": "int16",
        "i32": "int32",
        "i64": "int64",
    }
    assert file["bf16"].format == "bf16"


def test_metadata_that_gguf_writes(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "meta.gguf", "llama")
    writer.add_string("text", "naïve ☃")
    writer.add_bool("no", False)
    writer.add_float32("f32", 0.1)
    writer.add_array("texts", ["a", "β", "日本"])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, 1.5])
    writer.add_array("bools", [True, False, True])
    gb.save(writer)
    metadata = cbquant.open(tmp_path / "meta.gguf").metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["text"] == "naïve ☃"
    assert metadata["no"] is False
    assert metadata["f32"] == float(np.float32(0.1))
    assert metadata["texts"] == ["a", "β", "日本"]
    assert metadata.type_of("texts") == "array[string]"
    assert metadata["ints"].tolist() == [1, -2, 3]
    assert metadata["ints"].dtype == np.int32
    assert metadata["floats"].tolist() == [0.5, 1.5]
    assert metadata["floats"].dtype == np.float32
    assert metadata["bools"].tolist() == [True, False, True]
    assert metadata["bools"].dtype == bool


def test_open_reads_a_custom_alignment(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "aligned.gguf", "llama")
    writer.add_custom_alignment(256)
    writer.add_tensor("a", np.arange(3, dtype=np.float32))
    writer.add_tensor("b", np.arange(4, dtype=np.float64))
    gb.save(writer)
    file = cbquant.open(tmp_path / "aligned.gguf")
    assert all(info.offset % 256 == 0 for info in file.infos.values())
    assert file["b"].tolist() == [0, 1, 2, 3]


# --- the hand-written sample -------------------------------------------------------------------------------


def test_metadata_of_every_kind(sample):
    metadata = cbquant.open(sample).metadata
    scalars = {key: value for key, value in metadata.items() if not isinstance(value, (list, np.ndarray))}
    assert scalars == {
        "u8": 255,
        "i8": -1,
        "u16": 65535,
        "i16": -2,
        "u32": 2**32 - 1,
        "i32": -3,
        "f32": 0.5,
        "yes": True,
        "text": "Grüße",
        "u64": 2**64 - 1,
        "i64": -4,
        "f64": 0.1,
    }
    assert metadata["i16s"].tolist() == [-1, 0, 1]
    assert not metadata["i16s"].flags.writeable
    assert metadata["bools"].tolist() == [False, True]
    assert metadata["texts"] == ["a", "", "ab"]
    assert metadata["texts"] is metadata["texts"]
    assert metadata["none"].shape == (0,)
    assert metadata["no texts"] == []
    assert metadata["nested"][0].tolist() == [1, 2]
    assert metadata["nested"][1] == ["x"]
    assert [metadata.type_of(key) for key in ("yes", "i64", "nested")] == ["bool", "int64", "array[array]"]
    assert "string[3]" in repr(metadata)
    assert "Grüße" in repr(metadata)
    with pytest.raises(KeyError):
        metadata["absent"]


def test_tensors_of_every_kind(sample):
    file = cbquant.open(sample)
    assert file["matrix"].tolist() == [[0, 1, 2], [3, 4, 5]]  # 3 x 2 in GGUF's order
    assert file["blocks"].dequant()[:, [0, 31]].tolist() == [[0, 2], [1, -1]]
    assert np.asarray(file["half"]).tolist() == [1, -2]
    assert file["half"].format == "bf16"
    assert file["scalar"].shape == ()
    assert file["scalar"] == -0.25
    assert file["empty"].shape == (0, 4)
    assert file["bytes"].tolist() == [[[[1], [-1]]], [[[2], [-2]]]]


def test_unknown_type_is_listed_but_not_decoded(sample):
    file = cbquant.open(sample)
    tensor, info = file["strange"], file.infos["strange"]
    assert (info.format, info.tag, info.shape) == ("unknown_99", 99, (2, 5))
    assert tensor.format == "unknown_99"
    assert tensor.shape == (2, 5)
    assert tensor.raw.tobytes() == b"12345".ljust(32, b"\0")  # as far as the next tensor
    for decode in (tensor.dequant, lambda: np.asarray(tensor), lambda: tensor.rows(0)):
        with pytest.raises(ValueError, match="tag 99, which cbquant does not know: it cannot be decoded"):
            decode()
    with pytest.raises(ValueError, match="tag 99, which cbquant does not know: it cannot be indexed"):
        tensor[0]
    with pytest.raises(ValueError, match=r"w: expected two or more dimensions of a known format, got .*99"):
        cbquant.unpermute_rope(tensor, 1)
    assert pickle.loads(pickle.dumps(tensor)).format == "unknown_99"
    assert "unknown_99" in repr(tensor)
    assert "unknown_99" in tensor._repr_html_()


def test_last_unknown_type_reaches_to_the_end_of_the_file(tmp_path):
    infos = [gb.info("a", [4], gb.UNKNOWN, 0), gb.info("b", [4], 4, 0), gb.info("c", [1], 9, 40)]
    (tmp_path / "x.gguf").write_bytes(gb.gguf([], infos, bytes(range(50))))
    file = cbquant.open(tmp_path / "x.gguf")
    assert [file[name].nbytes for name in "abc"] == [40, 40, 10]


def test_file_is_a_read_only_mapping_without_copies(sample):
    file = cbquant.open(sample)
    assert len(file) == 7
    assert "matrix" in file
    assert "absent" not in file
    assert file.get("absent") is None
    assert np.shares_memory(file["matrix"], file["matrix"])
    assert not file["matrix"].flags.writeable
    assert np.shares_memory(file["blocks"].raw, file["blocks"].raw)
    assert not file["blocks"].raw.flags.writeable
    assert file == file
    assert file != cbquant.open(sample)
    assert hash(file)
    with pytest.raises(KeyError, match=r"'absent': no such tensor in .*sample\.gguf"):
        file["absent"]
    with pytest.raises(TypeError):
        file["matrix"] = 1
    with pytest.raises(TypeError):
        file.infos["matrix"] = 1


def test_file_prints_as_a_table(sample, model_path):
    file = cbquant.open(sample)
    assert [line.split()[0] for line in repr(file).splitlines()[1:]] == ["name", *file]
    assert "(2, 32)" in repr(file)
    assert "unknown_99" in repr(file)
    assert file._repr_html_().count("<tr>") == 8
    assert "..." in repr(cbquant.open(model_path))
    assert len(repr(cbquant.open(model_path)).splitlines()) < 40


def test_file_prints_hostile_names_harmlessly(tmp_path):
    infos = [gb.info(name, [1], gb.F32, 0) for name in (b"<b>\x1b[1m\n", b"\xff\xfe")]
    pairs = [gb.pair(b"\xfe", gb.STRING, gb.string(b"\xff"))]
    (tmp_path / "x.gguf").write_bytes(gb.gguf(pairs, infos, bytes(4)))
    file = cbquant.open(tmp_path / "x.gguf")
    for text in (repr(file), repr(file.metadata), file._repr_html_()):
        text.encode()
        assert "\x1b" not in text
    assert "<b>" not in file._repr_html_()
    assert len(repr(file).splitlines()) == 4
    names = [name.encode("utf-8", "surrogateescape") for name in file]
    assert names == [b"<b>\x1b[1m\n", b"\xff\xfe"]
    assert file.metadata["\udcfe"] == "\udcff"


def test_close_keeps_views_and_lets_the_map_go(sample):
    with cbquant.open(sample) as file:
        matrix, blocks, texts = file["matrix"], file["blocks"], file.metadata
        mapped = weakref.ref(file._open[0][sample])
    assert file.closed
    assert "(closed)" in repr(file)
    assert file.infos["matrix"].shape == (2, 3)
    for use in (lambda: file["matrix"], lambda: file.metadata, file.__enter__, file.__reduce__):
        with pytest.raises(ValueError, match="the file is closed"):
            use()
    file.close()
    assert matrix.sum() == 15
    assert blocks.dequant()[0, 31] == 2
    assert texts["texts"] == ["a", "", "ab"]
    del matrix, blocks, texts
    gc.collect()
    assert mapped() is None


def test_file_is_pickled_by_path(model_path):
    file = cbquant.open(model_path)
    data = pickle.dumps(file)
    assert len(data) < 1000
    name = "blk.0.attn_q.weight"
    np.testing.assert_array_equal(pickle.loads(data)[name].raw, file[name].raw)


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files: this one claims 5 GiB")
def test_open_reads_beyond_4_gib(tmp_path):
    offset = 5 * 2**30
    infos = [gb.info("far", [2], gb.F32, offset), gb.info("zeros", [2**30 + 2**28], gb.F32, 0)]
    head = gb.gguf([], infos)
    with (tmp_path / "big.gguf").open("wb") as stream:
        stream.write(head)
        stream.seek(len(head) + offset)
        stream.write(np.array([1.5, -2.5], "<f4").tobytes())
    file = cbquant.open(tmp_path / "big.gguf")
    assert file["far"].tolist() == [1.5, -2.5]
    assert file["zeros"].nbytes == offset
    assert file["zeros"][-1] == 0
