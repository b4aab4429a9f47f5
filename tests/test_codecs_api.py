"""The modules of the codecs: what they take, what they refuse, and their documentation."""

from __future__ import annotations

import doctest
import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cbquant
from cbquant import _core
from cbquant.reference import codecs
from tests import codec_inputs

MODULES: list[ModuleType] = [cbquant.e2m1, cbquant.e2m3, cbquant.e3m2, cbquant.mxint8]
PACKED: list[ModuleType] = [cbquant.e2m1, cbquant.e2m3, cbquant.e3m2]
IDS: Callable[[Any], str] = lambda module: module.__name__.removeprefix("cbquant.")  # noqa: E731


@contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[None]:
    with pytest.raises(kind, match=re.escape(text)):
        yield


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_shapes_and_strides(module: ModuleType) -> None:
    kind = IDS(module)
    codes = np.random.default_rng(0).integers(0, 256, (6, 10, 4), dtype=np.uint8)
    for view in (codes, codes[::2, ::-3], codes.transpose(2, 0, 1), codes[:0], codes[0, 0, 0], codes[3, 2, 1:3]):
        values = module.decode(view)
        assert values.shape == view.shape
        assert np.array_equal(values, codecs.decode(kind, view))
        again = module.encode(values)
        assert again.shape == view.shape
        assert again.dtype == np.uint8
        assert np.array_equal(again, codecs.encode(kind, values))
    x = np.random.default_rng(1).normal(size=(6, 10)).astype(np.float32)
    for strided in (x[::2, ::-3], x.T, np.asfortranarray(x), x[1, 1]):
        assert np.array_equal(module.encode(strided), codecs.encode(kind, strided))


@pytest.mark.parametrize("kind", cbquant.fp8.KINDS)
def test_fp8(kind: str) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert np.array_equal(cbquant.fp8.decode(codes.T, kind), codecs.decode(kind, codes.T), equal_nan=True)
    x = np.array([[1.0, -1e9], [3.3, np.inf]])
    for saturate in (True, False):
        assert np.array_equal(cbquant.fp8.encode(x.T, kind, saturate), codecs.encode(kind, x.T, saturate))


@pytest.mark.parametrize("module", PACKED, ids=IDS)
def test_packed_shapes_and_strides(module: ModuleType) -> None:
    bits = 4 if module is cbquant.e2m1 else 6
    x = np.random.default_rng(0).normal(size=(5, 7, 24)).astype(np.float64) * 3
    for view in (x, x[::2, ::-1], x[..., ::2], x[:0]):
        packed = module.pack(view)
        assert packed.shape == (*view.shape[:-1], view.shape[-1] * bits // 8)
        assert np.array_equal(packed, codecs.pack(module.encode(view), bits))
        assert np.array_equal(module.unpack(packed), module.decode(module.encode(view)))
    assert module.unpack(packed[..., :0]).shape == (0, 7, 0)
    assert module.unpack(np.abs(x).astype(np.uint8)[:, ::2]).shape == (5, 4, 24 * 8 // bits)


def test_buffers_that_are_not_arrays() -> None:
    for codes in (b"\x01\x02", bytearray([1, 2]), memoryview(b"\x01\x02"), np.array([1, 2], np.int8)):
        assert cbquant.e2m1.decode(codes).tolist() == [0.5, 1.0]
    assert cbquant.e2m1.encode(1.0).tolist() == 2
    assert cbquant.e2m1.encode([1.0, 2.0]).tolist() == [2, 4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", np.float16, ml_dtypes.bfloat16], ids=str)
def test_dtypes(dtype: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    for kind in cbquant.fp8.KINDS:
        values = cbquant.fp8.decode(codes, kind, dtype)
        assert values.dtype == (np.float16 if "float16" in str(dtype) and "b" not in str(dtype) else values.dtype)
        assert np.array_equal(values.astype(np.float32), codecs.decode(kind, codes), equal_nan=True)
    assert cbquant.e2m1.unpack(codes, dtype=dtype).dtype == values.dtype


def test_codes_of_ml_dtypes() -> None:
    """Of the type that the kind is, and of no other."""
    codes = np.arange(16, dtype=np.uint8).reshape(2, 8)
    for kind, dtype in codec_inputs.ML_DTYPES.items():
        module = cbquant.fp8 if kind in cbquant.fp8.KINDS else getattr(cbquant, kind)
        arguments = (kind,) if module is cbquant.fp8 else ()
        for view in (codes, codes.T, codes[0, 3:4].reshape(())):
            found = module.decode(view.view(dtype), *arguments)
            assert np.array_equal(found, codecs.decode(kind, view))
        with raises(TypeError, "codes: expected the bytes (uint8), got dtype float8_e5m2"):
            module.decode(codes.view(ml_dtypes.float8_e5m2), *(("e4m3fn",) if kind == "e5m2" else arguments))
    with raises(TypeError, "packed: expected the bytes (uint8), got dtype float4_e2m1fn"):
        cbquant.e2m1.unpack(codes.view(ml_dtypes.float4_e2m1fn))


def test_out() -> None:
    codes = np.arange(16, dtype=np.uint8)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.uint16):
        out = np.zeros(16, dtype)
        assert cbquant.e2m1.decode(codes, out=out) is out
        numbers = out.view(ml_dtypes.bfloat16) if dtype is np.uint16 else out
        assert np.array_equal(numbers.astype(np.float32), codecs.decode("e2m1", codes))
    x, out = np.linspace(-6, 6, 16), np.zeros(16, np.uint8)
    assert cbquant.e2m1.encode(x, out=out) is out
    assert np.array_equal(out, codecs.encode("e2m1", x))
    half = np.zeros(8, np.uint8)
    assert cbquant.e2m1.pack(x, out=half, threads=2) is half
    values = np.zeros(16, np.float32)
    assert cbquant.e2m1.unpack(half, out=values, threads=2) is values
    assert np.array_equal(values, cbquant.e2m1.decode(out))
    assert cbquant.e8m0.encode(np.abs(x), out=out) is out


def test_large_arrays_and_the_default_of_threads() -> None:
    x = np.random.default_rng(0).normal(size=(1025, 1024)).astype(np.float32)
    codes = cbquant.fp8.encode(x, "e4m3fn")
    assert np.array_equal(codes, x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
    values = cbquant.fp8.decode(codes, "e4m3fn")
    assert np.array_equal(values, codecs.decode("e4m3fn", codes))
    assert np.array_equal(values, cbquant.fp8.decode(codes, "e4m3fn", threads=2))


# --- what is refused ---


def test_codes_that_are_refused() -> None:
    with raises(TypeError, "codes: expected the bytes (uint8), got dtype float32"):
        cbquant.e2m1.decode(np.zeros(3, np.float32))
    with raises(TypeError, "codes: expected bytes, a buffer or an array, got list"):
        cbquant.e2m1.decode([1, 2])
    with raises(TypeError, "packed: expected the bytes (uint8), got dtype int64"):
        cbquant.e2m3.unpack(np.zeros(3, np.int64))
    with raises(ValueError, "packed: last dimension 4 is not a multiple of 3 bytes (4 codes of e3m2)"):
        cbquant.e3m2.unpack(np.zeros((6, 4), np.uint8))
    with raises(ValueError, "packed: expected at least one dimension, got ()"):
        cbquant.e2m1.unpack(np.zeros((), np.uint8))
    with raises(TypeError, "dtype: expected float32, float16, bfloat16, got float64"):
        cbquant.e2m1.decode(np.zeros(3, np.uint8), dtype="float64")
    assert cbquant.fp8.decode(np.uint8([0x38]), "float8_E4M3FN") == 1
    with raises(
        ValueError, "kind: expected one of e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, got 'e4m3'; checkpoints call e4m3fn"
    ):
        cbquant.fp8.decode(np.zeros(3, np.uint8), "e4m3")
    with raises(TypeError, "kind: expected one of e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, got NoneType"):
        cbquant.fp8.decode(np.zeros(3, np.uint8), None)  # type: ignore[arg-type]


def test_numbers_that_are_refused() -> None:
    with raises(TypeError, "x: expected float32, float64, float16, bfloat16, got int64"):
        cbquant.e2m1.encode(np.zeros(3, np.int64))
    with raises(TypeError, "x: expected float32, float64, float16, bfloat16, got complex128"):
        cbquant.fp8.encode(np.zeros(3, complex), "e5m2")
    with raises(ValueError, "x: expected native byte order, got dtype >f4"):
        cbquant.e2m1.encode(np.zeros(3, ">f4"))
    with raises(ValueError, "x: last dimension 3 is not a multiple of 2 elements (1 byte of e2m1 codes)"):
        cbquant.e2m1.pack(np.zeros((2, 3)))
    with raises(ValueError, "x: last dimension 6 is not a multiple of 4 elements (3 bytes of e2m3 codes)"):
        cbquant.e2m3.pack(np.zeros(6))
    with raises(TypeError, "saturate: expected True or False, got str"):
        cbquant.fp8.encode(np.zeros(3), "e5m2", "no")  # type: ignore[arg-type]


def test_out_that_is_refused() -> None:
    codes, x = np.zeros(4, np.uint8), np.zeros(4, np.float32)
    with raises(TypeError, "out: expected dtype float32, got float64"):
        cbquant.e2m1.decode(codes, out=np.zeros(4))
    with raises(ValueError, "out: expected shape (8,), got (4,)"):
        cbquant.e2m1.unpack(codes, out=np.zeros(4, np.float32))
    with raises(TypeError, "out: expected an ndarray, got list"):
        cbquant.e2m1.encode(x, out=[0, 0, 0, 0])  # type: ignore[arg-type]
    with raises(TypeError, "out: expected dtype uint8, got int8"):
        cbquant.mxint8.encode(x, out=np.zeros(4, np.int8))  # type: ignore[arg-type]
    with raises(ValueError, "out: expected shape (2,), got (4,)"):
        cbquant.e2m1.pack(x, out=np.zeros(4, np.uint8))
    with raises(ValueError, "out: expected a C-contiguous array, got a strided one"):
        cbquant.e2m1.encode(x, out=np.zeros(8, np.uint8)[::2])
    frozen = np.zeros(4, np.uint8)
    frozen.setflags(write=False)
    with raises(ValueError, "out: expected a writable array, got a read-only one"):
        cbquant.e2m1.encode(x, out=frozen)
    with raises(ValueError, "out: expected memory of its own, it overlaps x"):
        cbquant.e2m1.encode(x, out=x.view(np.uint8)[:4])
    memory = np.zeros(20, np.uint8)
    with raises(ValueError, "out: expected memory of its own, it overlaps codes"):
        cbquant.e2m1.decode(memory[2:6], out=memory[4:20].view(np.float32))


def test_threads_that_are_refused() -> None:
    with raises(ValueError, "threads: expected 1 to 512, got 0"):
        cbquant.e2m1.encode(np.zeros(3), threads=0)
    with raises(TypeError, "threads: expected a whole number from 1, got float"):
        cbquant.e8m0.decode(np.zeros(3, np.uint8), threads=1.0)  # type: ignore[arg-type]


def test_the_core_checks_too() -> None:
    codes, x = np.zeros(6, np.uint8), np.zeros(6, np.float32)
    with raises(ValueError, "kind: unknown kind of codes 'fp4'"):
        _core.decode_codes(codes, "fp4", x)
    with raises(ValueError, "out: expected 6 elements for 6 bytes of e2m1 in codes, got 20 bytes"):
        _core.decode_codes(codes, "e2m1", x[:5])
    with raises(ValueError, "codes: 4 bytes are not a multiple of 3 (4 codes of e2m3)"):
        _core.decode_codes(codes[:4], "e2m3", x, "float32", True)
    with raises(ValueError, "x: expected 12 elements for 6 bytes of e2m1 in out, got 24 bytes"):
        _core.encode_codes(x, "f32", "e2m1", codes, True)
    with raises(ValueError, "source: 'q8_0' is not a plain type"):
        _core.encode_codes(x, "q8_0", "e2m1", codes)
    with raises(ValueError, "rule: expected floor, ceil, even or ggml, got 'up'"):
        _core.encode_codes(x, "f32", "e8m0", codes, rule="up")
    with raises(ValueError, "codes: expected a C-contiguous array, got a strided one"):
        _core.decode_codes(codes[::2], "e2m1", x[:3])
    with raises(ValueError, "CBQUANT_ISA: expected one of"):
        _core.encode_codes(x, "f32", "e2m1", codes, isa="sse9")
    with raises(ValueError, "threads: expected 1 to 512, got -1"):
        _core.decode_codes(codes, "e2m1", x, "float32", False, -1)


# --- documentation ---


@pytest.mark.parametrize("name", ["e2m1", "e2m3", "e3m2", "e8m0", "fp8", "mxint8", "reference.codecs"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"cbquant.{name}"))
    assert result.attempted > 4
    assert result.failed == 0
