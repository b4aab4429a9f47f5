"""`compare`: figures against plain NumPy, what is left out and said, files and memory."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import cbquant
from cbquant._compare import _figures
from tests import convert_files as cf
from tests.cli_files import finite_blocks

FORMATS = [f for f in cbquant.formats() if f.kind != "plain"]


def figures(x, y, block=32):
    """RMSE, relative error, cosine, worst block and its error, of whole arrays at once."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    d = y - x
    rows = d.reshape(-1, x.shape[-1])
    starts = range(0, x.shape[-1], block)
    means = np.array([[np.mean(row[start : start + block] ** 2) for start in starts] for row in rows])
    root = math.sqrt(np.mean(x**2))
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    worst = math.sqrt(means.max()) / root
    return math.sqrt(np.mean(d**2)), np.linalg.norm(d) / np.linalg.norm(x), (x * y).sum() / norms, means.argmax(), worst


def found(row):
    return row.rmse, row.relative_error, row.cosine, row.worst_block, row.worst_error


def one(a, b, **options):
    (row,) = cbquant.compare(a, b, **options)
    return row


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=["one piece", "many pieces", "pieces of rows"])
def pieces(request, monkeypatch):
    """Tensors as a whole, some rows at a time, some columns at a time."""
    monkeypatch.setattr(
        _figures, "_PIECE", {"one piece": 1 << 20, "many pieces": 1500, "pieces of rows": 300}[request.param]
    )


# --- figures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_figures_of_every_format(fmt, pieces, rng):
    raw = finite_blocks(fmt.name, (3, 2, 512)) if fmt.name not in ("mxfp4", "nvfp4") else None
    if raw is None:
        raw = rng.integers(100, 120, (3, 2, 512 // fmt.elements * fmt.bytes), np.uint8)
    tensor = cbquant.QuantTensor(raw, fmt.name, (3, 2, 512))
    values = tensor.dequant()
    other = (values * rng.uniform(0.9, 1.1, values.shape)).astype(np.float32)
    row = one(other, tensor)
    assert found(row) == pytest.approx(figures(other, values), rel=1e-12)
    assert (row.format_a, row.format_b, row.shape) == ("f32", fmt.name, (3, 2, 512))
    assert row.differing == np.count_nonzero(other != values)
    assert (row.nonfinite_a, row.nonfinite_b, row.note) == (0, 0, "")


@pytest.mark.parametrize("shape", [(7, 100), (100,), (3, 1, 4, 50), (1, 1), (5, 32), (2, 4001)])
@pytest.mark.parametrize("block", [1, 7, 32, 64, 5000])
def test_figures_of_odd_shapes_and_blocks(shape, block, pieces, rng):
    x, y = rng.normal(size=(2, *shape))
    row = one(x, y, block=block)
    assert found(row) == pytest.approx(figures(x, y, block), rel=1e-11)
    at = np.zeros(shape)
    at[row.worst_at] = 1
    per_row = -(-shape[-1] // block)
    line, column = np.argwhere(at.reshape(-1, shape[-1]))[0]
    assert row.worst_block == line * per_row + column // block


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", ">f4", "longdouble", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_dtypes_and_strides(dtype, pieces, rng):
    x = rng.normal(size=(6, 8, 96)).astype(np.float32)
    y = (x * np.float32(1.01)).astype(dtype)
    for view in (np.s_[:], np.s_[::2, 1::3], np.s_[::-1, :, ::-1], np.s_[..., 5:70], np.s_[2]):
        assert found(one(x[view], y[view])) == pytest.approx(figures(x[view], y[view]), rel=1e-11)
    moved = one(x.transpose(2, 0, 1), y.transpose(2, 0, 1))
    assert found(moved) == pytest.approx(figures(x.transpose(2, 0, 1), y.transpose(2, 0, 1)), rel=1e-11)


def test_names_of_formats_and_dtypes(rng):
    x = rng.normal(size=(2, 64)).astype(np.float32)
    names = {"float16": "f16", "float64": "f64", "uint8": "u8", "bool": "bool", "int64": "i64"}
    assert {dtype: one(x, x.astype(dtype)).format_b for dtype in names} == names
    assert one(x, x.astype(ml_dtypes.bfloat16)).format_b == "bf16"
    bits = x.astype(ml_dtypes.bfloat16).view(np.uint8)
    as_bf16 = one(cbquant.QuantTensor(bits, "bf16", x.shape), x.astype(ml_dtypes.bfloat16))
    assert (as_bf16.format_a, as_bf16.format_b, as_bf16.differing) == ("bf16", "bf16", 0)


def test_slices_of_a_tensor(pieces, rng):
    tensor = cbquant.QuantTensor(finite_blocks("q6_k", (4, 6, 512)), "q6_k", (4, 6, 512))
    other = cbquant.QuantTensor(finite_blocks("q5_0", (4, 6, 512), 1), "q5_0", (4, 6, 512))
    for view in (np.s_[1:3], np.s_[::2, ::-2], np.s_[3, 1]):
        a, b = tensor[view], other[view]
        assert found(one(a, b)) == pytest.approx(figures(a.dequant(), b.dequant()), rel=1e-11)


def test_plain_tensors_keep_what_float32_would_lose():
    x = np.array([[1.0, 2.0**60]])
    y = x + np.array([2.0**-40, 0])
    a, b = (cbquant.QuantTensor(array.view(np.uint8), "f64", array.shape) for array in (x, y))
    assert one(a, b).differing == 1
    whole = np.array([2**62, 2**62 + 1])
    a, b = (cbquant.QuantTensor(array.view(np.uint8), "i64", (2,)) for array in (whole, whole[::-1].copy()))
    assert (one(a, a).note, one(a, b).differing) == ("whole numbers: equal", 2)


def test_equal_tensors(rng):
    x = rng.normal(size=(5, 64)).astype(np.float32)
    row = one(x, x.copy())
    assert found(row) == (0, 0, 1.0, None, None)
    assert row.is_equal
    assert row.worst_at is None


def test_a_constant_factor_has_a_cosine_of_one(rng):
    x = rng.normal(size=(9, 1000))
    row = one(x, 3 * x)
    assert row.cosine == pytest.approx(1, abs=1e-15)
    assert row.cosine <= 1
    assert row.relative_error == pytest.approx(2)
    assert one(x, -x).cosine == pytest.approx(-1, abs=1e-15)


def test_zeros_have_no_direction():
    zero, ones = np.zeros((2, 32)), np.ones((2, 32))
    assert found(one(zero, ones)) == (1, math.inf, None, 0, math.inf)
    assert found(one(ones, zero)) == (1, 1, None, 0, 1)
    assert found(one(zero, zero)) == (0, 0, None, None, None)


def test_the_worst_block_is_the_first_of_several_and_of_short_ones():
    x = np.ones((3, 40))
    y = x.copy()
    y[1, 3], y[2, 3] = 2, 2
    assert (one(x, y).worst_block, one(x, y).worst_at) == (2, (1, 0))
    y[2, 33] = 1.9  # one of eight is worse than one of 32
    row = one(x, y)
    assert (row.worst_block, row.worst_at) == (5, (2, 32))
    assert row.worst_error == pytest.approx(0.9 / math.sqrt(8))


def test_the_same_figures_in_every_run_and_with_any_threads(rng):
    x = rng.normal(size=(700, 512)).astype(np.float32)
    tensor = cbquant.QuantTensor(cbquant.quantize(x, "q4_k"), "q4_k", x.shape)
    rows = {tuple(one(x, tensor, threads=threads)) for threads in (None, 1, 2, 3, 1)}
    assert len(rows) == 1


# --- NaN, infinities, other types --------------------------------------------------------------------------


def test_nan_and_infinities_are_counted_and_left_out(pieces, rng):
    x = rng.normal(size=(40, 96))
    y = x + rng.normal(size=x.shape) / 10
    a, b = x.copy(), y.copy()
    a[3, 5] = np.nan
    a[3, 6] = b[3, 6] = np.inf  # equal
    a[4, 0] = b[4, 0] = np.nan  # equal
    b[7, 64:] = -np.inf
    left_out = ~(np.isfinite(a) & np.isfinite(b))
    row = one(a, b)
    assert (row.nonfinite_a, row.nonfinite_b) == (3, 34)
    assert row.note == "NaN or infinite: 3 in a, 34 in b; left out"
    assert row.differing == x.size - 2
    x[left_out] = y[left_out] = 0
    kept = np.count_nonzero(~left_out)
    rmse, relative, cosine, *_ = figures(x, y)
    assert row.rmse == pytest.approx(rmse * math.sqrt(x.size / kept))
    assert (row.relative_error, row.cosine) == pytest.approx((relative, cosine))
    means = ((y - x) ** 2).reshape(-1, 32).sum(axis=1) / np.maximum(1, (~left_out).reshape(-1, 32).sum(axis=1))
    assert row.worst_block == means.argmax()
    assert row.worst_error == pytest.approx(math.sqrt(means.max() / (np.sum(x**2) / kept)))
    assert not row.is_within(math.inf)


def test_nothing_but_nan():
    nan = np.full((2, 32), np.nan)
    row = one(nan, nan)
    assert found(row) == (None,) * 5
    assert row.is_equal
    assert row.is_within(0)
    assert not one(nan, np.ones((2, 32))).is_within(1)


def test_whole_numbers_are_compared(pieces):
    x = np.arange(5000, dtype=np.int32).reshape(50, 100)
    y = x.astype(np.int64)
    y[[3, 40], 7] += 1
    row = one(x, y)
    assert (row.differing, row.note) == (2, "whole numbers: 2 of 5,000 differ")
    assert found(row) == (None,) * 5
    assert not row.is_within(1)
    assert one(x, x).is_within(0)
    assert one(x > 5, x > 5).note == "whole numbers: equal"
    assert found(one(x, y.astype(np.float64))) == pytest.approx(figures(x, y))


def test_other_types_are_told(strange):
    with cbquant.open(strange) as file:
        odd, even = file["odd"], file["even"]
        rows = {row.name: row for row in cbquant.compare(file, {"odd": odd, "even": np.asarray(even)})}
    assert rows["odd"].note == "the unknown GGUF type 99: the bytes are equal"
    assert rows["odd"].is_equal
    other = cbquant.QuantTensor._wrap(odd.raw + 1, odd.format, odd.shape)
    row = one(odd, other)
    assert (row.differing, row.note) == (None, "the unknown GGUF type 99: the bytes differ")
    assert one(odd, np.zeros(odd.shape)).note == "not compared: the unknown GGUF type 99"
    x = np.array([1j, 2])
    assert one(x, x).note == "dtype complex128: the bytes are equal"
    assert one(np.array(["a", "b"]), np.array(["a", "b"])).note == "dtype str: the bytes are equal"
    assert one(np.array([b"a"]), np.array([b"b"])).note == "dtype bytes: the bytes differ"
    assert one(np.zeros(2, "i2,i2"), np.zeros(2)).note == "not compared: dtype void"
    assert one(np.array([None, 1]), np.array([None, 1])).note == "not compared: dtype object"


def test_names_of_one_side_and_other_shapes():
    x = np.ones((2, 32))
    a = {"both": x, "shape": x, "left": x}
    b = {"right": np.ones(3, np.float16), "shape": x.T, "both": x}
    rows = cbquant.compare(a, b)
    assert [(row.name, row.note) for row in rows] == [
        ("both", ""),
        ("shape", "shapes differ: (2, 32) and (32, 2)"),
        ("left", "only in a"),
        ("right", "only in b"),
    ]
    assert [(row.format_a, row.format_b, row.shape) for row in rows[2:]] == [
        ("f64", None, (2, 32)),
        (None, "f16", (3,)),
    ]
    assert not any(row.is_within(math.inf) for row in rows[1:])


@pytest.mark.parametrize("shape", [(0, 32), (3, 0), (0,)])
def test_no_elements(shape):
    row = one(np.ones(shape), np.ones(shape))
    assert (row.note, row.differing, row.rmse) == ("no elements", 0, None)
    assert one(np.ones(shape, np.int8), np.ones(shape, np.int8)).is_equal


def test_a_number(pieces):
    row = one(np.float32(2), np.float32(3))
    assert found(row) == (1, 0.5, 1, 0, 0.5)
    assert row.worst_at == ()


# --- files, names, progress --------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    a = cf.write_gguf(tmp_path / "a.gguf", cf.arrays())
    cbquant.convert.quantize_file(a, tmp_path / "b.gguf", "q4_0", progress=False)
    return a, tmp_path / "b.gguf"


def test_files_paths_and_dicts_are_the_same(files):
    a, b = files
    rows = cbquant.compare(a, str(b))
    assert [row.name for row in rows] == list(cf.arrays())
    assert {row.name for row in rows if not row.is_equal} == {
        "token_embd.weight",
        cf.Q,
        cf.V,
        cf.EXPERTS,
        "output.weight",
    }
    assert all(0.05 < row.relative_error < 0.15 for row in rows if not row.is_equal)
    with cbquant.open(a) as first, cbquant.open(b) as second:
        assert cbquant.compare(first, second) == rows
        assert cbquant.compare(dict(first), b) == rows
        assert not first.closed
    with pytest.raises(ValueError, match="the file is closed"):
        cbquant.compare(first, b)


def test_names_are_names_or_patterns(files):
    a, b = files
    assert [row.name for row in cbquant.compare(a, b, names="*attn_v*")] == [cf.V, cf.BIAS]
    assert [row.name for row in cbquant.compare(a, b, names=["output*", cf.Q])] == [cf.Q, "output.weight"]
    x = np.ones(32)
    assert len(cbquant.compare({"a[0]": x, "a0": x}, {"a[0]": x}, names="a[0]")) == 1
    with pytest.raises(ValueError, match=r"names: no tensor is named or matches 'blk.7'"):
        cbquant.compare(a, b, names=["*", "blk.7"])


def test_progress_goes_from_tensor_to_tensor(files, monkeypatch):
    monkeypatch.setattr(_figures, "_PIECE", 500)
    a, b = files
    calls = []
    cbquant.compare(a, b, progress=lambda *call: calls.append(call))
    done, totals, names = zip(*calls, strict=True)
    with cbquant.open(a) as first, cbquant.open(b) as second:
        assert set(totals) == {sum(info.nbytes for file in (first, second) for info in file.infos.values())}
    assert list(done) == sorted(done)
    assert done[-1] == totals[0]
    assert list(dict.fromkeys(names)) == list(cf.arrays())
    assert len(done) > 2 * len(set(names))


def test_memory_is_bounded(tmp_path):
    import tracemalloc

    x = np.ones((1, 1 << 24), np.float16)
    tensor = cbquant.QuantTensor(np.zeros((1 << 24) // 32 * 18, np.uint8), "q4_0", x.shape)
    tracemalloc.start()
    try:
        one(x, tensor)
        one(x.reshape(1 << 12, -1)[::2], x.reshape(1 << 12, -1)[1::2])
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_tensor_that_cannot_be_read_is_a_row(tmp_path):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    path = tmp_path / "x.safetensors"
    save_file({"flag": np.array([True, False]), "w": np.ones(2, np.float32)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(b"\x01\x00", 8 + int.from_bytes(data[:8], "little"))] = 7
    path.write_bytes(data)
    rows = {row.name: row for row in cbquant.compare(path, path)}
    assert rows["flag"].note == "a: a bool is 0 or 1, got 7"
    assert rows["w"].is_equal


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "text"),
    [
        (1, np.ones(3), {}, TypeError, "a: expected a path, a mapping of tensors, an array or a QuantTensor, got int"),
        (np.ones(3), b"", {}, TypeError, "b: expected a path, .* got bytes"),
        (np.ones(3), {"x": 1}, {}, TypeError, "a: expected a mapping of tensors or a path, as b is, got a single"),
        ({}, np.ones(3), {}, TypeError, "b: expected a mapping of tensors or a path, as a is"),
        ({1: np.ones(3)}, {}, {}, TypeError, "a: expected names of tensors, got a key of type int"),
        ({}, {}, {"block": 0}, ValueError, "block: expected 1 to 1048576, got 0"),
        ({}, {}, {"block": 2.0}, TypeError, "block: expected a whole number from 1, got float"),
        ({}, {}, {"block": True}, TypeError, "block: expected a whole number from 1, got bool"),
        ({}, {}, {"threads": 0}, ValueError, "threads: expected 1 to"),
        (np.ones(3), np.ones(3), {"names": "x"}, ValueError, "names: expected none for single tensors"),
        ({}, {}, {"names": 3}, TypeError, "names: expected a name or a list of names, got int"),
        ({"x": np.ones(3)}, {}, {"names": [3]}, TypeError, "names: expected names, got int"),
        (np.ma.ones(3), np.ones(3), {}, TypeError, "a: expected plain arrays, got a masked one"),
        ({}, {"x": np.ma.ones(3)}, {}, TypeError, "b: tensor 'x': expected plain arrays, got a masked one"),
        ("no-such-file.gguf", {}, {}, OSError, "no-such-file"),
    ],
)  # fmt: skip
def test_what_is_refused(a, b, options, error, text):
    with pytest.raises(error, match=text):
        cbquant.compare(a, b, **options)
