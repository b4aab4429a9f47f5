"""`cbquant.reference` against the vectors, ggml, exact arithmetic, and the codes and scales one by one."""

from __future__ import annotations

import pkgutil
import struct
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbquant import _core, _formats, reference, testing
from cbquant.reference import _bits, _codebooks, formats
from tests import exact, oracles

ALL = reference.names()
BLOCKS = [name for name in ALL if not reference.get(name).plain]
WITH_VECTORS = testing.names()  # a format is two files; vectors and exact arithmetic are what it can have beside them
SEEDS = st.integers(0, 2**32 - 1)
# zeros, the smallest and the largest subnormals, one, the largest, infinities, NaNs
HALVES = (0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFC01)

needs_ggml = pytest.mark.skipif(not oracles.Ggml.available(), reason="no libggml-base: install pywhispercpp")


def seed_of(name: str) -> int:
    return int.from_bytes(name.encode()[:8], "little")


def random_blocks(name: str, count: int, seed: int) -> np.ndarray:
    """Any bytes; in every third block two of three half-precision numbers are special ones."""
    rng = np.random.default_rng(seed)
    size = reference.get(name).nbytes
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    halves = rng.choice(np.array(HALVES, "<u2"), (count, size // 2)).view(np.uint8)
    chosen = rng.random((count, size // 2)) < 2 / 3
    chosen[np.arange(count) % 3 != 0] = False
    special = np.repeat(chosen, 2, axis=1)
    blocks[:, : size // 2 * 2][special] = halves[special]
    return blocks


def values_equal(patterns: np.ndarray, decoded: np.ndarray) -> bool:
    """Bit patterns of exact arithmetic, whose zeros have no sign, against float32."""
    found = decoded.view(np.uint32)
    return np.array_equal(np.where(found == 0x80000000, 0, found), patterns)


# --- the two lists of formats ---


def test_registry_same_formats() -> None:
    sizes = {fmt.name: (fmt.elements, fmt.bytes) for fmt in _formats.formats()}
    assert sizes == {name: (reference.get(name).elements, reference.get(name).nbytes) for name in ALL}
    assert {fmt.name for fmt in _formats.formats() if fmt.kind == "plain"} == set(ALL) - set(BLOCKS)


def test_registry_every_module_registers() -> None:
    modules = {module.name for module in pkgutil.iter_modules(formats.__path__)}
    assert modules == {reference.get(name).__module__.rpartition(".")[2] for name in ALL}


def test_registry_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"fmt='q4_km' .*did you mean q4_k"):
        reference.get("q4_km")
    with pytest.raises(TypeError, match="fmt must be a str, got int"):
        reference.get(12)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'q4_k' is already registered"):
        type("Again", (reference.BlockFormat,), {}, name="q4_k")


def test_import_cbquant_leaves_reference_out() -> None:
    code = "import cbquant, sys; sys.exit(any(name.startswith('cbquant.reference') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- block formats ---


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_decode_vectors(name: str) -> None:
    for case in [*testing.vectors(name), *oracles.full_vectors(name)]:
        decoded = reference.get(name).decode(case.blocks)
        testing.assert_bits_equal(decoded, case.f32, fmt=name, err_msg=case.name)


@needs_ggml
def test_ggml_has_the_same_blocks() -> None:
    ggml = oracles.Ggml()
    known = {name for name in BLOCKS if ggml.knows(_formats.get(name).tag)}
    assert set(WITH_VECTORS) - known <= {"q2_0"}
    for name in known:
        tag = _formats.get(name).tag
        stated = (name, reference.get(name).elements, reference.get(name).nbytes)
        assert (ggml.type_name(tag).lower(), ggml.blck_size(tag), ggml.type_size(tag)) == stated


def check_against_ggml(name: str, blocks: np.ndarray) -> None:
    ggml, tag = oracles.Ggml(), _formats.get(name).tag
    if not ggml.knows(tag):
        pytest.skip(f"this build of ggml has no {name}")
    expected = oracles.expected_of_ggml(name, blocks, ggml.to_float(tag, blocks))
    testing.assert_bits_equal(reference.get(name).decode(blocks), expected, fmt=name)


@needs_ggml
@pytest.mark.parametrize("name", [*BLOCKS, "f16", "bf16"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data(), seed=SEEDS)
def test_decode_ggml(name: str, data: st.DataObject, seed: int) -> None:
    size = reference.get(name).nbytes
    drawn = data.draw(st.lists(st.binary(min_size=size, max_size=size), max_size=3))
    some = np.frombuffer(b"".join(drawn), np.uint8).reshape(-1, size)
    check_against_ggml(name, np.concatenate([some, random_blocks(name, 60, seed)]))


@needs_ggml
@pytest.mark.parametrize("name", WITH_VECTORS)
def test_decode_ggml_special_scales(name: str) -> None:
    for case in testing.vectors(name):
        check_against_ggml(name, case.blocks)


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_decode_exact(name: str) -> None:
    cls = reference.get(name)
    scales = [case.blocks for case in testing.vectors(name) if case.name in ("scales", "pairs")]
    blocks = np.concatenate([random_blocks(name, 240, seed_of(name)), *scales])
    patterns, finite = exact.decode(name, blocks, cls.elements)
    assert finite.sum() >= 120
    assert values_equal(patterns, cls.decode(blocks[finite]))
    if name not in ("mxfp4", "nvfp4"):
        assert np.isnan(cls.decode(blocks[~finite])).any()


def test_formats_with_vectors_are_those_with_exact_arithmetic() -> None:
    assert sorted(exact.ELEMENT) == WITH_VECTORS
    assert len(WITH_VECTORS) >= 25


def test_exact_half() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    finite = patterns[np.isfinite(patterns.view(np.float16))]
    values = finite.view(np.float16).astype(np.float64)
    assert [exact.half(int(pattern)) for pattern in finite] == [Fraction(value) for value in values.tolist()]
    with pytest.raises(exact.NotFinite):
        exact.half(0x7C00)


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE | st.floats(-1e-37, 1e-37) | st.floats(3.4e38, 3.41e38))
def test_exact_rounding(value: float) -> None:
    with np.errstate(all="ignore"):
        expected = int(np.float64(value).astype(np.float32).view(np.uint32))
    assert exact.round_to_float32(Fraction(value)) == (expected if value else 0)


def test_decode_checks_blocks() -> None:
    with pytest.raises(ValueError, match=r"\[n, 18\], got \(2, 17\) \(q4_0\)"):
        reference.get("q4_0").decode(np.zeros((2, 17), np.uint8))
    with pytest.raises(TypeError, match="uint8 ndarray, got float32"):
        reference.get("q4_0").decode(np.zeros((2, 18), np.float32))


# --- codes and scales, one by one ---

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# code 8 is the negative zero, which a fraction cannot say
E2M1 = tuple(-0.0 if code == 8 else float(exact.e2m1(code)) for code in range(16))


def block_head(name: str) -> tuple[bytes, int, tuple[float, ...]]:
    """The bytes before the codes for a scale of 1, the code bytes of a run, and the codes' values."""
    one = np.array(1, "<f2").tobytes()
    return {
        "iq4_nl": (one, 16, IQ4),
        # s = 33 in each group: the high two bits are 2, the low four 1
        "iq4_xs": (one + b"\xaa\xaa" + b"\x11" * 4, 16, IQ4),
        "mxfp4": (bytes([127]), 16, E2M1),
        "nvfp4": (bytes([0x38] * 4), 8, E2M1),
    }[name]


def codebook_faults(name: str) -> list[str]:
    """What is wrong with the value of a code, decoded in every nibble of a block."""
    head, run, book = block_head(name)
    elements = reference.get(name).elements
    codes = (np.arange(16)[:, None] + np.arange(elements)) % 16
    runs = codes.astype(np.uint8).reshape(16, -1, 2, run)
    packed = (runs[:, :, 0] | runs[:, :, 1] << 4).reshape(16, -1)
    blocks = np.concatenate([np.tile(np.frombuffer(head, np.uint8), (16, 1)), packed], axis=1)
    decoded, expected = reference.get(name).decode(blocks), np.array(book, np.float32)[codes]
    wrong = np.argwhere(decoded.view(np.uint32) != expected.view(np.uint32)).tolist()
    faults = {f"{name} code {codes[n, i]}: expected {expected[n, i]}, got {decoded[n, i]}" for n, i in wrong}
    return sorted(faults)


CODEBOOKS = {"iq4_nl": "IQ4", "iq4_xs": "IQ4", "mxfp4": "E2M1", "nvfp4": "E2M1"}


@pytest.mark.parametrize("name", CODEBOOKS)
def test_codebook(name: str) -> None:
    assert codebook_faults(name) == []


@pytest.mark.parametrize("name", CODEBOOKS)
@pytest.mark.parametrize("pair", [(0, 8), (6, 7)])
def test_codebook_names_a_swapped_pair(name: str, pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = getattr(_codebooks, CODEBOOKS[name]).copy()
    swapped[list(pair)] = swapped[list(reversed(pair))]
    monkeypatch.setattr(sys.modules[reference.get(name).__module__], CODEBOOKS[name], swapped)
    faults = codebook_faults(name)
    assert len(faults) == 2
    assert {fault.split(":")[0] for fault in faults} == {f"{name} code {code}" for code in pair}


def scale_patterns(values: list[Fraction]) -> list[int]:
    return [exact.round_to_float32(value) for value in values]


def test_mxfp4_every_scale() -> None:
    blocks = np.zeros((256, 17), np.uint8)
    blocks[:, 0], blocks[:, 1:] = np.arange(256), 0x62  # 1.0 in the low nibbles, 4.0 in the high
    decoded = reference.get("mxfp4").decode(blocks)
    patterns = decoded.view(np.uint32)
    faults = [e for e in range(255) if patterns[e, 0] != exact.round_to_float32(Fraction(2) ** (e - 127))]
    assert faults == []
    assert np.isnan(decoded[255]).all()
    ends = [Fraction(1, 1 << 127), Fraction(1, 1 << 126), Fraction(128), Fraction(1 << 127)]
    assert patterns[[0, 1, 134, 254], 0].tolist() == scale_patterns(ends)
    assert patterns[0, 0] == 0x00400000
    assert np.isposinf(decoded[254, 16:]).all()


def test_nvfp4_every_scale() -> None:
    blocks = np.zeros((64, 36), np.uint8)
    blocks[:, :4], blocks[:, 4:] = np.arange(256).reshape(64, 4), 0x22
    patterns = reference.get("nvfp4").decode(blocks).view(np.uint32).reshape(256, 16)
    faults = [x for x in range(256) if (patterns[x] != exact.round_to_float32(exact.e4m3_unsigned(x))).any()]
    assert faults == []
    known = {0x7F: 0, 0x7E: 448, 0xFF: 480, 0xFE: 448, 0x80: 0, 0x01: 2**-9, 0x38: 1}
    expected = scale_patterns([Fraction(value) for value in known.values()])
    assert patterns[list(known), 0].tolist() == expected


def test_parity_mask() -> None:
    expected = [index | index.bit_count() % 2 << 7 for index in range(128)]
    assert _bits.parity_mask(np.arange(128)).tolist() == expected


def test_mxfp4_nibble_order() -> None:
    block = bytes([127, 0x21]) + bytes(15)
    decoded = reference.dequant(block, "mxfp4")
    assert (decoded[0], decoded[16], np.count_nonzero(decoded)) == (0.5, 1.0, 2)


@pytest.mark.parametrize("name", [name for name in WITH_VECTORS if name.startswith(("iq1", "iq2", "iq3"))])
def test_vectors_have_every_grid_row(name: str) -> None:
    table = _core.table(f"{name}_grid" if name != "iq1_m" else "iq1_s_grid").astype(np.float32)
    (grid,) = (case for case in testing.vectors(name) if case.name == "grid")
    rows = grid.f32.reshape(-1, table.shape[1])
    expected = {
        "iq1": table + np.float32(0.125),  # the shift
        "iq2": table / 8,  # (s + 0.5) * 0.25
        "iq3": table / (4 if name == "iq3_xxs" else 1),  # (s + 0.5) * 0.5, or 2 s + 1
    }
    assert np.array_equal(rows, expected[name[:3]])


# --- dequant ---


def test_dequant_shapes() -> None:
    rows = random_blocks("q4_1", 24, 1).reshape(2, 3, 80)
    flat = reference.dequant(rows.tobytes(), "q4_1")
    assert flat.shape == (768,)
    for result in (
        reference.dequant(rows, "q4_1"),
        reference.dequant(memoryview(rows.tobytes()), "q4_1", shape=(2, 3, 128)),
        reference.dequant(rows[:, ::-1], "q4_1")[:, ::-1],
        reference.dequant(rows.tobytes(), "q4_1", shape=[2, 3, 128]),
    ):
        testing.assert_bits_equal(result, flat.reshape(2, 3, 128), fmt="q4_1")
    assert reference.dequant(rows.reshape(-1, 10), "q4_1").shape == (768,)  # rows of half blocks: as one row
    assert reference.dequant(rows, "q4_1", shape=768).shape == (768,)
    assert reference.dequant(b"", "q4_1").shape == (0,)
    assert reference.dequant(np.zeros((0, 40), np.uint8), "q4_1").shape == (0, 64)
    assert reference.dequant(np.float32(7).tobytes(), "f32", shape=()).shape == ()


@pytest.mark.parametrize(
    ("size", "fmt", "options", "message"),
    [
        (100, "q6_k", {}, r"buf: 100 bytes are not a multiple of 210 \(a block of q6_k\)"),
        (210, "q6_k", {"shape": (2, 128)}, r"k=128 is not a multiple of 256 \(q6_k\)"),
        (210, "q6_k", {"shape": ()}, r"k=1 is not a multiple of 256 \(q6_k\)"),
        (210, "q6_k", {"shape": (2, 256)}, r"shape=\(2, 256\) needs 420 bytes of q6_k, buf has 210"),
        (420, "q6_k", {"shape": (-2, -256)}, r"shape: expected dimensions from 0 up, got \(-2, -256\)"),
        (210, "q6k", {}, "fmt='q6k' is not a format .*q6_k"),
    ],
)
def test_dequant_refuses(size: int, fmt: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reference.dequant(bytes(size), fmt, **options)


@pytest.mark.parametrize("dtype", ["float64", np.int32, "f8"])
def test_dequant_refuses_dtype(dtype: object) -> None:
    with pytest.raises(TypeError, match=r"dtype: expected float32, float16, bfloat16, got \w+"):
        reference.dequant(bytes(210), "q6_k", dtype=dtype)


def test_dequant_slices_agree() -> None:
    blocks = random_blocks("q1_0", 5000, 3)  # 640,000 elements: three slices
    whole = reference.get("q1_0").decode(blocks)
    testing.assert_bits_equal(reference.dequant(blocks, "q1_0"), whole.reshape(5000, 128), fmt="q1_0")


def test_dequant_dtypes() -> None:
    block = np.array(65504, "<f2").tobytes() + bytes([127, 1, 0x80]) + bytes(29)
    values = reference.dequant(block, "q8_0")
    assert values[:3].tolist() == [65504 * 127, 65504, 65504 * -128]
    half = reference.dequant(block, "q8_0", dtype=np.float16)
    testing.assert_bits_equal(half[:4], np.float16([np.inf, 65504, -np.inf, 0]))
    brain = reference.dequant(block, "q8_0", dtype="bfloat16")
    assert brain.dtype == np.uint16
    assert brain[:4].tolist() == [0x4AFE, 0x4780, 0xCB00, 0]  # 254 * 2^15, 2^16, -2^23, 0


def test_bfloat16_rounding() -> None:
    upper = np.arange(1 << 16, dtype=np.uint32)
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    word = (upper[:, None] << np.uint32(16)) | lower
    rounded = reference.bfloat16_bits(word.view(np.float32))
    finite = (word & np.uint32(0x7F800000)) != 0x7F800000
    # every other one: to the nearer of its two neighbours, whose distance the lower half says
    up = (lower > 0x8000) | ((lower == 0x8000) & (upper[:, None] % 2 == 1))
    assert np.array_equal(rounded[finite], (upper[:, None] + up)[finite])
    is_inf = (word & np.uint32(0x7FFFFFFF)) == 0x7F800000
    assert np.array_equal(rounded[is_inf], (word >> np.uint32(16))[is_inf])
    nan = rounded[~finite & ~is_inf]
    assert ((nan & 0x7FC0) == 0x7FC0).all()
    assert nan.size == 2 * 128 * 6 - 2
    with pytest.raises(TypeError, match="float32 ndarray, got float64"):
        reference.bfloat16_bits(np.zeros(3))


# --- plain types ---


@given(st.lists(st.floats(width=64), min_size=1))
def test_plain_f64_rounds_once(values: list[float]) -> None:
    decoded = reference.dequant(np.array(values, "<f8"), "f64")
    for value, found in zip(values, decoded.view(np.uint32).tolist(), strict=True):
        if not np.isfinite(value):
            testing.assert_bits_equal(np.uint32(found).view(np.float32), np.float32(value))
        elif value != 0:
            assert found & 0x7FFFFFFF == exact.round_to_float32(abs(Fraction(value)))
            assert found >> 31 == (value < 0)
        else:
            assert found == struct.unpack("<I", struct.pack("<f", value))[0]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@given(data=st.data())
def test_plain_integers_round_once(bits: int, data: st.DataObject) -> None:
    ends = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = data.draw(st.lists(ends, min_size=1))
    decoded = reference.dequant(np.array(values, f"<i{bits // 8}"), f"i{bits}")
    assert decoded.view(np.uint32).tolist() == [exact.round_to_float32(Fraction(value)) for value in values]


def test_plain_halves_exact() -> None:
    patterns = np.arange(1 << 16, dtype="<u2")
    decoded = reference.dequant(patterns.view("<f2"), "f16")
    testing.assert_bits_equal(decoded.astype(np.float16), patterns.view("<f2"))
    wide = reference.dequant(patterns.view(np.uint8), "bf16")
    assert np.array_equal(wide.view(np.uint32), patterns.astype(np.uint32) << np.uint32(16))
    testing.assert_bits_equal(reference.dequant(wide, "f32"), wide)
