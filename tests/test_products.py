"""Products as Python sees them: shapes, dtypes, outputs, and what is said about bad arguments."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cbquant
from tests.test_matmul import activations, weights

K, N = 512, 6
RAW, W = weights("q4_k", N, 2)
T = cbquant.QuantTensor(RAW, "q4_k", (N, K))
X = activations(3, K)
Q8 = bytes.fromhex("003c") + bytes(range(32))  # one block of q8_0


def raises(error: type[Exception], text: str):  # type: ignore[no-untyped-def]
    return pytest.raises(error, match=re.escape(text))


# ---- matmul ----


@pytest.mark.parametrize("w", [(T,), (RAW, "q4_k"), (RAW.tobytes(), "q4_k", (N, K)), (RAW.reshape(-1), "Q4_K", [N, K])])
def test_weights_are_a_tensor_or_blocks(w: tuple[Any, ...]) -> None:
    assert np.array_equal(cbquant.matmul(X, *w), cbquant.matmul(X, T))


def test_ways_to_write_a_product() -> None:
    expected = cbquant.matmul(X, T)
    assert np.array_equal(X @ T.T, expected)
    assert np.array_equal(np.matmul(X, T.T), expected)
    assert np.array_equal((T @ X.T).T, expected)
    assert np.array_equal(T @ X[0], cbquant.matmul(X[0], T))
    out = np.empty((3, N), np.float32)
    assert np.matmul(X, T.T, out=out) is out
    assert np.array_equal(out, expected)
    assert T.T.T is T
    assert T.T.shape == (K, N)
    assert repr(T.T) == f"{T!r}.T"


def test_a_transposed_tensor_only_multiplies() -> None:
    for wrong in (
        lambda: T.T + 1,
        lambda: np.add(X, T.T),
        lambda: np.matmul(T.T, X),
        lambda: np.matmul(X, T.T, axes=[]),
    ):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize("shape", [(K,), (1, K), (0, K), (2, 3, K), (2, 0, 3, K)])
def test_shapes_of_x(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    y = cbquant.matmul(x, T)
    assert y.shape == (*shape[:-1], N)
    assert np.allclose(y, x @ W.T.astype(np.float32), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_empty_weights(precision: str) -> None:
    assert cbquant.matmul(X, b"", "q4_k", (0, K), precision).shape == (3, 0)
    assert not cbquant.matmul(X[:, :0], b"", "q4_k", (5, 0), precision).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("precision", ["f32", "bf16", "q8", "q16"])
def test_the_result_has_the_dtype_of_x_or_of_out(dtype: Any, precision: str) -> None:
    x = X.astype(dtype)
    exact = cbquant.matmul(x.astype(np.float32), T, precision=precision)
    y = cbquant.matmul(x, T, precision=precision)
    assert y.dtype == dtype
    assert np.array_equal(y, exact.astype(dtype))
    for out_dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        out = np.empty(y.shape, out_dtype)
        assert cbquant.matmul(x, T, precision=precision, out=out) is out
        assert np.array_equal(out, exact.astype(out_dtype))
    bits = np.empty(y.shape, np.uint16)
    cbquant.matmul(x, T, precision=precision, out=bits)
    assert np.array_equal(bits.view(ml_dtypes.bfloat16), exact.astype(ml_dtypes.bfloat16))


def test_float16_results_overflow_to_infinity() -> None:
    x = np.full((5, 32), 60000, np.float16)
    for m in (1, 5):
        assert np.isposinf(cbquant.matmul(x[:m], Q8, "q8_0", (1, 32))).all()


def test_strides_of_x() -> None:
    wide = activations(6, 2 * K)
    for x in (wide[::2, ::2], wide[::-1, K - 1 :: -1], np.asfortranarray(wide[:, :K]), wide[1:3, 5 : 5 + K]):
        assert np.array_equal(cbquant.matmul(x, T), cbquant.matmul(x.copy(), T))
    whole = cbquant.QuantTensor(np.concatenate([RAW, RAW[::-1]]), "q4_k", (2 * N, K))
    assert np.array_equal(X @ whole[::2].T, (X @ whole.T)[:, ::2])


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            TypeError,
            "x: expected float32, float16 or bfloat16, got dtype float64",
            lambda: cbquant.matmul(X.astype(float), T),
        ),
        (
            TypeError,
            "x: expected float32, float16 or bfloat16, got dtype uint16",
            lambda: cbquant.matmul(X.astype("u2"), T),
        ),
        (
            ValueError,
            "x: expected native byte order, got dtype >f4",
            lambda: cbquant.matmul(X.astype(">f4"), T),
        ),
        (ValueError, "x: expected at least one dimension, got a scalar", lambda: cbquant.matmul(np.float32(1), T)),
        (ValueError, "x: expected a last dimension of 512 (K of the weights)", lambda: cbquant.matmul(X[:, :256], T)),
        (ValueError, "w: expected 2 dimensions (N, K), got shape (512,)", lambda: cbquant.matmul(X, T[0])),
        (TypeError, "fmt: expected the name of a format", lambda: cbquant.matmul(X, RAW)),
        (TypeError, "fmt, shape: a QuantTensor has its own", lambda: cbquant.matmul(X, T, "q4_k")),
        (
            ValueError,
            "shape: expected (N, K), for w of shape (1728,)",
            lambda: cbquant.matmul(X, RAW.reshape(-1), "q4_k"),
        ),
        (ValueError, "w: expected 1440 bytes for shape (5, 512)", lambda: cbquant.matmul(X, RAW, "q4_k", (5, K))),
        (ValueError, "fmt: unknown format 'q4_q'", lambda: cbquant.matmul(X, RAW, "q4_q")),
        (
            ValueError,
            "precision: expected one of f32, bf16, q8, q16, got 'f64'",
            lambda: cbquant.matmul(X, T, precision="f64"),
        ),
        (
            ValueError,
            "precision: f16 has no integer codes",
            lambda: cbquant.matmul(X, X.astype("f2"), "f16", (3, K), "q8"),
        ),
        (TypeError, "out: expected an ndarray", lambda: cbquant.matmul(X, T, out=[])),
        (
            ValueError,
            "out: expected shape (3, 6), got (6, 3)",
            lambda: cbquant.matmul(X, T, out=np.empty((N, 3), "f4")),
        ),
        (
            TypeError,
            "out: expected dtype float32, float16, bfloat16",
            lambda: cbquant.matmul(X, T, out=np.empty((3, N))),
        ),
        (
            ValueError,
            "out: expected memory of its own",
            lambda: cbquant.matmul(X, T, out=X.reshape(-1)[: 3 * N].reshape(3, N)),
        ),
        (ValueError, "threads: expected 1 to", lambda: cbquant.matmul(X, T, threads=0)),
        (
            ValueError,
            "t @ y: expected t [N, K] and y [K] or [K, M], got shapes (6, 512) and (2, 512, 3)",
            lambda: T @ np.zeros((2, K, 3), np.float32),
        ),
    ],
)
def test_what_is_wrong_is_said(error: type[Exception], text: str, call: Any) -> None:
    with raises(error, text):
        call()


def test_nothing_is_written_where_x_is_not_finite() -> None:
    x = X.copy()
    x[2, 7] = np.nan
    out = np.full((3, N), 7, np.float32)
    with raises(ValueError, "x: expected finite numbers (precision q8 or q16), got NaN or infinity"):
        cbquant.matmul(x, T, precision="q8", out=out)
    assert (out == 7).all()


# ---- moe_matmul ----

E = 5
EXPERTS = cbquant.QuantTensor(weights("q4_k", E * N, 2)[0], "q4_k", (E, N, K))
IDS = np.array([[0, 3], [3, -1], [3, 0], [-1, -1], [4, 4]])
TOKENS = activations(5, K)


def one_by_one(precision: str = "f32") -> np.ndarray[Any, Any]:
    expected = np.zeros((*IDS.shape, N), np.float32)
    for (t, s), e in np.ndenumerate(IDS):
        if e >= 0:
            expected[t, s] = cbquant.matmul(TOKENS[t], EXPERTS[e], precision=precision)
    return expected


@pytest.mark.parametrize("precision", ["f32", "bf16", "q8", "q16"])
def test_each_token_with_its_experts(precision: str) -> None:
    y = cbquant.moe_matmul(TOKENS, EXPERTS, IDS, precision=precision)
    assert np.allclose(y, one_by_one(precision), rtol=1e-5, atol=1e-4)
    assert not y[3].any()
    assert not y[1, 1].any()


def test_weighted_experts() -> None:
    factors = np.random.default_rng(1).random(IDS.shape)
    factors[1, 1] = np.nan  # of no expert: not looked at
    expected = (np.nan_to_num(factors)[..., None] * one_by_one()).sum(axis=1)
    for out in (None, np.empty((5, N), np.float32), np.empty((5, N), np.float16)):
        y = cbquant.moe_matmul(TOKENS, EXPERTS, IDS, factors, out=out)
        assert out is None or y is out
        assert np.allclose(y, expected, rtol=2e-3, atol=2e-2)


def test_experts_that_nobody_chose_are_not_touched() -> None:
    raw = EXPERTS.raw.copy()
    raw[1:3] = 0xFF  # NaN scales
    y = cbquant.moe_matmul(TOKENS, raw, IDS, fmt="q4_k")
    assert np.isfinite(y).all()
    assert np.array_equal(y, cbquant.moe_matmul(TOKENS, EXPERTS, IDS))


def test_moe_of_nothing() -> None:
    assert cbquant.moe_matmul(TOKENS[:0], EXPERTS, IDS[:0]).shape == (0, 2, N)
    assert cbquant.moe_matmul(TOKENS, EXPERTS, IDS[:, :0]).shape == (5, 0, N)
    assert not cbquant.moe_matmul(TOKENS, EXPERTS, np.full((5, 2), -1), np.ones((5, 2))).any()


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (TypeError, "ids: expected integers, got dtype float64", (TOKENS, EXPERTS, IDS.astype(float))),
        (ValueError, "ids: expected [T, k] with T = 5 rows", (TOKENS, EXPERTS, IDS[:4])),
        (ValueError, "ids: expected -1 to 4, got 5", (TOKENS, EXPERTS, IDS + 1)),
        (ValueError, "ids: expected -1 to 4, got -2", (TOKENS, EXPERTS, np.minimum(IDS - 1, 3))),
        (ValueError, "weights: expected the shape of ids, (5, 2), got (5,)", (TOKENS, EXPERTS, IDS, np.ones(5))),
        (TypeError, "weights: expected real numbers", (TOKENS, EXPERTS, IDS, np.full((5, 2), "a"))),
        (ValueError, "x: expected [T, 512] (K of the experts)", (TOKENS[0], EXPERTS, IDS)),
        (ValueError, "experts: expected 3 dimensions (E, N, K)", (TOKENS, T, IDS)),
    ],
)
def test_what_is_wrong_with_experts_is_said(error: type[Exception], text: str, arguments: tuple[Any, ...]) -> None:
    with raises(error, text):
        cbquant.moe_matmul(*arguments)


def test_no_experts() -> None:
    ids = np.full((5, 1), -1)
    assert not cbquant.moe_matmul(TOKENS, b"", ids, fmt="q4_k", shape=(0, N, K)).any()


def test_weights_of_no_expert_are_not_looked_at_and_large_ones_overflow_in_silence() -> None:
    factors = np.ones(IDS.shape)
    factors[IDS < 0] = np.inf
    assert np.isfinite(cbquant.moe_matmul(TOKENS, EXPERTS, IDS, factors)).all()
    assert not np.isfinite(cbquant.moe_matmul(TOKENS, EXPERTS, IDS, np.full(IDS.shape, 1e300))[0]).any()


def test_a_transpose_is_no_array_and_no_argument() -> None:
    with raises(TypeError, "t.T of a QuantTensor only multiplies"):
        np.asarray(T.T)
    with raises(TypeError, "w: expected a QuantTensor, got the transpose of one"):
        cbquant.matmul(X, T.T)
    assert T.T.ndim == 2


def test_many_threads_of_few_pieces_take_little_memory() -> None:
    x = np.ones((100_000, 32), np.float16)
    for precision in ("f32", "q8"):  # a slot for each of 512 threads would be gigabytes
        y = cbquant.matmul(x, Q8 * 64, "q8_0", (64, 32), precision, threads=512)
        assert (y == y[0, 0]).all()
