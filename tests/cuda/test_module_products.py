"""Products of cbquant.cuda on the shim: shapes, dtypes, arrays of other libraries, experts."""

from __future__ import annotations

import gc
import re
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cbquant
from cbquant import cuda
from tests.cuda.device_arrays import WithDLPack, WithInterface, make_library, upload
from tests.cuda.product_inputs import FACTORS, FLOATS, IDS, RNG, TOLERANCE, E, K, N, T, X, error, exact, tensor
from tests.cuda.shim import Shim

# ---- matmul ----


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(K,), (1, K), (2, 3, K), (9, K), (70, K)])
def test_numpy_in_gives_numpy_out(w: cuda.Weight, shape: tuple[int, ...], dtype: str, precision: str) -> None:
    x = RNG.standard_normal(shape).astype(FLOATS[dtype])
    y = cuda.matmul(x, w, precision=precision)
    assert (y.shape, y.dtype) == ((*shape[:-1], N), FLOATS[dtype])
    limit = TOLERANCE[precision] if dtype == "float32" else max(TOLERANCE[precision], 4e-3)
    assert error(y, exact(x, tensor())) < limit
    assert str(cuda.last_kernel()).startswith(f"matmul_q4_k_fragments_{precision}_")


@pytest.mark.parametrize("fmt", [f.name for f in cbquant.formats() if f.kind != "plain"])
def test_every_format_multiplies(native: Any, fmt: str) -> None:
    t = tensor(fmt, 5, cbquant._formats.get(fmt).elements * 2)
    x = RNG.standard_normal((2, t.shape[1])).astype(np.float32)
    for layout in {"blocks", cuda.load(t).layout}:
        w = cuda.load(t, layout=layout)
        for precision, limit in TOLERANCE.items():
            assert error(cuda.matmul(x, w, precision=precision), exact(x, t)) < limit
            assert ("_fragments_" in str(cuda.last_kernel())) is (layout == "fragments")


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("dtype", FLOATS)
def test_plain_types_multiply(native: Any, dtype: str, precision: str) -> None:
    """Rows of any length; weights count as bfloat16."""
    w = RNG.standard_normal((E, N, 77)).astype(FLOATS[dtype])
    x = RNG.standard_normal((T, 77)).astype(np.float32)
    expected = x.astype(np.float64) @ np.swapaxes(w.astype(ml_dtypes.bfloat16).astype(np.float64), -1, -2)
    assert error(cuda.matmul(x, cuda.load(w[2]), precision=precision), expected[2]) < TOLERANCE[precision]
    assert str(cuda.last_kernel()).endswith(f"_{precision}_8")
    y = cuda.moe_matmul(x, cuda.load(w), IDS, precision=precision)
    of_ids = np.where(IDS[..., None] < 0, 0, expected[IDS, np.arange(T)[:, None]])
    assert error(y, of_ids) < TOLERANCE[precision]


def test_strided_and_empty_x(w: cuda.Weight) -> None:
    wide = np.zeros((2 * T, 2 * K), np.float32)
    wide[::2, 1::2] = X
    assert np.array_equal(cuda.matmul(wide[::2, 1::2], w), cuda.matmul(X, w))
    assert cuda.matmul(X[:0], w).shape == (0, N)
    nothing = cuda.load(tensor("q4_k", 3, 0))
    cuda.reserve(nothing, 2)
    assert cuda.matmul(np.ones((2, 0), np.float32), nothing).tolist() == [[0.0] * 3] * 2
    assert cuda.matmul(X, cuda.load(tensor("q4_k", 0, K))).shape == (T, 0)


@pytest.mark.parametrize("out", [np.float32, np.float16, np.uint16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("where", ["host", "dlpack", "interface"])
def test_out_of_any_type(shim: Shim, w: cuda.Weight, out: Any, where: str) -> None:
    name = "bfloat16" if out == np.uint16 else np.dtype(out).name
    values = np.zeros((T, N), out) if where == "host" else upload(shim, np.zeros((T, N), out))
    given = {"host": lambda v: v, "dlpack": WithDLPack, "interface": WithInterface}[where](values)
    assert cuda.matmul(X, w, out=given) is given
    expected = cuda.matmul(X, w).astype(FLOATS[name])
    assert np.array_equal(values.view(expected.dtype), expected)


def test_rows_of_x_and_out_at_a_distance(shim: Shim, w: cuda.Weight) -> None:
    x, out = upload(shim, np.zeros((T, K + 24), np.float32)), upload(shim, np.full((T, 64), 7, np.float32))
    x[:, 8 : 8 + K] = X
    cuda.matmul(WithDLPack(x[:, 8 : 8 + K]), w, out=WithInterface(out[:, 3 : 3 + N]))
    assert np.array_equal(out[:, 3 : 3 + N], cuda.matmul(X, w))
    assert (out[:, :3] == 7).all()
    assert (out[:, 3 + N :] == 7).all()
    three = WithDLPack(x[:, 8 : 8 + K].reshape(T, 1, K)[::2])
    assert np.array_equal(cuda.matmul(three, w).to_numpy()[:, 0], cuda.matmul(X[::2], w))


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_dlpack_in_gives_a_device_array(shim: Shim, w: cuda.Weight, dtype: str, versioned: bool) -> None:
    x = WithDLPack(upload(shim, X.astype(FLOATS[dtype])), versioned=versioned)
    y = cuda.matmul(x, w)
    assert isinstance(y, cuda.DeviceArray)
    assert (y.shape, y.dtype) == ((T, N), dtype)
    assert np.array_equal(y.to_numpy(), cuda.matmul(X.astype(FLOATS[dtype]), w))
    assert x.streams == [1]  # the default stream, as DLPack calls it
    again = cuda.matmul(x, w, out=y)
    assert again is y


def test_a_device_array_is_an_input(native: Any) -> None:
    square = cuda.load(tensor("q4_k", K, K))
    x = cuda.load(X).dequant("float32")
    y = cuda.matmul(cuda.matmul(x, square), square)
    assert np.array_equal(y.to_numpy(), cuda.matmul(cuda.matmul(X, square), square))


def test_results_are_handed_to_the_library_of_x(shim: Shim, w: cuda.Weight, monkeypatch: pytest.MonkeyPatch) -> None:
    library = make_library("library_of_x")
    y = cuda.matmul(library.Tensor(upload(shim, X)), w)
    assert y == "an array of the library"
    array, capsule = library.taken.pop()
    assert np.array_equal(array.to_numpy(), cuda.matmul(X, w))
    assert '"dltensor_versioned"' in repr(capsule)


def test_a_library_that_allocates_is_asked_for_the_result(shim: Shim, w: cuda.Weight) -> None:
    class Tensor(WithDLPack):
        def new_empty(self, shape: tuple[int, ...]) -> Tensor:
            return Tensor(upload(shim, np.zeros(shape, self.array.dtype)))

    y = cuda.matmul(Tensor(upload(shim, X)), w)
    assert isinstance(y, Tensor)
    assert np.array_equal(y.array, cuda.matmul(X, w))


def test_what_x_must_be(shim: Shim, w: cuda.Weight) -> None:
    class OnHost:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        __dlpack__ = None

    device = upload(shim, np.zeros((T, 2 * K), np.float32))
    for x, kind, text in [
        (X[:, :-1], ValueError, f"x: expected a last dimension of {K} (K of the weights), got shape ({T}, {K - 1})"),
        (np.float32(1), TypeError, "x: expected an ndarray or an array on a GPU, got float32"),
        (X.astype(np.float64), TypeError, "x: expected float32, float16 or bfloat16, got dtype float64"),
        ([[1.0]], TypeError, "x: expected an ndarray or an array on a GPU, got list"),
        (OnHost(), TypeError, "x: expected an ndarray or an array on a GPU, got OnHost on the host"),
        (WithDLPack(device.view(np.int32)[:, :K]), TypeError, "x: expected float32, float16, bfloat16, got int32"),
        (WithInterface(device.view(np.uint16)[:, :K]), TypeError, "x: expected float32, float16, bfloat16, got uint16"),
        (WithDLPack(device[:, ::2]), ValueError, "x: expected neighbours on the last axis"),
        (WithDLPack(device.reshape(T, 2, K)[:5:2, :1]), ValueError, ""),
        (WithDLPack(device[:, :K].reshape(2, 3, K)[:, :2]), ValueError, "x: expected rows at one distance"),
        (WithInterface(device[:, :K], strides=(0, 4)), ValueError, "x: expected rows that do not overlap"),
        (WithInterface(device[:, :K], strides=(-8 * K, 4)), ValueError, "x: expected strides of whole elements from 0"),
        (WithDLPack(device[::-1, :K]), ValueError, "x: DLPack: expected strides from 0, got "),
        (
            WithDLPack(device[:, :K], device=3),
            ValueError,
            "x: expected an array on device 0, as the others, got",
        ),
        (WithInterface(X), ValueError, "of the host"),
    ]:
        if not text:
            cuda.matmul(x, w)  # axes of one element have no distance
            continue
        with pytest.raises(kind) as caught:
            cuda.matmul(x, w)
        assert text in str(caught.value)
        del caught
    gc.collect()


@pytest.mark.parametrize(
    ("part", "kind", "text"),
    [
        ({"data": 5}, TypeError, "expected data of (address, read-only), got 5"),
        ({"data": ("5", False)}, TypeError, "expected data of (address, read-only), got ('5', False)"),
        ({"data": (-1, False)}, ValueError, "expected an address, got -1"),
        ({"data": (2**64, False)}, ValueError, "expected an address, got 18446744073709551616"),
        ({"data": (2**64 - 64, False)}, ValueError, "expected an array in memory, got "),
        ({"data": (64, False)}, ValueError, "expected memory of a device, got 0x40"),
        ({"shape": (2, -1)}, ValueError, "expected a shape of numbers from 0, got (2, -1)"),
        ({"shape": 7}, ValueError, "expected a shape of numbers from 0, got 7"),
        ({"shape": (2**40, 2**40)}, ValueError, "expected an array in memory, got "),
        ({"strides": (4,)}, ValueError, "expected 2 strides, got (4,)"),
        ({"strides": (2048, 4.0)}, ValueError, "expected 2 strides, got (2048, 4.0)"),
        ({"strides": (6, 4)}, ValueError, "expected strides of whole elements from 0, got (6, 4) bytes"),
    ],
)
def test_what_is_wrong_in_an_interface_names_the_argument(
    shim: Shim, w: cuda.Weight, part: dict[str, Any], kind: type[Exception], text: str
) -> None:
    x = WithInterface(upload(shim, X), **part)
    for name, call in (("x", lambda: cuda.matmul(x, w)), ("b", lambda: cuda.deepseek.vector_add(X, x))):
        with pytest.raises(kind) as caught:
            call()
        assert re.match(f"{name}: (__cuda_array_interface__: |address: )?{re.escape(text)}", str(caught.value))
        del caught
    gc.collect()


def test_what_w_precision_and_out_must_be(shim: Shim, w: cuda.Weight, experts: cuda.Weight) -> None:
    x = WithDLPack(upload(shim, np.zeros((T, K), np.float32)))
    for call, kind, text in [
        (lambda: cuda.matmul(X, experts), ValueError, f"w: expected [N, K], got shape ({E}, {N}, {K})"),
        (lambda: cuda.matmul(X, tensor()), TypeError, "cbquant.cuda.load copies it to the GPU"),
        (lambda: cuda.matmul(X, cuda.load(np.ones((2, 3)))), ValueError, "w: there are no products with f64 on GPUs"),
        (lambda: cuda.matmul(X, w, precision="q8"), ValueError, "precision: expected one of bf16, f32, got 'q8'"),
        (lambda: cuda.matmul(X, w, out=np.zeros((T, N + 1), np.float32)), ValueError, "out: expected shape"),
        (lambda: cuda.matmul(x, w, out=WithDLPack(x.array[:, :N])), ValueError, "out: expected memory of its own"),
        (lambda: cuda.matmul(x, w, stream="s"), TypeError, "stream: expected None, a handle or a stream of torch"),
        (lambda: cuda.matmul(x, w, stream=-1), ValueError, "stream: expected a handle from 0, got -1"),
        (lambda: cuda.matmul(x, w, stream=True), TypeError, "stream: expected None, a handle"),
        (lambda: cuda.matmul(x, w, stream=SimpleNamespace(ptr=None)), TypeError, "stream: expected None, a handle"),
        (lambda: cuda.matmul(x, w, stream=SimpleNamespace(__cuda_stream__=(0,))), TypeError, "stream: expected None"),
        (lambda: cuda.matmul(x, w, stream=12345), cuda.CudaError, "invalid resource handle"),
    ]:
        with pytest.raises(kind) as caught:
            call()
        assert text in str(caught.value)
        del caught
    gc.collect()


# ---- experts ----


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("factors", [None, FACTORS])
def test_experts(experts: cuda.Weight, factors: Any, precision: str) -> None:
    all_of = exact(X, tensor("q4_k", E, N, K))  # [E, T, N]
    expected = np.where(IDS[..., None] < 0, 0, all_of[IDS, np.arange(T)[:, None]])
    if factors is not None:
        expected = (expected * factors[..., None]).sum(1)
    y = cuda.moe_matmul(X, experts, IDS, factors, precision=precision)
    assert (y.shape, y.dtype) == (expected.shape, np.float32)
    assert error(y, expected) < TOLERANCE[precision]
    assert str(cuda.last_kernel()).startswith("matmul_q4_k_")


@pytest.mark.parametrize("factors", [None, FACTORS])
def test_experts_with_everything_on_the_device(shim: Shim, experts: cuda.Weight, factors: Any) -> None:
    expected = cuda.moe_matmul(X, experts, IDS.tolist(), factors)
    ids, x = WithInterface(upload(shim, IDS)), WithDLPack(upload(shim, X))
    on_device = None if factors is None else WithDLPack(upload(shim, factors))
    assert np.array_equal(cuda.moe_matmul(x, experts, ids, on_device).to_numpy(), expected)
    out = WithDLPack(upload(shim, np.zeros(expected.shape, np.float32)))
    shim.library.shim_inject(b"cudaMalloc", 0, 2)
    shim.library.shim_inject(b"cudaStreamSynchronize", 0, 999)
    cuda.moe_matmul(x, experts, ids, on_device, out=out)
    assert np.array_equal(out.array, expected)
    with pytest.raises(cuda.CudaError):
        cuda.moe_matmul(x, experts, ids, on_device)
    with pytest.raises(cuda.CudaError):
        cuda.moe_matmul(X, experts, ids, on_device)


def test_experts_of_nothing(experts: cuda.Weight) -> None:
    assert cuda.moe_matmul(X[:0], experts, np.zeros((0, 2), np.int32)).shape == (0, 2, N)
    assert cuda.moe_matmul(X, experts, np.zeros((T, 0), np.int32)).shape == (T, 0, N)
    assert not cuda.moe_matmul(X, experts, np.zeros((T, 0), np.int32), np.zeros((T, 0))).any()
    assert not cuda.moe_matmul(X, experts, np.full((T, 2), -1)).any()
    nobody = cuda.load(tensor("q4_k", 0, N, K))
    assert not cuda.moe_matmul(X, nobody, np.full((T, 2), -1)).any()


def test_out_is_apart_from_ids_and_weights(shim: Shim, experts: cuda.Weight) -> None:
    place = upload(shim, np.zeros(T * 2 * N, np.int32))
    mine, floats = place[: T * 2].reshape(T, 2), place.view(np.float32)
    for ids, factors, out, name in [
        (WithDLPack(mine), None, floats.reshape(T, 2, N), "ids"),
        (np.zeros((T, 2), int), WithDLPack(mine.view(np.float32)), floats[: T * N].reshape(T, N), "weights"),
    ]:
        with pytest.raises(ValueError, match=f"out: expected memory of its own, it overlaps {name}"):
            cuda.moe_matmul(X, experts, ids, factors, out=WithDLPack(out))


def test_what_ids_and_weights_must_be(shim: Shim, experts: cuda.Weight) -> None:
    wide = WithDLPack(upload(shim, np.zeros((T, 2), np.int64)))
    for ids, factors, kind, text in [
        (IDS + E, None, ValueError, f"ids: expected -1 to {E - 1}"),
        (IDS[:-1], None, ValueError, f"ids: expected [T, k] with T = {T} rows"),
        (IDS.astype(float), None, TypeError, "ids: expected integers"),
        (wide, None, TypeError, "ids: expected int32 on the device, got int64"),
        (WithDLPack(upload(shim, IDS[:-1])), None, ValueError, f"ids: expected [T, k] with T = {T} rows"),
        (
            WithDLPack(upload(shim, np.zeros((T, 4), np.int32))[:, ::2]),
            None,
            ValueError,
            "ids: expected a C-contiguous",
        ),
        (IDS, FACTORS[:, 1:], ValueError, "weights: expected the shape of ids"),
        (
            IDS,
            WithDLPack(upload(shim, FACTORS.astype(np.float16))),
            TypeError,
            "weights: expected float32 on the device",
        ),
        (IDS, WithDLPack(upload(shim, FACTORS[:, 1:])), ValueError, "weights: expected the shape of ids"),
    ]:
        with pytest.raises(kind) as caught:
            cuda.moe_matmul(X, experts, ids, factors)
        assert text in str(caught.value)
        del caught
    with pytest.raises(ValueError, match=r"x: expected \[T, 512\]"):
        cuda.moe_matmul(X[0], experts, IDS)
    with pytest.raises(ValueError, match=r"experts: expected \[E, N, K\]"):
        cuda.moe_matmul(X, cuda.load(tensor()), IDS)
    gc.collect()
