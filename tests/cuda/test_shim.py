"""The shim finds planted faults in every schedule, and what is correct passes in every one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.cuda.shim import KERNEL_INCLUDES, Shim, ShimError, build, why_not
from tests.paths import ROOT
from tests.ptx.exact_rounding import round_exactly

SEEDS = range(24)
SOURCE = ROOT / "tests" / "cuda" / "shim_kernels.cu"
THREADS, FLOATS = 128, 512

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def library() -> Shim:
    return Shim(build([SOURCE], KERNEL_INCLUDES))


@pytest.fixture
def shim(library: Shim) -> Iterator[Shim]:
    yield library
    library.free()


def bugs(name: str) -> dict[str, int]:
    """The faults that a kernel can have: the members of its enum."""
    members = re.search(rf"enum {name} {{([^}}]*)}}", SOURCE.read_text())
    assert members is not None
    names = [text.split("=")[0].strip() for text in members[1].split(",")]
    return {text: i for i, text in enumerate(filter(None, names), 1)}


# ---- schedules ----


def schedule(shim: Shim, seed: int, blocks: int = 6) -> np.ndarray:
    """The threads [2 * threads of all blocks] as they came; each comes before and after a barrier."""
    shim.seed(seed)
    next_, who = shim.upload(np.zeros(1, np.uint32)), shim.empty(2 * blocks * THREADS, np.uint32)
    shared = shim.empty((blocks * THREADS, 2), np.uint32)
    shared[...] = 0
    shim.call("run_order", next_, who, shared, blocks)
    assert (shared == 0xFFFFFFFF).all()  # shared memory is poisoned before each block
    np.testing.assert_array_equal(np.sort(who), np.repeat(np.arange(blocks * THREADS), 2))
    return who.copy()


def test_seed_determines_the_schedule(shim: Shim) -> None:
    schedules = [schedule(shim, seed) for seed in SEEDS]
    assert len({s.tobytes() for s in schedules}) == len(SEEDS)
    for seed in SEEDS:
        np.testing.assert_array_equal(schedule(shim, seed), schedules[seed])


def test_schedules_have_any_order(shim: Shim) -> None:
    """Of blocks, of warps, of lanes; and blocks that overlap."""
    schedules = np.stack([schedule(shim, seed) for seed in SEEDS])
    blocks, warps, lanes = schedules // THREADS, schedules // 32 % 4, schedules % 32
    for first in (blocks[:, 0], warps[:, 0]):
        assert len(set(first.tolist())) >= 3
    assert len(set(lanes[:, 0].tolist())) >= 8
    overlaps = [len(np.flatnonzero(np.diff(order))) >= 6 for order in blocks]
    assert len(SEEDS) / 3 <= sum(overlaps) < len(SEEDS)


def test_barrier_parts_what_comes_before_and_after(shim: Shim) -> None:
    for seed in SEEDS:
        who = schedule(shim, seed)
        for block in range(6):
            mine = who[who // THREADS == block]
            assert len(set(mine[:THREADS].tolist())) == THREADS


# ---- staging with asynchronous copies ----


def pipeline(shim: Shim, seed: int, bug: int) -> bool:
    """Whether the sums are right."""
    shim.seed(seed)
    blocks, steps = 3, 6
    x = np.random.default_rng(seed).integers(-99, 99, (blocks, steps, FLOATS)).astype(np.float32)
    y = shim.empty((blocks, THREADS), np.float32)
    shim.call("run_pipeline", shim.upload(x), y, blocks, steps, bug)
    expected = x.reshape(blocks, steps, THREADS, 4).sum((1, 3))[:, ::-1]
    return np.array_equal(y, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_pipeline_is_right_in_every_schedule(shim: Shim, seed: int) -> None:
    assert pipeline(shim, seed, 0)


@pytest.mark.parametrize("bug", bugs("pipeline_bug"))
def test_planted_fault_of_a_pipeline_is_found_in_every_schedule(shim: Shim, bug: str) -> None:
    assert not any(pipeline(shim, seed, bugs("pipeline_bug")[bug]) for seed in SEEDS)


# ---- barriers and collectives ----


def rows(shim: Shim, seed: int, bug: int) -> bool:
    """Whether the sums are right."""
    shim.seed(seed)
    blocks = 9
    x = np.random.default_rng(seed).integers(-99, 99, (blocks, THREADS)).astype(np.float32)
    y, parts = shim.empty(blocks, np.float32), shim.empty((blocks, 32), np.float32)
    shim.call("run_rows", shim.upload(x), y, parts, blocks, bug)
    return np.array_equal(y, x.sum(1))


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_right_in_every_schedule(shim: Shim, seed: int) -> None:
    assert rows(shim, seed, 0)


@pytest.mark.parametrize("bug", ["NO_BARRIER", "NO_SYNCWARP"])
def test_missing_barrier_is_found_in_every_schedule(shim: Shim, bug: str) -> None:
    assert not any(rows(shim, seed, bugs("rows_bug")[bug]) for seed in SEEDS)


def test_blocks_that_share_a_place_are_found_in_some_schedules(shim: Shim) -> None:
    """Where blocks happen to run one after another it does no harm."""
    found = [not rows(shim, seed, bugs("rows_bug")["SAME_PLACE_FOR_ALL_BLOCKS"]) for seed in SEEDS]
    assert sum(found) >= len(SEEDS) / 3


WAITS_IN_VAIN = {
    "LANE_MISSING": r"at cu_shuffle_xor \(tests/cuda/shim_kernels.cu:\d+\)",
    "LANE_ELSEWHERE": r"cu_shuffle_xor \(.*\) while others wait at cu_shuffle_xor \(",
    "WARP_PAST_BARRIER": r"96 wait at cu_barrier \(.*32 have ended, the first is thread 32",
    "LANE_PAST_BARRIER": r"at cu_barrier \(.*\) while others wait at cu_barrier \(",
}


@pytest.mark.parametrize("bug", WAITS_IN_VAIN)
def test_thread_that_is_elsewhere_is_an_error_in_every_schedule(shim: Shim, bug: str) -> None:
    for seed in SEEDS:
        with pytest.raises(ShimError, match=WAITS_IN_VAIN[bug]) as caught:
            rows(shim, seed, bugs("rows_bug")[bug])
        assert caught.value.code == 719
        assert "run_rows: cudaErrorLaunchFailure: kernel shim_rows, block (" in str(caught.value)
    assert rows(shim, 0, 0)  # a launch after one that failed


# ---- addresses ----

WRONG_ADDRESS = {
    "READ_PAST_END": r"read or wrote 0x\w+, 252 bytes past the end of allocation \d+ of 256 bytes",
    "WRITE_PAST_END": r"read or wrote 0x\w+, 252 bytes past the end of allocation \d+ of 256 bytes",
    "READ_BEFORE": r"read or wrote 0x\w+, 4100 bytes before allocation \d+ of 256 bytes",
    "READ_NULL": r"read or wrote \(nil\), in no device memory",
    "MISALIGNED_LOAD": r"float4.* at 0x\w+4 \(tests/cuda/shim_kernels.cu:\d+\): at no multiple of its alignment",
    "MISALIGNED_COPY": r"cu_copy16_async \(.*\) from 0x\w+4 to 0x\w+: an address is no multiple of 16",
    "COPY_TO_GLOBAL": r"cu_copy16_async \(.*\) from 0x\w+ to 0x\w+: the destination is not in shared memory",
    "COPY_PAST_END": r"past the end of allocation \d+ of 256 bytes, at or after cu_copy16_async \(",
    "PAST_DYNAMIC": r"read or wrote beside dynamic shared memory",
    "BESIDE_DYNAMIC": r"wrote past the end of its 120 bytes of dynamic shared memory, or before them",
    "PAST_STATIC": r"index 71 of 'float \[8\]' \(tests/cuda/shim_kernels.cu:\d+\)",
    "FULL_STACK": r"a thread's stack is full",
    "FOR_EVER": r"more than 5000 turns of warps",
}


def addresses(shim: Shim, n: int, bug: str) -> np.ndarray:
    y = shim.empty(n, np.float32)
    shim.call("run_addresses", shim.upload(np.arange(n, dtype=np.float32)), y, n, bugs("address_bug").get(bug, 0))
    return y


@pytest.mark.parametrize("bug", WRONG_ADDRESS)
def test_wrong_address_is_an_error_that_names_it(shim: Shim, bug: str) -> None:
    shim.library.shim_limit(5000)
    for seed in range(3):
        shim.seed(seed)
        with pytest.raises(ShimError, match=WRONG_ADDRESS[bug]) as caught:
            addresses(shim, 64, bug)
        thread = "block (1, 0, 0), thread (" if bug.endswith("DYNAMIC") else "block (1, 0, 0), thread (1, 0, 0)"
        assert thread in str(caught.value) or bug in ("FOR_EVER", "BESIDE_DYNAMIC")
        np.testing.assert_array_equal(addresses(shim, 64, ""), np.arange(64))
    shim.library.shim_limit(0)


def test_write_between_the_end_and_the_guard_page_is_found(shim: Shim) -> None:
    with pytest.raises(ShimError, match=r"wrote 4 bytes beside allocation \d+ of 252 bytes, the first 0 bytes past"):
        addresses(shim, 63, "WRITE_BESIDE")


def test_write_of_the_host_beside_an_allocation_is_found_when_it_is_freed(shim: Shim) -> None:
    array = shim.empty(63, np.float32)
    np.lib.stride_tricks.as_strided(array, (64,), writeable=True)[63] = 0
    with pytest.raises(
        ShimError, match=r"cudaFree: somebody wrote 4 bytes beside allocation \d+ of 252 bytes"
    ) as caught:
        shim.free()
    assert caught.value.code == 700


def test_freed_memory_is_found(shim: Shim) -> None:
    x = shim.upload(np.zeros(64, np.float32))
    shim.free()
    y = shim.empty(64, np.float32)
    with pytest.raises(ShimError, match=r"bytes into allocation \d+ of 256 bytes, which was freed"):
        shim.call("run_addresses", x, y, 64, 0)


# ---- instructions ----


def as_bfloat16(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.uint16).view(ml_dtypes.bfloat16)


def test_instructions_equal_their_formulas(shim: Shim) -> None:
    rng = np.random.default_rng(5)
    for mask in (1, 2, 4, 8, 16, 31):
        shim.seed(mask)
        values = rng.integers(0, 2**32, (32, 8), dtype=np.uint32)
        values[:4, 3] = 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x3F808000  # NaNs, the largest, halfway to even
        values[:4, 4] = 0x3F818000, 0x00000001, 0xFF800000, 0x80000000
        out = shim.empty((32, 8), np.uint32)
        shim.call("run_instructions", shim.upload(values), out, mask)
        lanes = np.arange(32)
        np.testing.assert_array_equal(out[:, 0], values[lanes ^ mask, 0])
        np.testing.assert_array_equal(out[:mask, 1], values[:mask, 1])
        np.testing.assert_array_equal(out[mask:, 1], values[: 32 - mask, 1])
        bytes_of = values[:, :2].copy().view(np.uint8)
        nibbles = [values[:, 2] >> 4 * i & 15 for i in range(4)]
        chosen = [bytes_of[:, :8][lanes, nibble & 7] for nibble in nibbles]
        chosen = [np.where(n & 8, np.where(c & 128, 255, 0), c) for n, c in zip(nibbles, chosen, strict=True)]
        np.testing.assert_array_equal(out[:, 2].copy().view(np.uint8).reshape(32, 4), np.stack(chosen, 1))
        with np.errstate(all="ignore"):
            halves = np.ascontiguousarray(values[:, 3:5]).view(np.float32).astype(ml_dtypes.bfloat16)
        got = as_bfloat16(np.stack([out[:, 3] & 0xFFFF, out[:, 3] >> 16], 1))
        np.testing.assert_array_equal(got.astype(np.float32), halves.astype(np.float32))
        assert set(got.view(np.uint16)[np.isnan(got)]) <= {0x7FFF}
        np.testing.assert_array_equal(out[:, 5], (values[:, 0] & values[:, 1]) | values[:, 2])


def test_fma_of_pairs_rounds_once(shim: Shim) -> None:
    """Factors and sums of all sizes: subnormal ones, far apart, and ties that the third number decides."""
    rng = np.random.default_rng(8)
    halves = np.zeros((64, 8), np.uint32)
    for seed in range(20):
        exponents = (rng.integers(50, 200, (64, 3)), rng.integers(0, 3, (64, 3)), rng.integers(120, 134, (64, 3)))[
            seed % 3
        ]
        exponents[:, 1] += (0, 125, 0)[seed % 3]
        halves[:, 5:] = (exponents << 7) | rng.integers(0, 128, (64, 3)) | rng.integers(0, 2, (64, 3)) << 15
        if seed == 19:  # 1.5 * (1 + 2^-7) is halfway, and then a little above it
            halves[:2, 5:] = [(0x3FC0, 0x3F81, 0x8000), (0x3FC0, 0x3F81, 0x0100)]
        out = shim.empty((32, 8), np.uint32)
        shim.call("run_instructions", shim.upload(halves[:32] | halves[32:] << 16), out, 1)
        a, b, c = (as_bfloat16(column).astype(np.float64) for column in halves[:, 5:].T)
        exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(a, b, c, strict=True)]
        expected = [round_exactly(x, "bf16") for x in exact]
        got = as_bfloat16(np.concatenate([out[:, 6] & 0xFFFF, out[:, 6] >> 16])).astype(np.float64)
        np.testing.assert_array_equal(got, expected)


def test_mma_is_a_product_of_matrices(shim: Shim) -> None:
    """Fragments by the formulas of the PTX ISA (m16n8k16, elements a0 to a7, b0 to b3, c0 to c3)."""
    rng = np.random.default_rng(6)
    group, thread = np.divmod(np.arange(32), 4)
    for seed in range(4):
        shim.seed(seed)
        a = rng.standard_normal((16, 16)).astype(ml_dtypes.bfloat16)
        b = rng.standard_normal((16, 8)).astype(ml_dtypes.bfloat16)
        c = rng.standard_normal((16, 8)).astype(np.float32)
        of_a, of_b = np.empty((32, 8), ml_dtypes.bfloat16), np.empty((32, 4), ml_dtypes.bfloat16)
        of_c = np.empty((32, 4), np.float32)
        c_places = [(group + (8 if i >= 2 else 0), thread * 2 + (i & 1)) for i in range(4)]
        for i in range(8):
            row = group + (0 if i in (0, 1, 4, 5) else 8)
            of_a[:, i] = a[row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)]
        for i in range(4):
            of_b[:, i] = b[thread * 2 + (i & 1) + (8 if i >= 2 else 0), group]
            of_c[:, i] = c[c_places[i]]
        sums = shim.upload(of_c)
        shim.call("run_mma", shim.upload(of_a.view(np.uint32)), shim.upload(of_b.view(np.uint32)), sums)
        expected = (c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        for i in range(4):
            # One rounding of the exact sum; NumPy's double sum may differ in its last bit.
            np.testing.assert_allclose(sums[:, i], expected[c_places[i]], rtol=2**-23)


def test_threads_know_their_indices(shim: Shim) -> None:
    x, y, z, threads = 3, 2, 2, 64
    out = shim.empty((z, y, x, threads, 6), np.uint32)
    shim.call("run_indices", out, x, y, z, threads)
    grid = np.stack(np.meshgrid(range(z), range(y), range(x), range(threads), indexing="ij"), -1)
    np.testing.assert_array_equal(out[..., :4], grid[..., [2, 1, 0, 3]])
    np.testing.assert_array_equal(out[..., 4:], np.broadcast_to([threads, y], (z, y, x, threads, 2)))


# ---- the two files of instructions ----


def names_in(path: str) -> dict[str, str]:
    """Each function's parameters, and each macro's, as they are written."""
    text = re.sub(r"//[^\n]*", "", (ROOT / path).read_text())
    text = re.sub(r", SHIM_WHERE|SHIM_WHERE", "", text.replace("__device__ ", ""))
    functions = re.findall(r"((?:template <[^>]*> )?static __forceinline__ [\w ]+?)\b(cu_\w+)\(([^)]*)\) {", text)
    macros = re.findall(r"#define (CU_\w+)\(([^)]*)\)", text)
    return {name: f"{before}({parameters})" for before, name, parameters in functions} | dict(macros)


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("instructions", {"cu_mma_bf16", "cu_wait", "CU_DYNAMIC_SHARED"}),
        ("instructions_sm90", {"cu_mbarrier_wait", "cu_wgmma_bf16", "cu_hold"}),
    ],
)
def test_shim_has_the_instructions_of_the_device(name: str, some: set[str]) -> None:
    device = names_in(f"cuda/device/{name}.cuh")
    assert some <= set(device)
    assert names_in(f"tests/cuda/shim/{name}.cuh") == device
