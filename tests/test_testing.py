"""`cbquant.testing`: the comparison, and the vectors that are part of the package."""

from __future__ import annotations

import importlib.resources

import ml_dtypes
import numpy as np
import pytest

from cbquant import _formats, reference, testing
from tests import oracles

BLOCKS = testing.names()
FLOATS = [np.dtype(dtype) for dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)]


def differs(actual: object, expected: object, **options: str) -> str:
    with pytest.raises(AssertionError) as failure:
        testing.assert_bits_equal(actual, expected, **options)
    return str(failure.value)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bits_equal_floats(dtype: np.dtype) -> None:
    values = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan]).astype(dtype)
    testing.assert_bits_equal(values, values.copy())
    testing.assert_bits_equal(np.broadcast_to(values, (3, 6))[:, ::-1], np.stack([values] * 3)[:, ::-1])
    testing.assert_bits_equal(values[:0], values[:0])
    testing.assert_bits_equal(values[2], values[2])
    bits = np.dtype(f"u{dtype.itemsize}")
    for n, name in enumerate(("0.0", "-0.0", "1.5", "inf", "-inf")):
        other = values.copy()
        other.view(bits)[n] ^= bits.type(1)
        first, second = differs(values, other).splitlines()
        assert first == "1 of 6 elements differ by bits"
        assert second.startswith(f"  [{n}]: actual {name} (0x")
    zeros = differs(values[:1], values[1:2])
    assert "actual 0.0 (0x0000" in zeros
    assert "expected -0.0 (0x8000" in zeros
    assert "actual nan" in differs(values[5:], values[4:5])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bits_equal_any_nan(dtype: np.dtype) -> None:
    bits = np.dtype(f"u{dtype.itemsize}")
    infinity, quiet = (int(pattern) for pattern in np.array([np.inf, np.nan]).astype(dtype).view(bits))
    sign = 1 << (8 * dtype.itemsize - 1)
    nans = np.array([infinity + 1, sign | (infinity + 1), 2 * sign - 1, quiet], bits)
    testing.assert_bits_equal(nans.view(dtype), nans[::-1].copy().view(dtype))
    differs(nans[:1].view(dtype), np.array([infinity], bits).view(dtype))


def test_bits_equal_uint16_is_bfloat16() -> None:
    testing.assert_bits_equal(np.uint16([0x7FC0, 0x3F80]), np.uint16([0xFF81, 0x3F80]))
    lines = differs(np.uint16([0x7F80, 0x3F80]), np.uint16([0x7F81, 0x3F81])).splitlines()
    assert lines[1] == "  [0]: actual inf (0x7f80), expected nan (0x7f81)"
    assert lines[2] == "  [1]: actual 1.0 (0x3f80), expected 1.0078125 (0x3f81)"


def test_bits_equal_uint8_has_no_nan() -> None:
    testing.assert_bits_equal(np.uint8([0xFF, 0]), np.uint8([0xFF, 0]))
    assert differs(np.uint8([0xFF]), np.uint8([0xFE])).endswith("[0]: actual 255 (0xff), expected 254 (0xfe)")


def test_bits_equal_message() -> None:
    actual, expected = np.zeros((3, 64), np.float32), np.zeros((3, 64), np.float32)
    expected[1, 40:] = 0.1
    lines = differs(actual, expected, fmt="q4_0", err_msg="raw").splitlines()
    assert lines[0] == "raw: 24 of 192 elements differ by bits"
    assert lines[1] == "  [1, 40] (block 3, element 8): actual 0.0 (0x00000000), expected 0.1 (0x3dcccccd)"
    assert lines[6:] == ["  and 19 more"]


def test_bits_equal_shapes_and_dtypes() -> None:
    x = np.zeros((2, 3), np.float32)
    assert differs(x, x.reshape(6)) == "shapes differ: actual (2, 3), expected (6,)"
    assert differs(x[:1], x, err_msg="raw") == "raw: shapes differ: actual (1, 3), expected (2, 3)"
    assert differs(x, x.astype(np.float16)) == "dtypes differ: actual float32, expected float16"
    assert differs(np.uint16([0]), np.array([0], ml_dtypes.bfloat16)).startswith("dtypes differ")
    with pytest.raises(TypeError, match="expected has dtype >f4; known are"):
        testing.assert_bits_equal(x, x.astype(">f4"))
    with pytest.raises(TypeError, match="actual has dtype int32"):
        testing.assert_bits_equal(x.astype(np.int32), x)
    with pytest.raises(ValueError, match="q4_7"):
        testing.assert_bits_equal(x, x, fmt="q4_7")


def test_vectors_of_every_block_format() -> None:
    files = list(importlib.resources.files(testing).joinpath("vectors").iterdir())
    assert sorted(entry.name for entry in files) == [f"{name}.npz" for name in BLOCKS]
    assert sum(len(entry.read_bytes()) for entry in files) < 450 * 1024


@pytest.mark.parametrize("name", BLOCKS)
def test_vectors_cases(name: str) -> None:
    cases = {case.name: case for case in testing.vectors(name)}
    cls, fmt = reference.get(name), _formats.get(name)
    assert ("pairs" in cases) == fmt.has_min
    assert {"random", "raw", "scales"} <= set(cases) <= {"random", "raw", "scales", "pairs", "grid"}
    for case in cases.values():
        assert (case.blocks.dtype, case.f32.dtype) == (np.uint8, np.float32)
        assert case.blocks.shape[1] == cls.nbytes
        assert case.f32.shape == (len(case.blocks), cls.elements)
    if name not in ("mxfp4", "nvfp4"):
        assert np.isfinite(cases["random"].f32).all()
        # where a scale and a min are inf alike, their difference is NaN: there inf is in the pairs
        assert np.isnan(cases["scales"].f32).any()
        assert np.isinf(cases["pairs" if fmt.has_min else "scales"].f32).any()
    zeros = np.concatenate([np.signbit(case.f32[case.f32 == 0]) for case in cases.values()])
    assert set(zeros.tolist()) == {False, True}


@pytest.mark.parametrize(("name", "count"), [("mxfp4", 1), ("nvfp4", 4)])
def test_vectors_every_scale_byte(name: str, count: int) -> None:
    (scales,) = (case for case in testing.vectors(name) if case.name == "scales")
    assert np.array_equal(np.unique(scales.blocks[:, :count]), np.arange(256))


@pytest.mark.parametrize("name", BLOCKS)
def test_encode_vectors(name: str) -> None:
    cases = {case.name: case for case in testing.encode_vectors(name)}
    assert list(cases) == ["gauss", "ints", "constant", "zeros", "gauss_im"]
    for case in cases.values():
        decoded = reference.dequant(case.q, name)
        assert decoded.shape == case.x.shape == (1, 512)
        # tq1_0 and tq2_0 are the worst: the largest value is the scale, and most codes are 0
        assert np.linalg.norm(decoded - case.x) <= 0.8 * np.linalg.norm(case.x)
        assert (case.imatrix is not None) == case.name.endswith("_im")


@pytest.mark.skipif(not oracles.Ggml.available(), reason="no libggml-base: install pywhispercpp")
# ggml's encoders of iq1 and iq2 first make tables of neighbours, for 20 seconds: too long for what it says.
@pytest.mark.parametrize("name", [name for name in BLOCKS if not name.startswith(("iq1", "iq2"))])
def test_encode_vectors_ggml(name: str) -> None:
    ggml, tag = oracles.Ggml(), _formats.get(name).tag
    if not ggml.knows(tag):
        pytest.skip(f"this build of ggml has no {name}")
    for case in testing.encode_vectors(name):
        imatrix = case.imatrix
        if imatrix is None and ggml.requires_imatrix(tag):
            imatrix = np.ones(512, np.float32)
        testing.assert_bits_equal(ggml.quantize_chunk(tag, case.x, imatrix), case.q, err_msg=case.name)


def test_vectors_refuse() -> None:
    with pytest.raises(ValueError, match="fmt='f16' has no vectors; there are vectors for iq1_m, iq1_s"):
        testing.vectors("f16")
    with pytest.raises(ValueError, match="fmt='q4' has no vectors"):
        testing.encode_vectors("q4")
    with pytest.raises(TypeError, match="fmt must be a str, got int"):
        testing.vectors(2)  # type: ignore[arg-type]
