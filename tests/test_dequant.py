"""Decode, by bits: every set of kernels against the NumPy reference, the vectors and ggml, in every output type."""

from __future__ import annotations

import mmap
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from cbquant import reference, testing
from cbquant.testing import assert_bits_equal
from tests import oracles
from tests.paths import BLOCK_FORMATS, DTYPES, PATHS, Path, as_float, random_blocks

FORMATS = [f.name for f in cbquant.formats()]
BLOCKS = 300  # some of every remainder for the pieces that kernels work in


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dequant_equals_reference(path: Path, fmt: str, dtype: str) -> None:
    blocks = random_blocks(fmt, BLOCKS)
    expected = reference.dequant(blocks, fmt, dtype=dtype)
    actual = path.decode(blocks, fmt, dtype).view(expected.dtype)
    assert_bits_equal(as_float(actual), as_float(expected), fmt=fmt, err_msg=f"{path} {dtype}")


@pytest.mark.parametrize("fmt", testing.names())
def test_dequant_equals_vectors(path: Path, fmt: str) -> None:
    for case in oracles.full_vectors(fmt):
        actual = path.decode(case.blocks.ravel(), fmt).view(np.float32).reshape(case.f32.shape)
        assert_bits_equal(actual, case.f32, fmt=fmt, err_msg=f"{path} {case.name}")


@pytest.mark.parametrize("fmt", FORMATS)
def test_dequant_does_not_depend_on_alignment_or_length(path: Path, fmt: str) -> None:
    size = cbquant._formats.get(fmt).bytes
    blocks = random_blocks(fmt, 37)
    whole = path.decode(blocks, fmt)
    per_block = whole.size // 37
    for offset in range(16):
        n = 1 + 2 * offset  # 1, 3, .. 31 blocks
        shifted = np.empty(n * size + offset, np.uint8)[offset:]
        shifted[:] = blocks[: n * size]
        assert np.array_equal(path.decode(shifted, fmt), whole[: n * per_block]), f"offset {offset}, {n} blocks"


@pytest.mark.parametrize("fmt", FORMATS)
def test_output_may_begin_anywhere(path: Path, fmt: str) -> None:
    """The C side promises nothing about y: NumPy arrays can be views of odd bytes."""
    f = cbquant._formats.get(fmt)
    n = 64
    blocks = random_blocks(fmt, n)
    expected = path.decode(blocks, fmt).view(np.uint8)
    for offset in (1, 2, 3, 4, 8, 31):
        memory = np.full(4 * n * f.elements + 64, 0x77, np.uint8)
        out = memory[offset : offset + 4 * n * f.elements]
        path.core.dequant(blocks, fmt, out, "float32", 1, path.level)
        assert np.array_equal(out, expected)
        assert (memory[:offset] == 0x77).all()
        assert (memory[offset + out.size :] == 0x77).all()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("threads", [2, 7])
def test_dequant_does_not_depend_on_threads(path: Path, fmt: str, threads: int) -> None:
    f = cbquant._formats.get(fmt)
    # Above the size that stays on one thread, with a last piece that is not whole.
    blocks = np.tile(random_blocks(fmt, 4 * 1024 * 32 // f.elements + 3), 5)
    assert blocks.size // f.bytes * f.elements > 2**19
    one = path.decode(blocks, fmt, "float16", 1)
    assert np.array_equal(path.decode(blocks, fmt, "float16", threads), one)


@pytest.mark.parametrize("dtype", DTYPES)
def test_streaming_stores_write_the_same(path: Path, dtype: str) -> None:
    for fmt in ("q4_0", "q6_k", "mxfp4", "f16"):
        blocks = random_blocks(fmt, 2311)
        expected = path.decode(blocks, fmt, dtype)
        for offset in (0, 1, 5):
            memory = np.full(expected.size + 32, 0x5A5A, expected.dtype)
            out = memory[offset : offset + expected.size]
            path.core.dequant(blocks, fmt, out, dtype, 1, path.level, 1)
            assert np.array_equal(out, expected)
            assert (memory[:offset] == 0x5A5A).all()
            assert (memory[offset + out.size :] == 0x5A5A).all()


def ggml_decode(fmt: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What ggml makes of uint8 ``[n, block bytes]``; the NumPy reference where it lacks the format (q2_0)."""
    f = cbquant._formats.get(fmt)
    ggml = oracles.Ggml()
    if not ggml.knows(f.tag):
        return reference.dequant(blocks, fmt)
    return oracles.expected_of_ggml(fmt, blocks, ggml.to_float(f.tag, blocks)).reshape(len(blocks), f.elements)


def rounded(values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    if dtype == "bfloat16":
        return reference.bfloat16_bits(values)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@pytest.mark.parametrize("fmt", [f.name for f in BLOCK_FORMATS])
@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(data=st.data())
def test_dequant_equals_ggml(fmt: str, data: st.DataObject) -> None:
    """Bytes, offset, size, stride, kernels and type of hypothesis's choice."""
    f = cbquant._formats.get(fmt)
    path = data.draw(st.sampled_from(PATHS), "kernels")
    dtype = data.draw(st.sampled_from(list(DTYPES)), "dtype")
    n = data.draw(st.integers(1, 12), "blocks")
    offset = data.draw(st.integers(0, 15), "offset")
    stride = data.draw(st.sampled_from([1, 2, 3, -1]), "stride")
    some = data.draw(st.binary(min_size=1, max_size=64), "bytes")
    noise = data.draw(st.integers(0, 2**32 - 1), "noise")
    content = np.resize(np.frombuffer(some, np.uint8), n * f.bytes)
    content = content ^ (
        np.random.default_rng(noise).integers(0, 256, n * f.bytes, dtype=np.uint8) & -(noise % 2) % 256
    )
    memory = np.zeros((n * f.bytes + offset) * abs(stride), np.uint8)
    view = memory[::stride][offset : offset + n * f.bytes]
    view[:] = content

    expected = rounded(ggml_decode(fmt, content.reshape(n, f.bytes)), dtype)
    public = cbquant.dequant(
        view, fmt, shape=(n, f.elements), dtype=dtype, out=np.empty(expected.shape, expected.dtype)
    )
    kernel = path.decode(np.ascontiguousarray(view), fmt, dtype).view(expected.dtype).reshape(expected.shape)
    assert_bits_equal(as_float(public), as_float(expected), fmt=fmt)
    assert_bits_equal(as_float(kernel), as_float(expected), fmt=fmt, err_msg=str(path))


def test_ggml_is_there_for_every_format_but_one() -> None:
    ggml = oracles.Ggml()
    assert ggml.available()
    assert [name for name in testing.names() if not ggml.knows(cbquant._formats.get(name).tag)] == ["q2_0"]


@pytest.mark.parametrize("fmt", FORMATS)
def test_nothing_is_read_or_written_outside(path: Path, fmt: str) -> None:
    """Blocks and output end where the mapped memory ends: one byte more would be a fault."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def guarded(size: int) -> tuple[mmap.mmap, NDArray[np.uint8]]:
        page = mmap.PAGESIZE
        pages = -(-size // page)
        area = mmap.mmap(-1, (pages + 1) * page)
        array = np.frombuffer(area, np.uint8)
        address = array.ctypes.data + pages * page
        assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(page), 0) == 0
        return area, array[pages * page - size : pages * page]

    f = cbquant._formats.get(fmt)
    for n in (1, 2, 3, 67):
        blocks = random_blocks(fmt, n)
        _, source = guarded(blocks.size)
        source[:] = blocks
        for dtype, size in (("float32", 4), ("float16", 2), ("bfloat16", 2)):
            _, out = guarded(n * f.elements * size)
            path.core.dequant(source, fmt, out, dtype, 1, path.level)
            assert np.array_equal(out, path.decode(blocks, fmt, dtype).view(np.uint8))


def test_output_types_round_as_they_should() -> None:
    d_max = np.float16(65504).tobytes()
    block = d_max + np.full(32, 127, np.int8).tobytes()
    assert cbquant.dequant(block, "q8_0")[0] == 8319008.0
    assert np.isinf(cbquant.dequant(block, "q8_0", dtype="float16")[0])
    assert np.isfinite(cbquant.dequant(block, "q8_0", dtype="bfloat16").astype(np.float32)[0])
    bits = np.array([0x3F818000, 0x7F800001, 0x00000001, 0x00018000, 0x7F7FFFFF], "<u4")
    out = np.empty(5, np.uint16)
    cbquant.dequant(bits.view(np.uint8), "f32", dtype="bfloat16", out=out)
    assert [hex(x) for x in out] == ["0x3f82", "0x7fc0", "0x0", "0x2", "0x7f80"]


def test_every_e8m0_scale(path: Path) -> None:
    """Code 2 is 1.0: the scale itself, 2^(e - 127), for all 256 bytes; 255 is NaN; magnitudes overflow at 254."""
    blocks = np.zeros((256, 17), np.uint8)
    blocks[:, 0] = np.arange(256)
    blocks[:, 1:] = 0x72  # low nibbles 2 (1.0), high nibbles 7 (6.0)
    values = path.decode(blocks.ravel(), "mxfp4").view(np.float32).reshape(256, 32)
    with np.errstate(over="ignore"):
        exact = np.ldexp(np.float64(1), np.arange(255) - 127)
        assert np.array_equal(values[:255, 0], exact.astype(np.float32))
        assert np.array_equal(values[:255, 16], (6 * exact).astype(np.float32))
    assert np.isnan(values[255]).all()
    assert values[0, 0].view(np.uint32) == 0x00400000


@pytest.mark.parametrize("fmt", ["mxfp4", "nvfp4"])
def test_minus_zero_stays(path: Path, fmt: str) -> None:
    f = cbquant._formats.get(fmt)
    block = np.full(f.bytes, 0x88, np.uint8)  # all codes 8
    scale_bytes = f.bytes - f.elements // 2
    block[:scale_bytes] = 0x38
    assert (path.decode(block, fmt) == 0x80000000).all()
