"""Weights in planes on a GPU, on the shim: decoded to the CPU's bits, multiplied, brought back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cbquant
from cbquant import cuda
from cbquant.planes._tensor import PlanesTensor
from cbquant.testing import assert_bits_equal
from tests.cuda.products import from_bf16, to_bf16
from tests.paths import as_float

SHAPE = (70, 256)
FORMATS = [
    "mxfp4",
    "nvfp4",
    "nf4",
    "fp4",
    "fp8_e4m3",
    "fp8_e5m2",
    "mxfp8_e4m3",
    "mxfp8_e5m2",
    "mxfp6_e3m2",
    "mxfp6_e2m3",
    "mxint8",
]
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


def quantized(fmt: str, shape: tuple[int, ...] = SHAPE) -> PlanesTensor:
    x = np.random.default_rng(len(fmt)).standard_normal(shape).astype(np.float32)
    p = cbquant.planes.quantize(x, fmt)
    return cbquant.QuantTensor.from_planes(fmt, p.codes, p.scales, global_scale=p.global_scale)  # type: ignore[return-value]


def any_codes(fmt: str, scales: Any, **options: Any) -> PlanesTensor:
    """All codes, NaN among them."""
    codes = np.resize(np.arange(256, dtype=np.uint8), SHAPE)
    return cbquant.QuantTensor.from_planes(fmt, codes, scales, **options)  # type: ignore[return-value]


def tiled() -> list[PlanesTensor]:
    rng = np.random.default_rng(0)
    rows, tiles = rng.random(SHAPE[0]).astype(np.float32), rng.random((1, 2)).astype(np.float32)
    return [
        any_codes("fp8_e4m3", tiles),
        any_codes("fp8_e4m3", tiles.astype(np.float16)),
        any_codes("fp8_e4m3", to_bf16(tiles)),
        any_codes("fp8_e4m3", np.uint8([[120, 255]])),  # E8M0, a NaN
        any_codes("fp8_e5m2", rows),
        any_codes("fp8_e5m2", np.float32(3)),
        any_codes("fp8_e4m3", rng.random((70, 8)).astype(np.float32), tile=(1, 32)),
        any_codes("mxfp8_e4m3", rng.integers(0, 256, (70, 8), np.uint8)),
        any_codes("mxint8", rng.integers(0, 256, (70, 8), np.uint8)),
    ]


def check(t: PlanesTensor) -> None:
    w = cuda.load(t)
    assert (w.format, w.shape) == (t.format, t.shape)
    for dtype, kind in DTYPES.items():
        out = np.empty(t.shape, kind)
        w.dequant(dtype, out)
        expected = np.empty(t.shape, kind)
        t.dequant(dtype, out=expected)
        assert_bits_equal(as_float(out), as_float(expected))
    back = w.to_host()
    assert isinstance(back, PlanesTensor)
    assert (back.codes.tobytes(), back.scales.tobytes()) == (t.codes.tobytes(), t.scales.tobytes())
    assert (back.tile, back.shape, back.format) == (t.tile, t.shape, t.format)


@pytest.mark.parametrize("fmt", FORMATS)
def test_formats(native: Any, fmt: str) -> None:
    check(quantized(fmt))
    check(quantized(fmt, (2, 3, 64)))


@pytest.mark.parametrize("number", range(len(tiled())))
def test_scales_of_every_kind_and_all_codes(native: Any, number: int) -> None:
    check(tiled()[number])


def test_six_bits_that_share_bytes(native: Any) -> None:
    for fmt, codec in (("mxfp6_e3m2", cbquant.e3m2), ("mxfp6_e2m3", cbquant.e2m3)):
        t = quantized(fmt)
        packed = codec.pack(codec.decode(t.codes))
        check(cbquant.QuantTensor.from_planes(fmt, packed, t.scales, packed=True))  # type: ignore[arg-type]


def nvfp4(scales: Any, *global_scale: Any) -> PlanesTensor:
    """All codes, two to a byte, in rows of 128."""
    codes = np.resize(np.arange(256, dtype=np.uint8), (len(scales), 64))
    words = dict(zip(("global_scale", "global_scale_is"), global_scale, strict=False))
    return cbquant.QuantTensor.from_planes("nvfp4", codes, scales, **words)  # type: ignore[return-value]


def test_nvfp4_without_a_global_scale_is_gguf_s(native: Any) -> None:
    t = nvfp4(np.full((5, 8), 0x30, np.uint8))
    check(t)
    assert cuda.load(t).nbytes == 5 * 2 * 36
    check(nvfp4(np.full((5, 8), 0x30, np.uint8), 1.0, "divisor"))


#: Numbers whose order of products and quotients shows in the last bit, and those that leave the range.
TENSOR_SCALES = [0.1, 1 / 3, 3e-39, 1.7e38, -2.3, 0.0]


@pytest.mark.parametrize("how", ["multiplier", "divisor"])
def test_nvfp4_with_every_scale(native: Any, how: str) -> None:
    """Each scale beside all codes, negative ones and NaN among them; with and without a number for the tensor."""
    scales = np.arange(256, dtype=np.uint8).repeat(2).reshape(-1, 8)
    check(nvfp4(scales))
    for number in TENSOR_SCALES:
        if number or how == "multiplier":
            check(nvfp4(scales, np.float32(number), how))


@pytest.mark.parametrize("fmt", ["nf4", "fp4"])
@pytest.mark.parametrize(("shape", "block"), [((6, 32), 64), ((5, 2, 96), 128), ((64,), 32), ((2, 64), 4096)], ids=str)
def test_runs_of_any_length(native: Any, fmt: str, shape: tuple[int, ...], block: int) -> None:
    """A block's end is any row's; codes keep the shape of bitsandbytes."""
    n, rng = int(np.prod(shape)), np.random.default_rng(block)
    codes = rng.integers(0, 256, (n // 2, 1), np.uint8)
    for scales in (rng.standard_normal(-(-n // block)).astype(np.float32), np.float16([np.inf] * -(-n // block))):
        t = cbquant.QuantTensor.from_planes(fmt, codes, scales, shape=shape, block=block)
        check(t)  # type: ignore[arg-type]
        assert cuda.load(t).to_host().codes.shape == codes.shape  # type: ignore[attr-defined]


def test_nested_scales(native: Any) -> None:
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 256, (1024, 1), np.uint8), rng.integers(0, 256, 32, np.uint8)
    nested = (rng.random(2).astype(np.float32), rng.standard_normal(256).astype(np.float32), 0.3, 16)
    check(cbquant.QuantTensor.from_planes("nf4", codes, scales, shape=(16, 128), nested=nested))  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["bf16", "f32"])
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("m", [3, 20])
def test_products(native: Any, fmt: str, m: int, precision: str) -> None:
    t = quantized(fmt)
    x = np.random.default_rng(m).standard_normal((m, SHAPE[1])).astype(np.float32)
    y = cuda.matmul(x, cuda.load(t), precision=precision)
    expected = x.astype(np.float64) @ from_bf16(to_bf16(t.dequant())).T
    limit = {"bf16": 1e-2, "f32": 1e-5}[precision]
    assert np.linalg.norm(y - expected) < limit * np.linalg.norm(expected)


def weights_of(w: cuda.Weight) -> np.ndarray:
    """What products multiply with, found by products with each row of the identity."""
    return cuda.matmul(np.eye(w.shape[1], dtype=np.float32), w, precision="f32").T


@pytest.mark.parametrize("fmt", FORMATS)
def test_weights_of_products_are_bfloat16_of_the_values(native: Any, fmt: str) -> None:
    t = quantized(fmt, (70, 64))
    assert np.array_equal(weights_of(cuda.load(t)), from_bf16(to_bf16(t.dequant())))


#: Divisors by which the quotient of some code and scale is near the half between two bfloat16, so that a product with
#: the reciprocal would round to another one; and those that have no good reciprocal.
DIVISORS = [12.16152, 7.2452826, 6.669976, 51.921133, 0.083086051, 3e-35, 2e35]


@pytest.mark.parametrize("divisor", DIVISORS)
def test_quotients_are_rounded_as_they_should(native: Any, divisor: float) -> None:
    scales = np.uint8([s for s in range(256) if s & 127 != 127] * 2).reshape(-1, 4).repeat(2, axis=1)
    for sign in (1, -1):
        t = nvfp4(scales, np.float32(sign * divisor), "divisor")
        with np.errstate(over="ignore"):
            expected = from_bf16(to_bf16(t.dequant()))
        assert np.array_equal(weights_of(cuda.load(t)), expected)


def test_experts(native: Any) -> None:
    t = quantized("fp8_e4m3", (3, 40, 64))
    x, ids = np.ones((2, 64), np.float32), [[2, 0], [-1, 1]]
    y = cuda.moe_matmul(x, cuda.load(t), ids, precision="f32")
    values = from_bf16(to_bf16(t.dequant())).sum(-1)
    assert np.allclose(y[0], values[[2, 0]], rtol=1e-4, atol=1e-4)
    assert np.allclose(y[1, 1], values[1], rtol=1e-4, atol=1e-4)
    assert not y[1, 0].any()


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("k=48 is not a multiple of 32", lambda: quantized("fp8_e4m3", (4, 48))),
        ("k=48 is not a multiple of 32 .*; load.tensor.dequant... takes any shape", lambda: quantized("nf4", (4, 48))),
        ("k=96 is not a multiple of 64", lambda: quantized("nvfp4", (4, 96))),
        (
            "a scale belongs to 48 elements in order, no multiple of 32",
            lambda: cbquant.QuantTensor.from_planes(
                "nf4", np.zeros(48, np.uint8), np.ones(2, np.float32), shape=(3, 32), block=48
            ),
        ),
        (
            "tiles of 24 columns are no multiple of 32",
            lambda: any_codes("fp8_e4m3", np.ones((70, 11), np.float32), tile=(1, 24)),
        ),
    ],
)
def test_what_cannot_be_loaded_is_said(native: Any, message: str, make: Any) -> None:
    with pytest.raises(ValueError, match=message):
        cuda.load(make())
