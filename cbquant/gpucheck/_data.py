"""Blocks and numbers to check and to measure with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant._buffer import PLAIN_DTYPES
from cbquant._formats import Format

Bytes = NDArray[np.uint8]
#: Rows of other sizes are encoded anew: products of float16 would leave its range.
SMALLEST, LARGEST = 1e-3, 100.0


def random_blocks(fmt: Format, n: int, seed: int = 0) -> Bytes:
    """[n, bytes]: every bit pattern is a legal block, infinite and NaN scales among them."""
    rng = np.random.default_rng([seed, fmt.tag])
    return rng.integers(0, 256, (n, fmt.bytes), np.uint8)


def finite_rows(fmt: Format, rows: int, k: int, seed: int = 0) -> Bytes:
    """[rows, row bytes]: random bytes where they decode to numbers of moderate size, else encoded Gaussian ones."""
    blocks = random_blocks(fmt, rows * k // fmt.elements, seed).reshape(rows, -1)
    with np.errstate(invalid="ignore"):
        largest = np.abs(cbquant.dequant(blocks, fmt.name)).max(1)
    bad = ~((largest > SMALLEST) & (largest < LARGEST))
    if bad.any():
        x = np.random.default_rng(seed).standard_normal((int(bad.sum()), k)).astype(np.float32)
        blocks[bad] = encoded(x, fmt)
    return blocks


def encoded(x: NDArray[np.float32], fmt: Format) -> Bytes:
    """[rows, row bytes]: of formats of blocks and of plain floats."""
    if fmt.kind == "plain":
        return to_bf16(x).view(np.uint8) if fmt.name == "bf16" else x.astype(PLAIN_DTYPES[fmt.name]).view(np.uint8)
    return cbquant.quantize(x, fmt.name, imatrix=np.ones(x.shape[-1], np.float32) if fmt.needs_imatrix else None)


def row_that_is_no_number(fmt: Format, k: int) -> Bytes | None:
    """[row bytes]: one with an infinity or a NaN in it; None where the format has no such thing."""
    for seed in range(512):
        row = random_blocks(fmt, k // fmt.elements, 1000 + seed).reshape(-1)
        if not np.isfinite(cbquant.dequant(row, fmt.name)).all():
            return row
    return None


def repeated(rows: Bytes, n: int) -> Bytes:
    """n rows, those of `rows` again and again."""
    return np.tile(rows, (-(-n // len(rows)), 1))[:n]


def to_bf16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """bfloat16's bits, rounded to nearest even; x is finite."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded: NDArray[np.uint32] = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return rounded.astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values of bfloat16's bits."""
    wide: NDArray[np.uint32] = bits.astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def rounded_weights(blocks: Bytes, fmt: Format) -> NDArray[np.float64]:
    """[.., k]: what products multiply with, bfloat16 of the decoded values."""
    elements = blocks.shape[-1] // fmt.bytes * fmt.elements
    bits = np.empty((*blocks.shape[:-1], elements), np.uint16)
    cbquant.dequant(blocks, fmt.name, dtype="bfloat16", out=bits)
    with np.errstate(invalid="ignore"):
        return from_bf16(bits).astype(np.float64)
