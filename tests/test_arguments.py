"""What every function says of arrays, lists and shapes that are not what they seem."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cbquant
from cbquant import deepseek, e2m1, planes, reference

BLOCK = bytes.fromhex("003c") + bytes(range(32))  # q8_0: the scale 1.0, codes 0..31
BLOCKS = np.frombuffer(BLOCK * 2, np.uint8).reshape(2, 34)
W = cbquant.QuantTensor(BLOCKS, "q8_0", (2, 32))
EXPERTS = cbquant.QuantTensor(BLOCKS, "q8_0", (1, 2, 32))
X = np.ones((1, 32), np.float32)
IDS = np.zeros((1, 1), np.int64)
RAGGED = [[1.0, 2.0], [3.0]]
IMATRIX = np.ones(32, np.float32)


def refuses(error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("buf", lambda a: cbquant.dequant(a(BLOCKS), "q8_0")),
        ("buf", lambda a: cbquant.validate(a(BLOCKS), "q8_0")),
        ("buf", lambda a: cbquant.QuantTensor(a(BLOCKS), "q8_0", (2, 32))),
        ("buf", lambda a: reference.dequant(a(BLOCKS), "q8_0")),
        ("out", lambda a: cbquant.dequant(BLOCKS, "q8_0", out=a(np.empty((2, 32), np.float32)))),
        ("out", lambda a: cbquant.quantize(X, "q8_0", out=a(np.empty((1, 34), np.uint8)))),
        ("x", lambda a: cbquant.quantize(a(X), "q8_0")),
        ("imatrix", lambda a: cbquant.quantize(X, "q4_0", a(IMATRIX))),
        ("x", lambda a: cbquant.matmul(a(X), W)),
        ("w", lambda a: cbquant.matmul(X, a(BLOCKS), "q8_0")),
        ("x", lambda a: cbquant.moe_matmul(a(X), EXPERTS, IDS)),
        ("ids", lambda a: cbquant.moe_matmul(X, EXPERTS, a(IDS))),
        ("weights", lambda a: cbquant.moe_matmul(X, EXPERTS, IDS, a(np.ones((1, 1), np.float32)))),
        ("y", lambda a: W @ a(X[0])),
        ("index", lambda a: W.rows(a(np.array([0])))),
        ("w", lambda a: cbquant.unpermute_rope(a(np.ones((2, 2))), 1)),
        ("x", lambda a: e2m1.encode(a(X))),
        ("codes", lambda a: e2m1.decode(a(BLOCKS))),
        ("x", lambda a: planes.quantize(a(X), "mxfp4")),
        ("codes", lambda a: planes.dequant("fp8_e4m3", a(BLOCKS), 1.0)),
        ("scales", lambda a: planes.dequant("fp8_e4m3", BLOCKS, a(np.ones(2, np.float32)))),
        ("score", lambda a: deepseek.indexer_topk(a(X[0]), 1)),
    ],
)
def test_a_mask_is_not_left_behind(name: str, call: Callable[[Any], Any]) -> None:
    call(np.array)
    refuses(TypeError, f"{name}: expected a plain array, got a masked one", lambda: call(np.ma.array))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("dtype", lambda order: cbquant.dequant(BLOCKS, "q8_0", dtype=f"{order}f4")),
        ("dtype", lambda order: cbquant.dequant(BLOCKS, "q8_0", dtype=np.dtype(f"{order}f2"))),
        ("dtype", lambda order: W.dequant(dtype=f"{order}f4")),
        ("dtype", lambda order: reference.dequant(BLOCKS, "q8_0", dtype=f"{order}f4")),
        ("dtype", lambda order: e2m1.decode(BLOCKS, dtype=f"{order}f4")),
        ("dtype", lambda order: planes.dequant("fp8_e4m3", BLOCKS, 1.0, dtype=f"{order}f4")),
        ("out", lambda order: cbquant.dequant(BLOCKS, "q8_0", out=np.empty((2, 32), f"{order}f4"))),
        ("x", lambda order: cbquant.quantize(X.astype(f"{order}f4"), "q8_0")),
        ("imatrix", lambda order: cbquant.quantize(X, "q4_0", IMATRIX.astype(f"{order}f4"))),
        ("x", lambda order: cbquant.matmul(X.astype(f"{order}f4"), W)),
        ("ids", lambda order: cbquant.moe_matmul(X, EXPERTS, IDS.astype(f"{order}i8"))),
        ("weights", lambda order: cbquant.moe_matmul(X, EXPERTS, IDS, np.ones((1, 1), f"{order}f4"))),
        ("x", lambda order: e2m1.encode(X.astype(f"{order}f4"))),
        ("score", lambda order: deepseek.indexer_topk(X[0].astype(f"{order}f4"), 1)),
    ],
)
def test_numbers_in_the_other_byte_order(name: str, call: Callable[[str], Any]) -> None:
    call("=")
    refuses(ValueError, f"{name}: expected native byte order, got dtype >", lambda: call(">"))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("x", lambda: cbquant.quantize(RAGGED, "q8_0")),
        ("imatrix", lambda: cbquant.quantize(X, "q4_0", RAGGED)),
        ("x", lambda: cbquant.matmul(RAGGED, W)),
        ("ids", lambda: cbquant.moe_matmul(X, EXPERTS, RAGGED)),
        ("weights", lambda: cbquant.moe_matmul(X, EXPERTS, IDS, RAGGED)),
        ("index", lambda: W.rows(RAGGED)),
        ("x", lambda: e2m1.encode(RAGGED)),
        ("score", lambda: deepseek.indexer_topk(RAGGED, 1)),
    ],
)
def test_rows_of_different_lengths(name: str, call: Callable[[], Any]) -> None:
    refuses(ValueError, f"{name}: expected an array, got a list that is none: ", call)


@pytest.mark.parametrize(
    "shape",
    [True, np.True_, (True, 64), {64}, {64: 1}, b"\x02\x20", bytearray(b"\x02\x20"), "64", 64.0, (2.0, 32), [[2, 32]],
     np.array([[2, 32]]), np.array([True]), iter([64]), None],
)  # fmt: skip
def test_what_is_no_shape(shape: Any) -> None:
    text = f"shape: expected a whole number or a sequence of them, got {shape!r}"
    refuses(TypeError, text, lambda: cbquant.QuantTensor(BLOCKS, "q8_0", shape))
    if shape is not None:
        refuses(TypeError, text, lambda: cbquant.dequant(BLOCKS, "q8_0", shape=shape))
        refuses(TypeError, text, lambda: reference.dequant(BLOCKS, "q8_0", shape=shape))


@pytest.mark.parametrize(
    "shape", [64, np.int32(64), np.array(64), (64,), [2, 32], range(64, 65), np.array([2, 32]), (np.uint8(2), 32)]
)
def test_what_is_one(shape: Any) -> None:
    expected = np.arange(64, dtype=np.float32) % 32
    for dequant in (cbquant.dequant, reference.dequant):
        assert np.array_equal(dequant(BLOCKS, "q8_0", shape=shape).reshape(-1), expected)


def test_results_larger_than_any_array() -> None:
    x, ids = np.ones((16, 0), np.float32), np.zeros((16, 1), np.int64)
    text = f"shape: the result would have shape (16, {2**59}), which is larger than any array can be"
    refuses(ValueError, text, lambda: cbquant.matmul(x, b"", "q8_0", (2**59, 0)))
    refuses(
        ValueError,
        text.replace("16, ", "16, 1, "),
        lambda: cbquant.moe_matmul(x, b"", ids, fmt="q8_0", shape=(1, 2**59, 0)),
    )


def test_an_empty_path_is_not_the_current_folder() -> None:
    refuses(ValueError, "path: expected a path, got an empty string", lambda: cbquant.open(""))
    refuses(TypeError, "path: expected a path, str or os.PathLike, got int", lambda: cbquant.open(3))  # type: ignore[arg-type]
