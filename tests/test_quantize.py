"""Encoders against ggml's, byte for byte, on every instruction set; and what `quantize` takes and refuses."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cbquant
from cbquant import testing
from tests import encode_inputs
from tests.oracles import Ggml
from tests.paths import ENCODED_FORMATS, PATHS, ROOT, Path

FORMATS = {f.name: f for f in ENCODED_FORMATS}
SHARED = FilePath(__file__).resolve().parents[2] / "shared" / "vectors"
# Where products of weights overflow float32, ggml's encoders with a grid end the process: there is nothing to compare.
GRIDS = {name for name in FORMATS if name.startswith(("iq1", "iq2", "iq3"))}
NATIVE = [path for path in PATHS if not path.emulated]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@cache
def ggml() -> Ggml:
    if not Ggml.available():
        pytest.skip("no libggml-base: install pywhispercpp")
    return Ggml()


def weights_for(fmt: str, imatrix: NDArray[np.float32] | None, k: int) -> NDArray[np.float32] | None:
    return np.ones(k, np.float32) if imatrix is None and FORMATS[fmt].needs_imatrix else imatrix


def expected(fmt: str, x: NDArray[np.float32], imatrix: NDArray[np.float32] | None) -> NDArray[np.uint8]:
    """ggml's bytes; but for mxfp4 blocks below the smallest scale, whose byte wraps around there and is 0 here."""
    blocks = ggml().quantize_chunk(FORMATS[fmt].tag, x, imatrix)
    if fmt == "mxfp4":
        largest = np.abs(x.reshape(-1, 32)).max(axis=1)
        below = (largest > 0) & (largest < 2.0**-125 * (1 - 2.0**-24))
        parts = blocks.reshape(-1, 17)
        for block in np.flatnonzero(below):
            parts[block] = mxfp4_below(x.reshape(-1, 32)[block])
    return blocks


def mxfp4_below(x: NDArray[np.float32]) -> list[int]:
    """A block under the scale 2^-127, from its definition: the nearest value, the lower code where two are as near."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]) * 2.0**-127
    distance = np.abs(np.abs(x.astype(np.float64))[:, None] - magnitudes)
    codes = distance.argmin(axis=1)
    codes = np.where((x < 0) & (codes > 0), codes + 8, codes)
    return [0, *(codes[:16] | codes[16:] << 4)]


# --- bytes ---


def encode_cases(fmt: str) -> list[tuple[str, NDArray[np.float32], NDArray[np.float32] | None, NDArray[np.uint8]]]:
    """The vectors of the package, and all of a folder ``shared`` beside the repository where there is one."""
    cases = [(case.name, case.x, case.imatrix, case.q) for case in testing.encode_vectors(fmt)]
    if (SHARED / f"{fmt}.npz").exists():
        with np.load(SHARED / f"{fmt}.npz", allow_pickle=False) as arrays:
            for name in (key.removeprefix("x_") for key in arrays if key.startswith("x_")):
                imatrix = arrays.get(f"imatrix_{name}")
                cases.append((name, arrays[f"x_{name}"], imatrix, arrays[f"q_{name}"]))
    return cases


@pytest.mark.parametrize("fmt", FORMATS)
def test_bytes_of_the_vectors(path: Path, fmt: str) -> None:
    for name, x, imatrix, blocks in encode_cases(fmt):
        actual = path.encode(x, fmt, weights_for(fmt, imatrix, x.shape[1]))
        assert np.array_equal(actual, blocks), name


@pytest.mark.parametrize("fmt", [name for name in FORMATS if name != "q2_0"])  # which that library lacks
def test_bytes_are_those_of_ggml(fmt: str) -> None:
    f = FORMATS[fmt]
    for n, k in ((5, f.elements), (3, 3 * f.elements), (9, 2304), (2, 4096)):
        for imatrix_name, imatrix in encode_inputs.importance(k).items():
            if imatrix is None and f.needs_imatrix:
                continue
            for name, x in encode_inputs.rows(n, k).items():
                if fmt in GRIDS and name == "large":
                    continue
                blocks = expected(fmt, x, imatrix)
                for path in NATIVE:
                    actual = path.encode(x, fmt, imatrix)
                    assert np.array_equal(actual, blocks), (path, name, imatrix_name, n, k)


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_path_gives_the_same_bytes(path: Path, fmt: str) -> None:
    """Against plain C, which the other tests compare with ggml; more blocks than the widest tile, and an end to pad."""
    f = FORMATS[fmt]
    k = 3 * f.elements if f.elements == 256 else 288 // f.elements * f.elements or f.elements
    plain = next(p for p in PATHS if p.level == "scalar")
    for imatrix in (None, encode_inputs.importance(k)["random"]):
        weights = weights_for(fmt, imatrix, k)
        for name, x in encode_inputs.rows(7, k, seed=1).items():
            actual, scalar = path.encode(x, fmt, weights), plain.encode(x, fmt, weights)
            assert np.array_equal(actual, scalar) or (fmt in GRIDS and name == "large"), name


@pytest.mark.parametrize("fmt", [name for name in FORMATS if name != "q2_0"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_floats_give_the_bytes_of_ggml(fmt: str, data: st.DataObject) -> None:
    f = FORMATS[fmt]
    most = 2.0 ** (20 if fmt in GRIDS else 96)
    finite = st.floats(width=32, min_value=-most, max_value=most)
    few = data.draw(st.lists(finite, min_size=1, max_size=12))
    picks = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(0, len(few), (2, 2 * f.elements))
    x = np.array(few, np.float32)[picks]
    imatrix = encode_inputs.importance(x.shape[1])["random"] if data.draw(st.booleans()) else None
    imatrix = weights_for(fmt, imatrix, x.shape[1])
    blocks = expected(fmt, x, imatrix)
    for path in NATIVE:
        assert np.array_equal(path.encode(x, fmt, imatrix), blocks), path


@pytest.mark.parametrize("fmt", ["mxfp4", "nvfp4"])
def test_midpoints_and_their_neighbours(fmt: str) -> None:
    """The thresholds of E2M1 are met exactly, from both sides, under every scale."""
    f = FORMATS[fmt]
    group = f.group
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    below, above = np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(9))
    values = np.resize(np.concatenate([middles, below, above]), (3, group))
    values[:, 0] = 6
    scales = 2.0 ** np.arange(-8, 9) if fmt == "mxfp4" else np.arange(1, 16) / 8
    x = (values[None] * scales[:, None, None]).astype(np.float32).reshape(-1)
    x = np.resize(x, (len(x) // f.elements + 1, f.elements)) * np.resize([1, -1, 1], f.elements).astype(np.float32)
    for path in NATIVE:
        assert np.array_equal(path.encode(x, fmt), expected(fmt, x, None)), path


def test_mxfp4_scales_around_powers_of_two() -> None:
    """The reference's logarithm rounds the last floats below a power of two up to it."""
    bits = (np.arange(1, 256, dtype=np.int64)[:, None] << 23) + np.arange(-60, 3)
    bits = bits[bits < 0x7F800000]
    largest = bits.astype(np.uint32).reshape(-1).view(np.float32)
    x = np.zeros((len(largest), 32), np.float32)
    x[:, 5] = largest
    for path in NATIVE:
        assert np.array_equal(path.encode(x, "mxfp4"), expected("mxfp4", x, None)), path


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("weighted", [False, True])
def test_bytes_do_not_depend_on_threads(fmt: str, weighted: bool) -> None:
    f = FORMATS[fmt]
    k = 4 * 256 + (256 if f.elements == 256 else f.elements)
    x = encode_inputs.rows(131, k)["gauss"]
    imatrix = weights_for(fmt, encode_inputs.importance(k)["random"] if weighted else None, k)
    one = cbquant.quantize(x, fmt, imatrix, threads=1)
    for threads in (2, 7):
        assert np.array_equal(cbquant.quantize(x, fmt, imatrix, threads=threads), one)


# --- what goes in ---


@pytest.mark.parametrize("fmt", ["q8_0", "q4_k", "iq4_nl", "q5_1"])
def test_other_types_are_rounded_to_float32_once(fmt: str) -> None:
    x = encode_inputs.rows(9, 512)["gauss"]
    wide = x.astype(np.float64) * (1 + 2.0**-26)
    assert np.array_equal(cbquant.quantize(wide, fmt), cbquant.quantize(wide.astype(np.float32), fmt))
    for dtype in (np.float16, ml_dtypes.bfloat16):
        narrow = x.astype(dtype)
        assert np.array_equal(cbquant.quantize(narrow, fmt), cbquant.quantize(narrow.astype(np.float32), fmt))


@pytest.mark.parametrize("weighted", [False, True])
def test_strides_offsets_and_shapes_are_as_if_copied(weighted: bool) -> None:
    x = encode_inputs.rows(24, 256)["gauss"].reshape(2, 3, 4, 256)
    imatrix = encode_inputs.importance(256)["random"] if weighted else None
    for view in (x[:, ::2], x[..., ::-1], x.transpose(2, 0, 1, 3), np.asfortranarray(x), x[0, 0, 0], x[:, :0]):
        blocks = cbquant.quantize(view, "q4_k", imatrix)
        assert blocks.shape == (*view.shape[:-1], 144)
        assert np.array_equal(blocks, cbquant.quantize(np.ascontiguousarray(view), "q4_k", imatrix))
    raw = np.empty(x.nbytes + 3, np.uint8)
    unaligned = raw[3:].view(np.float32) if raw.ctypes.data % 4 == 0 else raw[1 : 1 + x.nbytes].view(np.float32)
    unaligned[:] = x.reshape(-1)
    assert not unaligned.flags.aligned
    assert np.array_equal(cbquant.quantize(unaligned, "q8_0"), cbquant.quantize(x.reshape(-1), "q8_0"))
    readonly = x.copy()
    readonly.flags.writeable = False
    assert np.array_equal(cbquant.quantize(readonly, "q8_0"), cbquant.quantize(x, "q8_0"))


def test_no_rows_and_no_columns() -> None:
    for fmt, f in FORMATS.items():
        assert cbquant.quantize(np.empty((0, f.elements), np.float32), fmt, "ones").shape == (0, f.bytes)
        assert cbquant.quantize(np.empty((3, 0), np.float32), fmt, "ones").shape == (3, 0)


@pytest.mark.parametrize("fmt", FORMATS)
def test_out_is_filled_and_returned(fmt: str) -> None:
    f = FORMATS[fmt]
    x = encode_inputs.rows(4, 2 * f.elements)["gauss"]
    raw = np.full(4 * 2 * f.bytes + 32, 0x5A, np.uint8)
    out = raw[16:-16].reshape(4, -1)
    assert cbquant.quantize(x, fmt, "ones", out=out) is out
    assert np.array_equal(out, cbquant.quantize(x, fmt, "ones"))
    assert (raw[:16] == 0x5A).all()
    assert (raw[-16:] == 0x5A).all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_zero_and_tiny_blocks_decode_to_finite_numbers(fmt: str) -> None:
    for size in (0, 1e-45, 1e-40, 1e-36):
        x = np.full((2, 2 * FORMATS[fmt].elements), size, np.float32)
        decoded = cbquant.dequant(cbquant.quantize(x, fmt, "ones"), fmt)
        assert np.isfinite(decoded).all()
        assert np.abs(decoded).max() < 1e-6


# --- NaN and infinity ---


@pytest.mark.parametrize("fmt", FORMATS)
def test_nan_and_infinity_are_found_before_anything_is_written(path: Path, fmt: str) -> None:
    f = FORMATS[fmt]
    x = encode_inputs.rows(5, 2 * f.elements)["gauss"]
    for bad, at in ((np.nan, (0, 0)), (np.inf, (3, f.elements + 1)), (-np.inf, (4, 2 * f.elements - 1))):
        broken = x.copy()
        broken[at] = bad
        broken[4, -1] = np.nan
        out = np.full((5, 2 * f.bytes), 0x5A, np.uint8)
        with pytest.raises(ValueError, match=rf"x: .* row {at[0]}, column {at[1]}$"):
            path.core.quantize(broken, "f32", fmt, out, *x.shape, np.ones(x.shape[1], np.float32), False, 1, path.level)
        assert (out == 0x5A).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_nan_of_other_types(dtype: Any) -> None:
    x = np.zeros((300, 512), dtype)
    x[255, 300] = np.nan
    x[256, 0] = np.inf
    for threads in (1, 2):
        with pytest.raises(ValueError, match="row 255, column 300"):
            cbquant.quantize(x, "q8_0", threads=threads)


def test_float64_beyond_float32_is_not_finite() -> None:
    x = np.zeros((2, 32))
    x[1, 7] = 1e39
    with pytest.raises(ValueError, match=r"as float32\) in row 1, column 7"):
        cbquant.quantize(x, "q8_0")


@pytest.mark.parametrize("fmt", FORMATS)
def test_allowed_nan_harms_nothing_else(path: Path, fmt: str) -> None:
    """Rows of their own are encoded as if the others were not there; memory around stays as it was."""
    f = FORMATS[fmt]
    x = encode_inputs.rows(40, 2 * f.elements)["gauss"]
    broken = x.copy()
    broken[3, :: f.elements - 1] = np.nan
    broken[11, 5] = np.inf
    broken[12] = -np.inf
    broken[13] = np.nan
    imatrix = encode_inputs.importance(x.shape[1])["random"]
    actual = path.encode(broken, fmt, imatrix, allow_nonfinite=True)
    clean = [i for i in range(40) if i not in (3, 11, 12, 13)]
    assert np.array_equal(actual[clean], path.encode(x, fmt, imatrix)[clean])


# --- refusals ---


def check_refused(match: str, error: type[Exception] = ValueError, /, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=match):
        cbquant.quantize(*args, **kwargs)


def test_refused_arguments() -> None:
    x = np.zeros((2, 256), np.float32)
    check_refused("x: k=128 is not a multiple of 256 \\(q4_k\\)", ValueError, x[:, :128], "q4_k")
    check_refused("fmt: unknown format 'q4_x'; did you mean", ValueError, x, "q4_x")
    check_refused("fmt: f16 is a plain type", ValueError, x, "f16")
    check_refused("x: expected float32, float64, float16, bfloat16, got int64", TypeError, x.astype(np.int64), "q8_0")
    check_refused("x: expected native byte order, got dtype >f4", ValueError, x.astype(">f4"), "q8_0")
    check_refused("x: expected at least one dimension", ValueError, np.float32(1), "q8_0")
    check_refused("method: expected one of reference, mse, got 'best'", ValueError, x, "q8_0", method="best")
    check_refused("method: expected one of reference, mse, got int", TypeError, x, "q8_0", method=1)
    check_refused("nonfinite: expected one of raise, allow, got 'skip'", ValueError, x, "q8_0", nonfinite="skip")
    check_refused("x: expected a plain array, got a masked one", TypeError, np.ma.masked_array(x), "q8_0")
    check_refused("threads: expected 1 to", ValueError, x, "q8_0", threads=0)


@pytest.mark.parametrize("fmt", [name for name, f in FORMATS.items() if f.needs_imatrix])
def test_missing_imatrix(fmt: str) -> None:
    x = encode_inputs.rows(1, 256)["gauss"]
    check_refused(f'imatrix: {fmt} needs an importance matrix; .*imatrix="ones"', ValueError, x, fmt)
    ones = np.ones(256, np.float32)
    assert np.array_equal(cbquant.quantize(x, fmt, "ones"), cbquant.quantize(x, fmt, ones))


def test_refused_imatrix() -> None:
    x = np.zeros((2, 64), np.float32)
    ones = np.ones(64, np.float32)
    for bad in (-1.0, np.nan, np.inf):
        ones[40] = bad
        check_refused("imatrix: expected finite numbers from 0 up, got .* at column 40", ValueError, x, "q4_0", ones)
    check_refused("imatrix: expected shape \\(64,\\), got \\(32,\\)", ValueError, x, "q4_0", ones[:32])
    check_refused("imatrix: expected shape \\(64,\\), got \\(2, 64\\)", ValueError, x, "q4_0", np.ones((2, 64)))
    check_refused("imatrix: expected one of ones, got 'twos'", ValueError, x, "q4_0", "twos")
    check_refused("imatrix: expected float32, got complex128", TypeError, x, "q4_0", np.ones(64, complex))


def test_an_imatrix_of_zeros_over_a_block_warns_and_follows_the_reference() -> None:
    x = encode_inputs.rows(2, 64)["gauss"]
    imatrix = np.ones(64, np.float32)
    imatrix[32:] = 0
    with pytest.warns(UserWarning, match="all weights are zero over block 1"):
        blocks = cbquant.quantize(x, "q4_0", imatrix)
    assert np.array_equal(blocks, expected("q4_0", x, imatrix))
    imatrix[40] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cbquant.quantize(x, "q4_0", imatrix)


def test_refused_out() -> None:
    x = np.zeros((2, 64), np.float32)
    out = np.empty((2, 68), np.uint8)
    check_refused("out: expected shape \\(2, 68\\), got \\(68, 2\\)", ValueError, x, "q8_0", out=out.reshape(68, 2))
    check_refused("out: expected dtype uint8, got int8", TypeError, x, "q8_0", out=out.view(np.int8))
    check_refused("out: expected an ndarray, got bytearray", TypeError, x, "q8_0", out=bytearray(136))
    check_refused("C-contiguous", ValueError, x, "q8_0", out=np.empty((2, 136), np.uint8)[:, ::2])
    readonly = np.empty((2, 68), np.uint8)
    readonly.flags.writeable = False
    check_refused("writable", ValueError, x, "q8_0", out=readonly)
    check_refused("overlaps", ValueError, x, "q8_0", out=x.view(np.uint8).reshape(-1)[:136].reshape(2, 68))


# --- tables that are made at the first call ---

FIRST_CALLS = """
import threading
import numpy as np
import cbquant

x = np.random.default_rng(0).standard_normal((2, 256), np.float32)
barrier, results = threading.Barrier(8), [None] * 8
quantize = cbquant.quantize

def first_call(number):
    barrier.wait()
    results[number] = quantize(x, FORMAT, "ones").tobytes()

callers = [threading.Thread(target=first_call, args=(number,)) for number in range(8)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
assert len(set(results)) == 1
print(results[0].hex())
"""


@pytest.mark.parametrize("fmt", ["iq1_s", "iq2_xs", "iq3_s"])
def test_eight_threads_may_come_first(fmt: str) -> None:
    command = [sys.executable, "-c", FIRST_CALLS.replace("FORMAT", repr(fmt))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    x = np.random.default_rng(0).standard_normal((2, 256), np.float32)
    assert done.stdout.strip() == cbquant.quantize(x, fmt, "ones").tobytes().hex()
