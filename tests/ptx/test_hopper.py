"""Barriers that count bytes, copies in bulk, wgmma: each as the PTX ISA says, and what is undefined is an error."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from . import Buffer, PtxError
from .rounding import f32_to_bf16
from .test_memory_and_warps import run_kernel

FENCE = "fence.proxy.async.shared::cta;"
SHARED = ".shared .align 1024 .b8 s[8192]; .shared .align 8 .b8 b[16]; mov.u32 %r2, s; mov.u32 %r3, b;"
MAKE = SHARED + "setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared::cta.b64 [%r3], {count}; @%p1 {fence} bar.sync 0;"


def make(count: int, fence: str = FENCE) -> str:
    """%r2: 8192 bytes of shared memory; %r3: a barrier; %p1: thread 0."""
    return MAKE.format(count=count, fence=fence)


def wait(parity: int) -> str:
    return f"mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], {parity}; @!%p2 trap;"


COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%q1], 512, [%r3];"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;"
STORE = (
    "mad.lo.u32 %r4, %r1, 4, %r2; ld.shared.u32 %r5, [%r4]; mad.wide.u32 %q3, %r1, 4, %q2; st.global.u32 [%q3], %r5;"
)
VALUES = np.arange(128, dtype=np.uint32)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_phases_of_a_barrier(seed: int | None) -> None:
    """64 threads write for each other: in each of three rounds, after all have arrived."""
    body = (
        make(64) + "mad.lo.u32 %r4, %r1, 4, %r2; xor.b32 %r5, %r1, 37; mad.lo.u32 %r5, %r5, 4, %r2; mov.u32 %r6, %r1;"
    )
    for turn in range(3):
        body += f"st.shared.u32 [%r4], %r6; mbarrier.arrive.shared::cta.b64 _, [%r3]; {wait(turn % 2)}"
        body += "ld.shared.u32 %r6, [%r5]; add.u32 %r6, %r6, 100; bar.sync 0;"
    y = Buffer.poison(64, np.uint32)
    run_kernel(body + "mad.wide.u32 %q2, %r1, 4, %q1; st.global.u32 [%q2], %r6;", y, block=64, seed=seed)
    assert y.array.tolist() == [300 + (i ^ 37) for i in range(64)]


def test_the_phase_before_the_first_has_ended() -> None:
    run_kernel(make(1) + wait(1))


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_copies_in_bulk_land_before_the_phase_ends(seed: int | None) -> None:
    y = Buffer.poison(128, np.uint32)
    run_kernel(make(1) + f"@%p1 {EXPECT} @%p1 {COPY} {wait(0)} {STORE}", VALUES, y, block=128, seed=seed)
    assert y.array.tolist() == VALUES.tolist()


def test_without_a_wait_they_have_not_landed() -> None:
    y = Buffer.poison(128, np.uint32)
    run_kernel(make(1) + f"@%p1 {EXPECT} @%p1 {COPY} {STORE} {wait(0)}", VALUES, y, block=128)
    assert (y.array == 0xFFFFFFFF).all()


@pytest.mark.parametrize(
    ("body", "message"),
    {
        "bytes that nobody announced": (make(1) + f"@%p1 {COPY} {wait(0)}", "deadlock: .* wait at .*try_wait"),
        "nobody arrives": (make(2) + f"@%p1 {EXPECT} @%p1 {COPY} {wait(0)}", "deadlock: .* wait at .*try_wait"),
        "no wait": (make(1) + f"@%p1 {EXPECT} @%p1 {COPY}", "copies in bulk are on their way"),
        "too many arrive": (make(1) + f"@%p1 {EXPECT} @%p1 {EXPECT}", "more arrivals than"),
        "no barrier": (SHARED + wait(0), "there is no barrier"),
        "no fence": (make(1, "bar.warp.sync 1;") + f"@%p1 {COPY}", "before a fence.proxy.async"),
        "size": (make(1) + f"@%p1 {COPY.replace('512', '24')}", "no multiple of 16 bytes"),
        "address": (make(1) + f"add.u64 %q1, %q1, 8; @%p1 {COPY}", "no multiple of 16 bytes, or at none"),
        "bounds": (make(1) + f"@%p1 {COPY.replace('512', '528')}", "out of bounds"),
        "made twice": (
            make(1) + "@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;",
            "no barrier of 1 arrivals can be made",
        ),
    }.values(),
)
def test_what_goes_wrong_with_barriers_and_copies(body: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run_kernel(body, VALUES)


# Of 128 threads: a in %r5 to %r8, 8 columns in shared memory, sums in %f1 to %f4.
DESCRIPTOR = "shr.u32 %r9, %r2, 4; cvt.u64.u32 %q9, %r9; or.b64 %q9, %q9, {fields};"
FIELDS = 1 << 62 | 64 << 32 | 1 << 16
LOAD = """mad.wide.u32 %q5, %r1, 16, %q1; ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%q5];
    mad.wide.u32 %q6, %r1, 16, %q2; ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%q6];
    mad.wide.u32 %q7, %r1, 8, %q3; ld.global.v2.u32 {%r10, %r11}, [%q7];
    mad.lo.u32 %r4, %r1, 8, %r2; st.shared.v2.u32 [%r4], {%r10, %r11}; bar.sync 0; setp.eq.u32 %p3, 0, 0;"""
PRODUCT = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, {%r5, %r6, %r7, %r8}, %q9, %p3, 1, 1, 0;"
)
PUT = "mad.wide.u32 %q8, %r1, 16, %q4; st.global.v4.f32 [%q8], {%f1, %f2, %f3, %f4};"
BEGIN, END = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"


def products(
    body: str, fields: int = FIELDS, seed: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sums that `body` leaves, and those of a, b and c: integers, exact. b has 64 k, of which the matrix has 16."""
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((64, 16), (8, 64), (64, 8)))
    row, quad, two = (
        np.arange(128)[:, None] // 32 * 16 + np.arange(128)[:, None] % 32 // 4,
        np.arange(128)[:, None] % 4,
        np.arange(2),
    )
    of_a = [f32_to_bf16(a)[row + 8 * (r % 2), 2 * quad + two + 8 * (r // 2)] for r in range(4)]
    of_c = [c[row + 8 * r, 2 * quad + two] for r in range(2)]
    chunks = f32_to_bf16(b).reshape(8, 8, 8)
    of_b = np.stack([chunks[n, np.arange(8) ^ n] for n in range(8)])
    left, sums = (np.ascontiguousarray(np.concatenate(f, axis=1)) for f in (of_a, of_c))
    y = Buffer.poison((128, 4), np.float32)
    text = SHARED + LOAD + DESCRIPTOR.format(fields=fields) + body + PUT
    run_kernel(text, left, sums, np.ascontiguousarray(of_b), y, block=128, seed=seed)
    found = np.zeros((64, 8), np.float32)
    for r in range(2):
        found[row + 8 * r, 2 * quad + two] = y.array[:, 2 * r : 2 * r + 2]
    return found, a, b, c


@pytest.mark.parametrize(("seed", "part"), [*itertools.product([None, 0, 1], [0, 3])])
def test_wgmma_of_exact_values(seed: int | None, part: int) -> None:
    body = BEGIN + PRODUCT + PRODUCT + END + WAIT
    found, a, b, c = products(body, FIELDS + 2 * part, seed)
    assert found.tolist() == (2 * a @ b[:, 16 * part : 16 * part + 16].T + c).tolist()


def test_sums_are_not_there_before_the_wait() -> None:
    found, _, _, c = products(BEGIN + PRODUCT + END + "wgmma.wait_group.sync.aligned 1;" + PUT + WAIT + "ret;")
    assert found.tolist() == c.tolist()


def test_registers_are_read_up_to_the_wait() -> None:
    found, _, _, c = products(
        BEGIN + PRODUCT + END + "mov.b32 %r5, 0; mov.b32 %r6, 0; mov.b32 %r7, 0; mov.b32 %r8, 0;" + WAIT
    )
    assert found.tolist() == c.tolist()


@pytest.mark.parametrize(
    ("body", "fields", "message"),
    {
        "fence": (PRODUCT + END + WAIT, FIELDS, "no wgmma.fence"),
        "wait": (BEGIN + PRODUCT + END, FIELDS, "did not wait for its products"),
        "swizzling": (BEGIN + PRODUCT + END + WAIT, FIELDS ^ 3 << 62, "another swizzling"),
        "bits": (BEGIN + PRODUCT + END + WAIT, FIELDS | 1 << 53, "bits that have no meaning"),
        "alignment": (BEGIN + PRODUCT + END + WAIT, FIELDS + 8, "no multiple of 1024"),
        "row": (BEGIN + PRODUCT + END + WAIT, FIELDS + 7, "not in one row"),
        "lanes": (
            "cvt.u64.u32 %q10, %r1; shl.b64 %q10, %q10, 16; xor.b64 %q9, %q9, %q10;" + BEGIN + PRODUCT,
            FIELDS,
            "lanes have other",
        ),
        "warps": (
            "shr.u32 %r12, %r1, 5; cvt.u64.u32 %q10, %r12; add.u64 %q10, %q10, %q10; add.u64 %q9, %q9, %q10;"
            + BEGIN
            + PRODUCT,
            *(FIELDS, "the four warps do not have the same"),
        ),
    }.values(),
)
def test_what_goes_wrong_with_products(body: str, fields: int, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        products(body, fields)


def test_registers_are_set_by_whole_warps() -> None:
    run_kernel("setmaxnreg.inc.sync.aligned.u32 232; setmaxnreg.dec.sync.aligned.u32 40;")
    with pytest.raises(PtxError, match="a lane of the warp has exited"):
        run_kernel("setp.lt.u32 %p1, %r1, 7; @%p1 setmaxnreg.dec.sync.aligned.u32 40;")
    share = "setp.lt.u32 %p1, %r1, 128; @%p1 bra FEW; setmaxnreg.inc.sync.aligned.u32 232; ret;"
    run_kernel(share + "FEW: setmaxnreg.dec.sync.aligned.u32 40;", block=384)
    with pytest.raises(PtxError, match="ask for 65536 registers, the CTA has 64512"):
        run_kernel(share + "FEW: setmaxnreg.dec.sync.aligned.u32 48;", block=384)
    with pytest.raises(NotImplementedError, match="multiples of 8"):
        run_kernel("setmaxnreg.dec.sync.aligned.u32 41;")
