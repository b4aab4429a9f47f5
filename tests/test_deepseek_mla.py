"""mla_decode on every path against the reference, and against attention with keys that are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cbquant.deepseek import mla_decode, sdpa_decode_sink
from cbquant.reference import deepseek as reference
from tests.attention_inputs import ATTENTION, DTYPES, EXACT_INPUTS, bits, drawn, error, same_bits
from tests.paths import PATHS, Path


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def operands(heads: int, d: int, width: int, rope: int, n: int, dtype: str = "float32") -> tuple[NDArray[Any], ...]:
    """Up-projections small enough that the logits are about as large as those of a model."""
    shapes = [(heads, d), (heads, rope), (heads, d, width), (n, width), (n, rope)]
    q_nope, q_rope, w_uk, ckv, k_rope = (drawn(shape, "float32", seed) for seed, shape in enumerate(shapes))
    w_uk *= np.float32(max(width, 1) ** -0.5)
    return tuple(x.astype(DTYPES[dtype]) for x in (q_nope, q_rope, w_uk, ckv, k_rope))


def decode(path: Path, arrays: tuple[NDArray[Any], ...], threads: int = 1) -> NDArray[np.float32]:
    q_nope, q_rope, w_uk = arrays[:3]
    out = np.full((len(q_nope), w_uk.shape[2]), np.nan, np.float32)
    scale = (q_nope.shape[1] + q_rope.shape[1]) ** -0.5
    path.core.mla(*(bits(x) for x in arrays), out, scale, threads, path.level)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 32, 128, 64, 300), (1, 5, 7, 3, 70), (33, 128, 64, 64, 65), (7, 65, 70, 0, 1)])
def test_every_dtype(path: Path, shape: tuple[int, ...], dtype: str) -> None:
    arrays = operands(*shape, dtype)
    assert error(decode(path, arrays), reference.mla_decode(*arrays)) <= EXACT_INPUTS


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_size_of_a_model(dtype: str) -> None:
    arrays = operands(64, 128, 512, 64, 9000, dtype)
    actual = mla_decode(*arrays)
    assert actual.dtype == arrays[0].dtype
    assert error(actual, reference.mla_decode(*arrays)) <= ATTENTION[dtype]


def test_keys_that_are_written_out_give_the_same() -> None:
    """Without absorption: keys [n, H, d + 64], of which the last 64 columns are those of all heads."""
    q_nope, q_rope, w_uk, ckv, k_rope = operands(8, 32, 128, 64, 500)
    keys = np.einsum("hdr,nr->hnd", w_uk.astype(np.float64), ckv.astype(np.float64)).astype(np.float32)
    keys = np.concatenate([keys, np.broadcast_to(k_rope, (8, 500, 64))], axis=2)
    values = np.broadcast_to(ckv, (8, 500, 128))
    plain = sdpa_decode_sink(np.concatenate([q_nope, q_rope], axis=1), keys, values, None)
    assert error(mla_decode(q_nope, q_rope, w_uk, ckv, k_rope), plain.astype(np.float64)) <= EXACT_INPUTS


def test_threads_change_no_bit(path: Path) -> None:
    arrays = operands(40, 64, 128, 64, 1500, "bfloat16")
    one = decode(path, arrays)
    for threads in (2, 7):
        assert same_bits(decode(path, arrays, threads), one)


@pytest.mark.parametrize("n", [0, 1, 100])
@pytest.mark.parametrize("heads", [1, 30])
def test_widths_of_zero(path: Path, heads: int, n: int) -> None:
    for widths in ((0, 0, 0), (0, 0, 4), (0, 8, 0), (3, 0, 0), (0, 8, 4), (3, 0, 4), (3, 8, 0)):
        arrays = operands(heads, *widths, n)
        out = np.full((heads, widths[1]), np.nan, np.float32)
        path.core.mla(*arrays, out, 0.5, 2, path.level)
        assert error(out, reference.mla_decode(*arrays, 0.5)) <= EXACT_INPUTS


def test_an_empty_cache_is_zeros(path: Path) -> None:
    assert not decode(path, operands(3, 8, 16, 8, 0)).any()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_shape_stride_and_dtype(data: st.DataObject) -> None:
    heads, d, width, rope, n = (data.draw(st.integers(1, most)) for most in (12, 70, 140, 70, 150))
    arrays = [x.astype(DTYPES[data.draw(st.sampled_from([*DTYPES]))]) for x in operands(heads, d, width, rope, n)]
    arrays[2] = np.ascontiguousarray(arrays[2].transpose(1, 0, 2)).transpose(1, 0, 2)
    arrays[3] = np.concatenate([arrays[3], arrays[3]], axis=1)[:, 1 : width + 1][::-1]
    arrays[4] = np.repeat(arrays[4], 2, axis=0)[::2]
    out = np.zeros((heads, width), np.float32)
    assert mla_decode(*arrays, 0.1, out=out, threads=data.draw(st.sampled_from([1, 2, 7]))) is out
    assert error(out, reference.mla_decode(*arrays, 0.1)) <= EXACT_INPUTS


def test_errors_name_the_argument() -> None:
    q_nope, q_rope, w_uk, ckv, k_rope = operands(2, 3, 4, 5, 6)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: mla_decode(q_nope[:1], q_rope, w_uk, ckv, k_rope), ValueError, "q_rope: expected .* H = 1"),
        (lambda: mla_decode(q_nope, q_rope, w_uk[:, :2], ckv, k_rope), ValueError, "w_uk: expected .* d = 3"),
        (lambda: mla_decode(q_nope, q_rope, w_uk, ckv[:, :3], k_rope), ValueError, "ckv: expected .* R = 4"),
        (lambda: mla_decode(q_nope, q_rope, w_uk, ckv, k_rope[:5]), ValueError, "k_rope: expected .* n = 6"),
        (lambda: mla_decode(q_nope, q_rope, w_uk, ckv, k_rope[:, :4]), ValueError, "k_rope: expected .* rope = 5"),
        (lambda: mla_decode(q_nope.astype(int), q_rope, w_uk, ckv, k_rope), TypeError, "q_nope: expected float32"),
        (lambda: mla_decode(q_nope, q_rope, w_uk, ckv, k_rope, np.inf), ValueError, "scale: expected a finite number"),
        (lambda: mla_decode(q_nope, q_rope, w_uk, ckv, k_rope, out=ckv[:2]), ValueError, "out: .* it overlaps ckv"),
    ]
    for call, kind, text in cases:
        with pytest.raises(kind, match=text):
            call()
