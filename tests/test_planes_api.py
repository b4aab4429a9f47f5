"""`cbquant.planes.dequant` as callers see it: what it takes, what it refuses, and the documentation."""

from __future__ import annotations

import doctest
import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cbquant
from cbquant import planes
from tests.planes_inputs import FLAT, GROUPED, NAMES, ROWS, TILED, Case, assert_same, layouts_of, make

U8 = np.uint8
ONES = np.full((130, 256), 0x38, U8)  # e4m3: 1.0
TILES = np.ones((2, 2), np.float32)


@contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[None]:
    with pytest.raises(kind, match=re.escape(text)):
        yield


def dequant(case: Case, **more: Any) -> Any:
    return planes.dequant(case.fmt, case.codes, case.scales, **case.options, **more)


@pytest.mark.parametrize("fmt", NAMES)
def test_it_is_the_reference(fmt: str) -> None:
    for case in layouts_of(fmt):
        assert_same(dequant(case), case.expected())


@pytest.mark.parametrize("fmt", NAMES)
def test_names_with_and_without_their_end(fmt: str) -> None:
    case = make(fmt, (3, 64))
    for name in (fmt.removesuffix("_planes"), f"{fmt.removesuffix('_planes')}_planes", fmt.upper()):
        assert_same(planes.dequant(name, case.codes, case.scales, **case.options), case.expected())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", np.float16, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("fmt", NAMES)
def test_dtypes(fmt: str, dtype: Any) -> None:
    case = make(fmt, (3, 64), 1)
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    y = dequant(case, dtype=dtype, threads=2)
    assert y.dtype.name == name
    assert_same(y, case.expected(name))


@pytest.mark.parametrize("fmt", NAMES)
def test_out(fmt: str) -> None:
    case = make(fmt, (3, 64), 2)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.uint16):
        out = np.zeros((3, 64), dtype)
        assert dequant(case, out=out) is out
        assert_same(out, case.expected("bfloat16" if dtype is np.uint16 else np.dtype(dtype).name))


@pytest.mark.parametrize("fmt", NAMES)
def test_strides(fmt: str) -> None:
    """Views give what their copies give."""
    case = make(fmt, (6, 128), 3, **({"tile": (1, 128)} if fmt in TILED else {}))
    codes, scales, options = case.codes, case.scales, dict(case.options)
    if fmt in FLAT:
        codes, scales = codes.reshape(6, 64), scales.reshape(6, 2)
    for rows in (slice(None, None, 2), slice(None, None, -1), slice(1, 4)):
        if fmt in FLAT:
            options["shape"] = (len(range(*rows.indices(6))), 128)
        copied = planes.dequant(fmt, codes[rows].copy(), scales[rows].copy(), **options)
        assert_same(planes.dequant(fmt, codes[rows], scales[rows], **options), copied)
        turned = np.asfortranarray(codes[rows]), np.asfortranarray(scales[rows])
        assert_same(planes.dequant(fmt, *turned, **options), copied)
    wide = np.repeat(codes, 2, axis=-1)[..., ::2]
    assert_same(dequant(Case(fmt, wide, scales, case.options)), case.expected())


def test_read_only_memory_and_buffers() -> None:
    case = make("mxfp4_planes", (2, 64), 4)
    for array in (case.codes, case.scales):
        array.setflags(write=False)
    assert_same(dequant(case), case.expected())
    scales = np.frombuffer(bytes(case.scales), U8).reshape(case.scales.shape)
    assert_same(planes.dequant("mxfp4", case.codes, memoryview(scales)), case.expected())
    flat = make("nf4", (128,), 4)
    assert_same(planes.dequant("nf4", flat.codes.tobytes(), flat.scales), flat.expected())
    memory = np.zeros(4 * 2 + 1, U8)
    scales = memory[1:].view(np.float32)  # not aligned
    scales[:] = flat.scales
    assert_same(planes.dequant("nf4", flat.codes, scales), flat.expected())


@pytest.mark.parametrize("fmt", NAMES)
def test_codes_of_ml_dtypes(fmt: str) -> None:
    types = {
        "e4m3fn": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "e3m2": ml_dtypes.float6_e3m2fn,
        "e2m3": ml_dtypes.float6_e2m3fn,
        "mxint8": np.int8,
    }
    case, own = make(fmt, (3, 64), 5), types.get(ROWS[fmt][1])
    for dtype in types.values():
        given = Case(fmt, case.codes.view(dtype), case.scales, case.options)
        if dtype is own:
            assert_same(dequant(given), case.expected())
        else:
            with raises(TypeError, f"for {fmt}, got dtype {np.dtype(dtype).name}"):
                dequant(given)


def test_mxfp4_codes_with_an_axis_for_groups_or_without() -> None:
    case = make("mxfp4_planes", (2, 3, 96), 6)
    grouped = case.codes.reshape(2, 3, 3, 16)
    assert_same(planes.dequant("mxfp4", grouped, case.scales), case.expected())
    assert_same(planes.dequant("mxfp4", grouped[::-1], case.scales[::-1]), case.expected()[::-1])


def test_scales_of_a_tensor_a_row_a_tile() -> None:
    codes = np.arange(6, dtype=U8).reshape(2, 3) + 0x38
    plain = planes.dequant("fp8_e4m3", codes, 1)
    for one in (
        2,
        2.0,
        np.float32(2),
        np.float64(2),
        np.array([2], np.float32),
        np.array(2, np.float16),
        U8(128),
        ml_dtypes.bfloat16(2),
        np.float16(2),
    ):
        assert np.array_equal(planes.dequant("fp8_e4m3", codes, one), 2 * plain)
    rows = np.array([2, 3], np.float32)
    assert np.array_equal(planes.dequant("fp8_e4m3", codes, rows), rows[:, None] * plain)
    assert np.array_equal(planes.dequant("fp8_e4m3", codes, rows[:, None], tile=(1, None)), rows[:, None] * plain)
    assert np.array_equal(planes.dequant("fp8_e4m3", codes, rows[None], tile=[None, 2]), rows[[0, 0, 1]] * plain)
    assert np.array_equal(planes.dequant("fp8_e4m3", codes[0], rows[:1]), 2 * plain[0])
    assert planes.dequant("fp8_e4m3", np.zeros((0, 3), U8), 1.0).shape == (0, 3)


def test_python_numbers_are_rounded_to_float32_once() -> None:
    assert planes.dequant("fp8_e4m3", ONES[0], 0.1)[0] == np.float32(0.1)


@pytest.mark.parametrize("block2", [None, 7])
def test_nested_absmax(block2: int | None) -> None:
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 256, 2000, U8), rng.integers(0, 256, -(-4000 // 64), U8)
    outer = rng.uniform(1, 3, -(-len(scales) // (block2 or 256))).astype(np.float32)
    table = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
    nested = (outer, table, np.float32(2.62), *([block2] if block2 else []))
    case = Case("nf4", codes, scales, {"nested": nested})
    assert_same(dequant(case), case.expected())
    with_arrays = (outer[:, None], table, np.array([2.62], np.float32), *nested[3:])
    assert_same(dequant(Case("nf4", codes, scales, {"nested": list(with_arrays)})), case.expected())


def test_formats_print_as_a_table() -> None:
    lines = repr(planes.formats()).splitlines()
    assert lines[0].split()[:3] == ["name", "code", "bits"]
    assert len(lines) == len(NAMES) + 1
    assert "<td>mxint8</td>" in planes.formats()._repr_html_()


# --- what is refused ---

E8 = np.full((2, 2), 127, U8)  # scales of two groups
F32 = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("error", "text", "arguments", "options"),
    [
        (ValueError, "fmt: unknown format of planes 'fp9'", ("fp9", ONES, 1), {}),
        (ValueError, "did you mean fp8_e4m3 or mxfp8_e4m3?", ("e4m3fn", ONES, 1), {}),
        (ValueError, "q4_k is a format of blocks, for cbquant.dequant", ("q4_k", ONES, 1), {}),
        (TypeError, "fmt: expected the name of a format of planes, got NoneType", (None, ONES, 1), {}),
        (TypeError, "codes: expected uint8 or float8_e4m3fn for fp8_e4m3, got dtype float32",
         ("fp8_e4m3", TILES, 1), {}),
        (TypeError, "codes: expected uint8 for nf4, got dtype int8", ("nf4", ONES.view("i1"), F32), {}),
        (TypeError, "codes: expected bytes, a buffer or an array, got list", ("fp8_e4m3", [1, 2], 1), {}),
        (ValueError, "codes: expected at least one dimension, got ()", ("fp8_e4m3", U8(1), 1), {}),
        (TypeError, "scales: expected uint8, float8_e8m0fnu for mxint8, got dtype float32", ("mxint8", ONES, F32), {}),
        (TypeError, "scales: expected uint8, float8_e4m3fn for nvfp4_planes", ("nvfp4", ONES, F32), {}),
        (TypeError, "got dtype float64; .astype(np.float32) makes it so", ("fp8_e4m3", ONES, np.ones((2, 2))), {}),
        (TypeError, "scales: expected bytes, a buffer or an array, got float", ("mxint8", ONES, 1.0), {}),
        (ValueError, "scales: expected native byte order, got dtype >f4", ("fp8_e4m3", ONES, TILES.astype(">f4")), {}),
        (ValueError, "scales: expected a finite float32, got 1e+300", ("fp8_e4m3", ONES, 1e300), {}),
        # shapes
        (ValueError, "scales: expected shape (2, 2) for codes of shape (130, 256) in tiles of 128 x 128 (fp8_e4m3), "
         "got (3, 2); another tile is tile=(rows, columns)", ("fp8_e4m3", ONES, np.ones((3, 2), "f4")), {}),
        (ValueError, "got (130, 1); a scale for each row is tile=(1, None)",
         ("fp8_e4m3", ONES, np.ones((130, 1), "f4")), {}),
        (ValueError, "got (1, 1); a scale for each matrix is tile=(None, None)",
         ("fp8_e4m3", ONES, np.ones((1, 1), "f4")), {}),
        (ValueError, "scales: expected shape (130,), one for each row (fp8_e4m3), got (2,)",
         ("fp8_e4m3", ONES, F32), {}),
        (ValueError, "in tiles of 1 x 128 (fp8_e5m2), got (2, 2)", ("fp8_e5m2", ONES, TILES), {"tile": (1, 128)}),
        (ValueError, "codes: k=100 is not a multiple of 32 elements under one scale (mxint8)",
         ("mxint8", ONES[:2, :100], E8), {}),
        (ValueError, "codes: k=24 is not a multiple of 16 elements under one scale (nvfp4",
         ("nvfp4", ONES[:2, :12], E8), {}),
        (ValueError, "codes: k=60 is not a multiple of 32 ele", ("mxfp6_e3m2", ONES[:2, :45], E8), {"packed": True}),
        (ValueError, "codes: a row of 46 bytes is not a m", ("mxfp6_e3m2", ONES[:2, :46], E8), {"packed": True}),
        (ValueError, "scales: expected shape (2, 1), one for each 32 elements (mxint8), got (2, 2)",
         ("mxint8", ONES[:2, :32], E8), {}),
        (ValueError, "codes: expected [..., K / 32, 16] beside scales of shape (2, 2) (mxfp4_planes), got shape "
         "(2, 2, 8)",
         ("mxfp4", np.zeros((2, 2, 8), U8), E8), {}),
        (ValueError, "shape: the codes of mxint8 are those of shape (2, 64), got (64, 2)",
         ("mxint8", ONES[:2, :64], E8), {"shape": (64, 2)}),
        (ValueError, "codes: expected 4 bytes for shape (7,) of nf4, got 3",
         ("nf4", np.zeros(3, U8), F32[:1]), {"shape": 7}),
        (ValueError, "scales: expected 1 for the 6 elements of shape (6,) in blocks of 64 (nf4), got 2 of shape (2,)",
         ("nf4", np.zeros(3, U8), F32), {}),
        (ValueError, "shape: expected dimensions from 0 up, got (-2,)", ("nf4", np.zeros(3, U8), F32), {"shape": -2}),
        # options that a format does not have
        (ValueError, "tile: mxint8 has none, only fp8_e4m3 and fp8_e5m2 have", ("mxint8", ONES, E8), {"tile": (1, 32)}),
        (ValueError, "block: fp8_e4m3 has none, only nf4 and fp4 have", ("fp8_e4m3", ONES, TILES), {"block": 128}),
        (ValueError, "nested: fp8_e4m3 has no absmax, only nf4 and fp4 have",
         ("fp8_e4m3", ONES, TILES), {"nested": ()}),
        (ValueError, "packed: the codes of mxint8 are whole bytes", ("mxint8", ONES, E8), {"packed": True}),
        (ValueError, "global_scale: mxfp4_planes has none, only nvfp4_planes has",
         ("mxfp4", ONES, E8), {"global_scale": 1.0}),
        (TypeError, "packed: expected True or False, got int", ("mxint8", ONES, E8), {"packed": 1}),
        (TypeError, "tile: expected (rows, columns), got 128", ("fp8_e4m3", ONES, TILES), {"tile": 128}),
        (ValueError, "tile: expected a whole number from 1, got 0", ("fp8_e4m3", ONES, TILES), {"tile": (0, 128)}),
        (TypeError, "tile: expected a whole number from 1, got float", ("fp8_e4m3", ONES, TILES), {"tile": (1.0, 128)}),
        (ValueError, "block: expected a whole number from 1, got -64", ("nf4", ONES, F32), {"block": -64}),
        (ValueError, "block: expected an even number, whose codes are whole bytes, got 7",
         ("nf4", ONES, F32), {"block": 7}),
        (ValueError, "global_scale_is: expected one of multiplier, divisor, got 'reciprocal'", ("nvfp4", ONES, E8),
         {"global_scale_is": "reciprocal"}),
        (ValueError, "global_scale: expected a finite float32, got nan",
         ("nvfp4", ONES, E8), {"global_scale": float("nan")}),
        (TypeError, "global_scale: expected one number, got an array of shape (2,) and dtype float32",
         ("nvfp4", ONES, E8),
         {"global_scale": F32}),
        (TypeError, "global_scale: expected one number, got str", ("nvfp4", ONES, E8), {"global_scale": "1"}),
        (TypeError, "global_scale: expected one number, got bool", ("nvfp4", ONES, E8), {"global_scale": True}),
        (ValueError, "global_scale: expected a divisor other than 0, got 0", ("nvfp4", ONES, E8),
         {"global_scale": 0.0, "global_scale_is": "divisor"}),
        # nested
        (TypeError, "nested: expected (absmax2, table2, offset)", ("nf4", ONES, E8), {"nested": (F32, F32)}),
        (TypeError, "scales: expected uint8, the codes of a nested absmax, got dtype float32",
         ("nf4", ONES, F32), {"nested": (F32, F32, 0)}),
        (ValueError, "nested: absmax2: expected 1 for 4 scales in blocks of 256, got 2",
         ("nf4", ONES, E8), {"nested": (F32, F32, 0)}),
        (ValueError, "nested: table2: expected an entry for code 127, got 2",
         ("nf4", ONES, E8), {"nested": (F32[:1], F32, 0)}),
        (TypeError, "nested: table2: expected float32, got dtype float64",
         ("nf4", ONES, E8), {"nested": (F32, np.ones(256), 0)}),
        (ValueError, "nested: offset: expected a finite float32, got nan",
         ("nf4", ONES, E8), {"nested": (F32[:1], np.ones(256, "f4"), np.nan)}),
        (ValueError, "nested: block2: expected a whole number from 1, got 0",
         ("nf4", ONES, E8), {"nested": (F32, F32, 0, 0)}),
        # outputs
        (TypeError, "dtype: expected float32, float16, bfloat16, got float64",
         ("fp8_e4m3", ONES, TILES), {"dtype": "float64"}),
        (ValueError, "out: expected shape (130, 256), got (2, 2)", ("fp8_e4m3", ONES, TILES), {"out": TILES}),
        (ValueError, "threads: expected 1 to 512, got 0", ("fp8_e4m3", ONES, TILES), {"threads": 0}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(error: type[Exception], text: str, arguments: tuple[Any, ...], options: Any) -> None:
    with raises(error, text):
        planes.dequant(*arguments, **options)


def test_nothing_is_written_before_all_is_checked() -> None:
    out = np.full((130, 256), 7, np.float32)
    for scales, threads in ((np.ones((3, 2), "f4"), 1), (TILES, 0)):
        with pytest.raises(ValueError, match="expected"):
            planes.dequant("fp8_e4m3", ONES, scales, out=out, threads=threads)
        assert (out == 7).all()


def test_out_has_memory_of_its_own() -> None:
    memory = np.zeros(5 * 64, U8)
    for codes, scales in ((memory[:64].reshape(2, 32), E8[:, :1]), (ONES[:2, :32], memory[:2].reshape(2, 1))):
        with raises(ValueError, "out: expected memory of its own, it overlaps codes or scales"):
            planes.dequant("mxint8", codes, scales, out=memory[:256].view(np.float32).reshape(2, 32))


def test_bfloat16_needs_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with raises(ImportError, 'dtype="bfloat16" needs ml_dtypes'):
        planes.dequant("fp8_e4m3", ONES, TILES, dtype="bfloat16")
    assert planes.dequant("fp8_e4m3", ONES, TILES, out=np.empty((130, 256), np.uint16))[0, 0] == 0x3F80


# --- the rest of cbquant knows of them ---


@pytest.mark.parametrize("fmt", NAMES)
def test_functions_of_blocks_say_where_planes_are(fmt: str) -> None:
    with raises(ValueError, f"fmt: unknown format of blocks '{fmt}'; it is one of planes: cbquant.planes.deq"):
        cbquant.dequant(bytes(32), fmt)


def test_importing_cbquant_leaves_planes_out() -> None:
    import subprocess
    import sys

    code = "import cbquant, sys; sys.exit('cbquant.planes' in sys.modules or 'planes' not in dir(cbquant))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert "planes" in cbquant.__all__


@pytest.mark.parametrize("name", ["", "._formats", "._layout", "._nested", "._blocks", "._quantize", "._tensor"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"cbquant.planes{name}"))
    assert result.failed == 0
    assert result.attempted > 0 or name in ("._layout", "._nested")


def test_examples_of_the_reference() -> None:
    result = doctest.testmod(importlib.import_module("cbquant.reference.planes"))
    assert result.attempted > 4
    assert result.failed == 0


def test_examples_of_the_page() -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "planes.md"
    text = page.read_text().replace("```", "")  # a fence would be output
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 20
    assert result.failed == 0


def test_every_format_is_tested() -> None:
    assert {*GROUPED, *TILED, *FLAT} == set(NAMES)


def test_numbers_of_no_array_are_refused_before_they_cost_anything() -> None:
    ones = np.ones(1, np.float32)
    nested = (ones, np.ones(256, np.float32), 0.0, 2**40)
    y = planes.dequant("nf4", np.zeros(32, np.uint8), np.zeros(1, np.uint8), nested=nested)
    assert y.shape == (64,)
    for options in ({"tile": (2**63, 1)}, {"tile": (1, 2**70)}):
        with pytest.raises(ValueError, match="tile: expected at most"):
            planes.dequant("fp8_e4m3", np.zeros((2, 2), np.uint8), ones[:, None], **options)
    with pytest.raises(ValueError, match="block: expected at most"):
        planes.dequant("nf4", np.zeros(32, np.uint8), ones, block=2**63)
