"""`QuantTensor.from_planes`: a tensor like any other; views, choices of rows, the array protocol, copies."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cbquant
from cbquant import QuantTensor, unpermute_rope
from cbquant.planes import _layout
from cbquant.planes._tensor import PlanesTensor
from tests.planes_inputs import FLAT, GROUPED, NAMES, ROWS, TILED, Case, assert_same, decode, make

SHAPE = (3, 4, 64)


def tensor(case: Case) -> PlanesTensor:
    return QuantTensor.from_planes(case.fmt, case.codes, case.scales, **case.options)


def tensors(fmt: str, seed: int = 0) -> list[PlanesTensor]:
    """Tensors of that shape under every kind of scales that the format has."""
    if fmt in FLAT:
        return [tensor(make(fmt, SHAPE, seed, block=block)) for block in (64, 32, 2)]
    if fmt in GROUPED:
        return [tensor(make(fmt, SHAPE, seed))]
    tiles = [(128, 128), (2, 16), (3, 60), (1, 16), (None, None), (1, None), (None, 5), "row", "tensor"]
    return [tensor(make(fmt, SHAPE, seed, tile=tile)) for tile in tiles]


@pytest.fixture(params=NAMES)
def fmt(request: pytest.FixtureRequest) -> str:
    return request.param


# --- what it says of itself ---


def test_a_tensor_of_planes_is_a_quant_tensor(fmt: str) -> None:
    case = make(fmt, SHAPE)
    t = tensor(case)
    assert isinstance(t, QuantTensor)
    assert (t.format, t.shape, t.ndim, t.size, len(t)) == (fmt, SHAPE, 3, 768, 3)
    assert t.nbytes == case.codes.nbytes + case.scales.nbytes
    for dtype in ("float32", "float16", "bfloat16"):
        assert_same(t.dequant(dtype), case.expected(dtype))
    out = np.empty(SHAPE, np.float32)
    assert t.dequant(out=out, threads=2) is out
    assert_same(out, case.expected())
    assert t
    assert repr(t) == f"QuantTensor({fmt}, shape={SHAPE}, {t.nbytes:,} bytes)"
    html = t._repr_html_()
    assert fmt in html
    assert f"<td>{8 * t.nbytes / t.size:g}</td>" in html


def test_its_parts_make_it_again(fmt: str) -> None:
    for t in tensors(fmt):
        options: dict[str, Any] = {"shape": t.shape}
        options |= {"tile": t.tile} if fmt in TILED else {"block": t.tile[1]} if fmt in FLAT else {}
        again = QuantTensor.from_planes(t.format, t.codes, t.scales, **options)
        assert_same(again.dequant(), t.dequant())


def test_nothing_is_copied(fmt: str) -> None:
    case = make(fmt, SHAPE)
    for array in (case.codes, case.scales):
        array.setflags(write=False)
    t = tensor(case)
    assert np.shares_memory(t.codes, case.codes)
    assert np.shares_memory(t.scales, case.scales)
    codes, scales = t._layout.planes()[2:4]
    assert np.shares_memory(codes, case.codes)
    assert np.shares_memory(scales, case.scales)


def test_global_scale() -> None:
    case = make("nvfp4_planes", (2, 32), any_bits=False)
    assert tensor(case).global_scale is None
    for name in ("multiplier", "divisor"):
        options = {"global_scale": 0.1, "global_scale_is": name}
        t = tensor(Case(case.fmt, case.codes, case.scales, options))
        assert (t.global_scale, t.global_scale_is) == (float(np.float32(0.1)), name)
        again = QuantTensor.from_planes(
            t.format, t.codes, t.scales, global_scale=t.global_scale, global_scale_is=t.global_scale_is
        )
        assert_same(again.dequant(), t.dequant())
        assert_same(t[1].dequant(), t.dequant()[1])


def test_a_scale_for_the_tensor_counts_once() -> None:
    t = QuantTensor.from_planes("fp8_e4m3", np.zeros((5, 4, 3), np.uint8), 2.0)
    assert t.nbytes == 64
    assert t[1:3].nbytes == 28
    assert QuantTensor.from_planes("fp8_e4m3", np.zeros((0, 3), np.uint8), 2.0).nbytes == 0


def test_there_are_no_blocks(fmt: str) -> None:
    t = tensor(make(fmt, SHAPE))
    with pytest.raises(AttributeError, match=r"has no blocks: its bytes are \.codes and \.scales"):
        _ = t.raw
    with pytest.raises(TypeError, match=r"got PlanesTensor; its values are its \.dequant\(\)"):
        cbquant.dequant(t, "q8_0")
    for name in ("shape", "format", "raw", "codes", "scales", "tile", "dtype"):
        with pytest.raises(AttributeError):
            setattr(t, name, None)


# --- views ---

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
    (slice(None), slice(2, 4)),
    (slice(None), slice(1, 2)),
    (0, slice(0, 2)),
    (0, slice(1, 4)),
    (slice(None), slice(3, 0, -1)),
    (slice(None), slice(2, 2)),
    (0, 1, slice(None)),
    (slice(0, 2), 3, slice(0, 64)),
    ...,
    (..., 1, slice(None)),
    (2, ...),
    (slice(None), slice(None), slice(None), ...),
    (),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_index_gives_a_view(fmt: str, key: Any) -> None:
    for t in tensors(fmt):
        expected = t.dequant()[key]
        view = t[key]
        assert isinstance(view, PlanesTensor)
        assert view.format == fmt
        assert view.shape == expected.shape
        assert view.size == 0 or np.shares_memory(view.codes, t.codes)
        assert_same(view.dequant(), expected)
        if view.ndim > 1:
            assert_same(view[::-1].dequant(), expected[::-1])


def test_whole_tiles_stay_tiles() -> None:
    t = tensor(make("fp8_e4m3", (2, 512, 256)))
    for view in (t[:, 128:384], t[1, :129], t[:, 5:100], t[:, 300:310:3]):
        assert view.tile == (128, 128)
        assert np.shares_memory(view.scales, t.scales)
    assert t[0, 100:200].tile == (1, 128)
    assert t[0, 100:200].scales.shape == (100, 2)


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_any_choice_of_rows(data: st.DataObject) -> None:
    """What a choice hands to C is what the same choice of all numbers is."""
    lengths = data.draw(st.tuples(*[st.integers(0, 9)] * data.draw(st.integers(1, 3))))
    fmt = data.draw(st.sampled_from(["fp8_e4m3", "mxfp4_planes", "nf4"]))
    if fmt == "fp8_e4m3":
        size = st.one_of(st.none(), st.integers(1, 6))
        case = make(fmt, (*lengths, 5), data.draw(st.integers(0, 99)), tile=data.draw(st.tuples(size, size)))
    else:
        case = make(fmt, (*lengths, 64), block=32) if fmt == "nf4" else make(fmt, (*lengths, 32))
    layout = case.layout
    values = case.expected()
    for _ in range(2):
        key = data.draw(keys(layout.shape[:-1]))
        layout, values = layout.choose(key), values[key]
        assert_same(decode(layout.planes()).reshape(layout.shape), values)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    if draw(st.booleans()) and shape and shape[0]:
        return (np.array(draw(st.lists(st.integers(-shape[0], shape[0] - 1), max_size=5)), np.intp),)
    chosen: list[Any] = []
    for length in shape[: draw(st.integers(0, len(shape)))]:
        slices = st.slices(length)
        chosen.append(draw(st.one_of(slices, st.integers(-length, length - 1)) if length else slices))
    return tuple(chosen)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, "axis 0: index 3 is out of range for length 3"),
        (
            (0, 0, 0),
            "axis 2 is the last of shape (3, 4, 64): its elements share the scales of {fmt} and cannot be indexed",
        ),
        ((0, 0, slice(None), 0), "4 indices for a 3-D QuantTensor"),
        ([0, 1], "axis 0: expected an int or a slice, got list; rows()"),
    ],
)
def test_index_errors(fmt: str, key: Any, message: str) -> None:
    with pytest.raises(IndexError, match=re.escape(message.format(fmt=fmt))):
        tensor(make(fmt, SHAPE))[key]


@pytest.mark.parametrize("fmt", FLAT)
def test_rows_that_are_not_whole_blocks_cannot_be_chosen(fmt: str) -> None:
    t = tensor(make(fmt, (4, 8, 24), block=64))
    assert_same(t.dequant(), tensor(make(fmt, (4, 8, 24), block=64)).dequant())
    assert_same(t[1:].dequant(), t.dequant()[1:])  # 192 elements each: whole blocks
    text = f"{fmt}: a scale belongs to 64 elements in order, and those of axis 1 of shape (4, 8, 24) have 24 each"
    with pytest.raises(ValueError, match=re.escape(text)):
        t[1, 2]
    with pytest.raises(ValueError, match="they cannot be chosen; decode first, with dequant"):
        t[0].rows([1])
    with pytest.raises(ValueError, match="they cannot be chosen"):
        list(t[0])


def test_iteration_is_over_the_first_axis(fmt: str) -> None:
    for t in tensors(fmt):
        assert_same(np.stack([part.dequant() for part in t]), t.dequant())
    row = tensors(fmt)[0][0, 0]
    assert (row.ndim, len(row)) == (1, 64)
    for use in (lambda: row[0], lambda: row.rows(0)):
        with pytest.raises(IndexError, match=r"axis 0 is the last|no rows to choose from"):
            use()


@pytest.mark.parametrize(
    "index", [1, -1, np.uint8(2), slice(None, None, -2), [], (0, 2, 2, -3), np.array([[0, 1], [2, 0]])], ids=repr
)
def test_rows_decodes_the_chosen_rows(fmt: str, index: Any) -> None:
    chosen = np.asarray(index, np.intp) if isinstance(index, (list, tuple)) else index
    for t in [*tensors(fmt), *(part[1] for part in tensors(fmt, 1))]:
        whole = t.dequant()
        assert_same(t.rows(index), whole[chosen])
        assert t.rows(index, dtype="float16").dtype == np.float16


# --- protocols ---


def test_array_protocol(fmt: str) -> None:
    t = tensor(make(fmt, SHAPE, any_bits=False))
    values = t.dequant()
    for got in (np.asarray(t), np.array(t), t.__array__(None, copy=True)):
        assert got.dtype == np.float32
        assert_same(got, values)
    assert np.asarray(t, dtype="float64").dtype == np.float64
    assert_same(np.asarray(t, np.float16), t.dequant("float16"))
    assert np.asarray(t, ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match="decoding a QuantTensor always makes a new array"):
        t.__array__(copy=False)


def test_copies_and_pickles(fmt: str) -> None:
    for t in tensors(fmt):
        for view in (t, t[::2, 1]):
            assert np.shares_memory(copy.copy(view).codes, t.codes)
            assert not np.shares_memory(copy.deepcopy(view).codes, t.codes)
            again = pickle.loads(pickle.dumps(view))
            assert type(again) is PlanesTensor
            assert (again.format, again.shape, again.tile) == (view.format, view.shape, view.tile)
            assert_same(again.dequant(), view.dequant())
    assert t == t
    assert t != copy.copy(t)


def test_unpermute_rope_moves_rows(fmt: str) -> None:
    case = make(fmt, (12, 64), **({"tile": (5, 32)} if fmt in TILED else {}))
    t = tensor(case)
    moved = unpermute_rope(t, 3)
    assert isinstance(moved, PlanesTensor)
    assert not np.shares_memory(moved.codes, t.codes)
    assert_same(moved.dequant(), unpermute_rope(case.expected(), 3))


# --- comparing ---


def test_compare_takes_planes(fmt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cbquant._compare import _figures

    shapes = [(6, 64), (2, 3, 64), (384,), (1, 2048)] + ([(7, 23), (3, 5, 7), (1001,)] if fmt not in GROUPED else [])
    tiles: list[Any] = [(128, 128), (2, 16), "row", "tensor"] if fmt in TILED else [None]
    for piece in (1 << 17, 100):
        monkeypatch.setattr(_figures, "_PIECE", piece)
        for shape in shapes:
            for tile in tiles:
                t = tensor(make(fmt, shape, any_bits=False, **({"tile": tile} if tile else {})))
                values = t.dequant()
                (row,) = cbquant.compare(t, values)
                assert row.format_a == fmt
                assert row.differing == 0
                assert row.rmse == 0
                values.reshape(-1)[-1] += 1
                assert next(iter(cbquant.compare(values, t))).differing == 1


def test_pieces_of_any_place(fmt: str) -> None:
    """Few rows, few columns, of views too."""
    rng = np.random.default_rng(0)
    for t in [*tensors(fmt), *(t[::-1, 1:3] for t in tensors(fmt, 1))]:
        values = t.dequant().reshape(-1, t.shape[-1])
        for _ in range(30):
            first, last = np.sort(rng.choice(len(values) + 1, 2, replace=False))
            left, right = np.sort(rng.choice(65, 2, replace=False))
            rows, columns = slice(int(first), int(last)), slice(int(left), int(right))
            assert_same(t._layout.piece(rows, columns), values[rows, columns])


def test_few_codes_are_whole_bytes() -> None:
    assert all(_layout._FEW * row[2] % 8 == 0 for row in ROWS.values())
