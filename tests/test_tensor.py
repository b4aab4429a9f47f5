"""`QuantTensor`: shapes, views, rows, the array protocol; and `unpermute_rope`."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cbquant
from cbquant import QuantTensor, unpermute_rope

FORMATS = cbquant.formats()


@pytest.fixture
def t():
    """q4_0 [3, 4, 64] with a scale of i / 8 in block i."""
    data = np.random.default_rng(5).integers(0, 256, (24, 18), np.uint8)
    data[:, :2] = (np.arange(24) / 8).astype("<f2").view(np.uint8).reshape(24, 2)
    return QuantTensor(data, "q4_0", (3, 4, 64))


# --- construction ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_dequant_is_that_of_the_function(fmt):
    data = np.random.default_rng(fmt.tag).integers(0, 256, (2, 3, 2 * fmt.bytes), np.uint8)
    tensor = QuantTensor(data, fmt.name, (2, 3, 2 * fmt.elements))
    assert tensor.format == fmt.name
    assert tensor.ndim == 3
    assert tensor.size == 12 * fmt.elements
    assert tensor.nbytes == 12 * fmt.bytes
    assert tensor.raw.shape == (2, 3, 2 * fmt.bytes)
    for dtype in ("float32", "float16"):
        got = tensor.dequant(dtype)
        assert got.shape == tensor.shape
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, cbquant.dequant(data, fmt.name, tensor.shape, dtype))


def test_tensor_views_its_buffer():
    data = np.zeros(36, np.uint8)
    for buf in (data, data.reshape(2, 18), data.view("V18"), memoryview(data)):
        assert np.shares_memory(QuantTensor(buf, "q4_0", (2, 32)).raw, data)
    read_only = QuantTensor(data.tobytes(), "q4_0", (2, 32)).raw
    assert not read_only.flags.writeable


def test_dequant_fills_out(t):
    out = np.empty(t.shape, np.float32)
    assert t.dequant(out=out, threads=2) is out
    np.testing.assert_array_equal(out, t.dequant())


@pytest.mark.parametrize(
    ("shape", "nbytes", "fmt", "message"),
    [
        ((2, 128), 144, "q4_k", r"shape \(2, 128\): last dimension 128 is not a multiple of 256 \(q4_k\)"),
        ((2, 256), 287, "q4_k", r"buf: expected 288 bytes for shape \(2, 256\) of q4_k, got 287"),
        ((0, 256), 144, "q4_k", r"buf: expected 0 bytes for shape \(0, 256\) of q4_k, got 144"),
        ((-1, 256), 144, "q4_k", r"shape: expected dimensions from 0 up, got \(-1, 256\)"),
        ((), 18, "q4_0", r"shape: expected at least one dimension for q4_0, got \(\)"),
        ((2**32, 2**32), 0, "q4_0", "larger than any array can be"),
        ((0, 2**62, 4), 0, "f32", "larger than any array can be"),
        ((32,), 18, "q4_9", "q4_9"),
        ((32,), 18, "unknown_99", "unknown_99"),
    ],
)
def test_misfits_are_refused(shape, nbytes, fmt, message):
    with pytest.raises(ValueError, match=message):
        QuantTensor(bytes(nbytes), fmt, shape)


def test_shape_is_of_integers():
    assert QuantTensor(bytes(18), "q4_0", 32).shape == (32,)
    assert QuantTensor(bytes(18), "q4_0", [1, 32]).shape == (1, 32)
    for shape in ((1.0, 32), "32", None):
        with pytest.raises(TypeError):
            QuantTensor(bytes(18), "q4_0", shape)


@pytest.mark.parametrize("shape", [(0,), (0, 32), (3, 0), (2, 0, 64), (0, 0)])
def test_empty_tensors(shape):
    tensor = QuantTensor(b"", "q4_0", shape)
    assert tensor.size == tensor.nbytes == 0
    assert tensor.dequant().shape == shape
    assert np.asarray(tensor).shape == shape
    assert len(tensor) == shape[0]


def test_scalar_of_a_plain_format():
    tensor = QuantTensor(np.array([0x80, 0x3F], np.uint8), "bf16", ())
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.nbytes) == ((), 0, 1, 2)
    assert tensor.dequant().shape == ()
    assert tensor.dequant() == 1
    assert tensor[()].dequant() == 1
    with pytest.raises(TypeError, match="has no length"):
        len(tensor)


# --- views -------------------------------------------------------------------------------------------------

KEYS = [
    0,
    -1,
    np.int64(2),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(5, 9),
    (1, 2),
    (-3, -4),
    (slice(None), 1),
    (slice(1, None), slice(None, None, -3)),
    (0, 1, slice(None)),
    (slice(0, 2), 3, slice(0, 64)),
    ...,
    (..., 1, slice(None)),
    (2, ...),
    (slice(None), slice(None), slice(None), ...),
    (),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_index_gives_a_view(t, key):
    view = t[key]
    expected = t.dequant()[key]
    assert isinstance(view, QuantTensor)
    assert view.format == "q4_0"
    assert view.shape == expected.shape
    assert view.size == 0 or np.shares_memory(view.raw, t.raw)
    np.testing.assert_array_equal(view.dequant(), expected)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, "axis 0: index 3 is out of range for length 3"),
        ((0, -5), "axis 1: index -5 is out of range for length 4"),
        ((0, 0, 0), r"axis 2 is the last of shape \(3, 4, 64\): its elements lie inside q4_0 blocks"),
        ((..., slice(0, 32)), "axis 2 is the last"),
        ((0, 0, slice(None, None, -1)), "axis 2 is the last"),
        ((0, 0, slice(None), 0), "4 indices for a 3-D QuantTensor"),
        ((..., ...), "only one ellipsis"),
        ([0, 1], r"axis 0: expected an int or a slice, got list; rows\(\)"),
        (np.array([0, 1]), r"axis 0: expected an int or a slice, got ndarray; rows\(\)"),
        (True, "axis 0: expected an int or a slice, got bool"),
        (None, "axis 0: expected an int or a slice, got NoneType"),
        (1.0, "axis 0: expected an int or a slice, got float"),
    ],
)
def test_index_errors(t, key, message):
    with pytest.raises(IndexError, match=message):
        t[key]


def test_one_dimension_cannot_be_taken_apart(t):
    row = t[0, 0]
    assert row.ndim == 1
    assert len(row) == 64
    assert row[:].shape == (64,)
    for use in (lambda: row[0], lambda: row[:32], lambda: row.rows(0)):
        with pytest.raises(IndexError, match=r"axis 0 is the last|no rows to choose from"):
            use()
    with pytest.raises(TypeError, match="cannot be iterated over"):
        iter(row)


def test_iteration_is_over_the_first_axis(t):
    parts = list(t)
    assert len(parts) == len(t) == 3
    assert all(part.shape == (4, 64) for part in parts)
    np.testing.assert_array_equal(np.stack([part.dequant() for part in parts]), t.dequant())


# --- rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        1,
        -1,
        np.uint8(2),
        slice(None, None, -2),
        slice(1, 1),
        [],
        (0, 2, 2, -3),
        np.array([[0, 1], [2, 0]]),
        np.array([1, 2], np.uint64),
        np.zeros((0, 5), np.int32),
    ],
    ids=repr,
)
def test_rows_decodes_the_chosen_rows(t, index):
    whole = t.dequant()
    chosen = np.asarray(index, np.intp) if isinstance(index, (list, tuple)) else index
    got = t.rows(index)
    assert got.dtype == np.float32
    assert got.shape == whole[chosen].shape
    np.testing.assert_array_equal(got, whole[chosen])
    assert t.rows(index, dtype="float16").dtype == np.float16


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (3, "index: row 3 is out of range for length 3"),
        ([0, -4], "index: row -4 is out of range for length 3"),
        (np.array([2**64 - 1], np.uint64), "index: row 18446744073709551615 is out of range"),
        ([0.0], "index: expected integers, got float64"),
        ([True, False, True], "index: expected integers, got bool"),
        (np.zeros(0), "index: expected integers, got float64"),
    ],
)
def test_rows_errors(t, index, message):
    with pytest.raises(IndexError, match=message):
        t.rows(index)


# --- protocols ---------------------------------------------------------------------------------------------


def test_array_protocol(t):
    values = t.dequant()
    for got in (np.asarray(t), np.array(t), t.__array__(), t.__array__(None, copy=True)):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, values)
    assert np.asarray(t, dtype="float64").dtype == np.float64
    np.testing.assert_array_equal(np.asarray(t, np.int32), values.astype(np.int32))
    assert np.mean(t) == np.mean(values)
    assert np.asarray(t, ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match="decoding a QuantTensor always makes a new array"):
        t.__array__(copy=False)


@pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 does not pass copy on")
def test_array_without_copy_is_refused(t):
    with pytest.raises(ValueError, match="always makes a new array"):
        np.asarray(t, copy=False)


def test_array_of_float16_overflows_silently():
    block = np.array([65504], "<f2").tobytes() + bytes([127] * 32)
    assert np.isposinf(np.asarray(QuantTensor(block, "q8_0", 32), np.float16)).all()


EXACT = {
    "i8": np.array([-128, 127], "<i1"),
    "i16": np.array([-32768, 32767], "<i2"),
    "i32": np.array([2**31 - 1, 2**24 + 1], "<i4"),
    "i64": np.array([2**63 - 1, -(2**53) - 1], "<i8"),
    "f16": np.array([65504, 2**-24], "<f2"),
    "f32": np.array([3.4e38, 1e-45], "<f4"),
    "f64": np.array([0.1, 1e300], "<f8"),
}


@pytest.mark.parametrize("fmt", EXACT)
def test_array_of_plain_numbers_is_exact(fmt):
    values = EXACT[fmt]
    for tensor, expected in (
        (QuantTensor(values.tobytes(), fmt, (2,)), values),
        (QuantTensor(values.tobytes(), fmt, (2, 1))[::-1], values[::-1, None]),
        (QuantTensor(values[:1].tobytes(), fmt, ()), values[0]),
        (QuantTensor(b"", fmt, (3, 0)), np.empty((3, 0), values.dtype)),
    ):
        got = np.asarray(tensor, dtype=values.dtype)
        assert got.dtype == values.dtype
        assert got.flags.writeable  # new, not a view
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(np.asarray(tensor), tensor.dequant())
        assert np.asarray(tensor).dtype == np.float32
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(np.asarray(QuantTensor(values, fmt, 2), np.float16), values.astype(np.float16))


def test_tensors_are_true(t):
    assert t
    assert QuantTensor(bytes(2), "bf16", ())
    assert QuantTensor(b"", "q4_0", (0, 32))


def test_repr_and_html(t):
    assert repr(t) == "QuantTensor(q4_0, shape=(3, 4, 64), 432 bytes)"
    html = t._repr_html_()
    assert html.startswith("<table>")
    assert "(3, 4, 64)" in html
    assert "4.5" in html


def test_copies_and_pickles(t):
    for view in (t, t[::2, 1]):
        assert np.shares_memory(copy.copy(view).raw, t.raw)
        assert not np.shares_memory(copy.deepcopy(view).raw, t.raw)
        again = pickle.loads(pickle.dumps(view))
        assert (again.format, again.shape) == (view.format, view.shape)
        np.testing.assert_array_equal(again.raw, view.raw)
    assert t == t
    assert t != copy.copy(t)
    assert len({t, t}) == 1


def test_attributes_cannot_be_set(t):
    for name in ("shape", "format", "raw", "dtype"):
        with pytest.raises(AttributeError):
            setattr(t, name, None)


# --- unpermute_rope ----------------------------------------------------------------------------------------


def permute(w: np.ndarray, n_head: int) -> np.ndarray:
    """What convert_hf_to_gguf.py does to attn_q and attn_k."""
    return w.reshape(n_head, 2, w.shape[0] // n_head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def test_unpermute_rope_by_hand():
    gguf_rows = np.array([0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15])  # two heads of six
    assert unpermute_rope(gguf_rows, 2).tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]


@given(
    n_head=st.integers(1, 5),
    half=st.integers(0, 4),
    rest=st.lists(st.integers(0, 3), max_size=2),
)
def test_unpermute_rope_is_the_inverse(n_head, half, rest):
    w = np.arange(2 * half * n_head * int(np.prod(rest, dtype=int))).reshape(2 * half * n_head, *rest)
    np.testing.assert_array_equal(unpermute_rope(permute(w, n_head), n_head), w)
    np.testing.assert_array_equal(permute(unpermute_rope(w, n_head), n_head), w)


def test_unpermute_rope_moves_bytes(t):
    tensor = QuantTensor(t.raw, "q4_0", (12, 64))
    before = tensor.raw.copy()
    for w in (tensor, tensor[::-1]):
        moved = unpermute_rope(w, 3)
        assert isinstance(moved, QuantTensor)
        assert (moved.format, moved.shape) == (w.format, w.shape)
        np.testing.assert_array_equal(moved.raw, unpermute_rope(w.raw, 3))
        np.testing.assert_array_equal(moved.dequant(), unpermute_rope(w.dequant(), 3))
    np.testing.assert_array_equal(tensor.raw, before)
    assert not np.shares_memory(moved.raw, tensor.raw)


@pytest.mark.parametrize(
    ("w", "n_head", "message"),
    [
        (np.zeros((12, 2)), 0, "n_head: expected a whole number from 1, got 0"),
        (np.zeros((12, 2)), -1, "n_head: expected a whole number from 1, got -1"),
        (np.zeros((12, 2)), 4, r"w: 12 rows are not a multiple of 2 \* n_head = 8"),
        (np.zeros(()), 1, "w: expected one or more dimensions, got 0"),
        (QuantTensor(bytes(18), "q4_0", (32,)), 1, "w: expected two or more dimensions of a known format"),
    ],
)
def test_unpermute_rope_errors(w, n_head, message):
    with pytest.raises(ValueError, match=message):
        unpermute_rope(w, n_head)


def test_unpermute_rope_needs_whole_heads():
    with pytest.raises(TypeError):
        unpermute_rope(np.zeros((4, 2)), 2.0)
