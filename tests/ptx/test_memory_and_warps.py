"""Loads, stores, moves, async copies; shuffles, votes, barriers, ldmatrix, mma."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from . import POISON, Buffer, PtxError, load, run
from .rounding import f32_to_bf16
from .snippet import evaluate, kernel

RNG_SEED = 3


def run_kernel(body: str, *arrays: np.ndarray | Buffer, block: int = 32, before: str = "", **options) -> None:
    """`body` finds the addresses in %q1, %q2, ..., and the thread's number in %r1."""
    params = ", ".join(f".param .u64 p{i}" for i in range(len(arrays)))
    loads = " ".join(f"ld.param.u64 %q{i + 1}, [p{i}];" for i in range(len(arrays)))
    text = kernel(f"{loads} mov.u32 %r1, %tid.x;\n{body}", params, before)
    run(load(text), "k", options.pop("grid", 1), block, list(arrays), **options)


def test_loads_extend_and_stores_truncate():
    a = np.array([0x80FF, 0x7F01], np.uint16)
    store_load = """ld.param.u64 %q1, [p_a]; mad.wide.u32 %q1, %r18, 2, %q1; """
    assert evaluate(store_load + "ld.global.s8 %d, [%q1];", np.int32, a=a).tolist() == [-1, 1]
    assert evaluate(store_load + "ld.global.u8 %d, [%q1+1];", np.int64, a=a).tolist() == [0x80, 0x7F]
    assert evaluate(store_load + "ld.global.s16 %d, [%q1];", np.int64, a=a).tolist() == [-0x7F01, 0x7F01]
    x = np.zeros(2, np.uint32)
    run_kernel("st.global.u8 [%q1+1], 0x1ff; mov.b64 %q3, -2; st.global.u16 [%q1+4], %q3;", x, block=1)
    assert x.tolist() == [0xFF00, 0xFFFE]


@pytest.mark.parametrize(("count", "bits"), [(2, 8), (4, 8), (2, 16), (4, 32), (2, 64), (8, 32), (4, 64)])
def test_vector_access(count, bits):
    x = np.arange(1, 1 + 32 * count).astype(f"u{bits // 8}")
    y = Buffer.poison(len(x), x.dtype)
    letter = {8: "h", 16: "h", 32: "r", 64: "q"}[bits]
    registers = ", ".join(f"%{letter}{i}" for i in range(8 if bits == 32 else 4, 20)[:count])
    if bits < 32:
        registers = ", ".join(f"%h{i}" for i in range(count))
    body = f"""mul.wide.u32 %q3, %r1, {count * bits // 8}; add.u64 %q1, %q1, %q3; add.u64 %q2, %q2, %q3;
        ld.global.nc.L1::no_allocate.L2::128B.v{count}.b{bits} {{{registers}}}, [%q1];
        st.global.v{count}.b{bits} [%q2], {{{registers}}};"""
    run_kernel(body, x, y)
    assert y.array.tolist() == x.tolist()


def test_moves_pack_and_unpack():
    a, b = np.array([0x11223344, 0xFFFFFFFF], np.uint32), np.array([0x55667788, 0], np.uint32)
    packed = evaluate("mov.b64 %d, {%a, %b};", np.uint64, a=a, b=b)
    assert packed.tolist() == [0x5566778811223344, 0xFFFFFFFF]
    assert evaluate("mov.b64 {_, %d}, %a;", np.uint32, a=packed).tolist() == b.tolist()
    assert evaluate("mov.b32 {%h1, %d}, %a;", np.uint16, a=a).tolist() == [0x1122, 0xFFFF]
    assert evaluate("{.reg .b16 z; mov.b16 z, 7; mov.b32 %d, {0, z};}", np.uint32, a=a).tolist() == [7 << 16] * 2
    assert evaluate("mov.b32 %d, 0f3F800000;", np.float32, a=a).tolist() == [1, 1]


def test_special_registers_in_three_dimensions():
    grid, block = (3, 2, 2), (4, 3, 5)
    y = Buffer.poison((12 * 60, 6), np.uint32)
    names = ["%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z"]
    body = """mov.u32 %r2, %ctaid.z;
        mov.u32 %r3, %ctaid.y; mov.u32 %r4, %nctaid.y; mad.lo.u32 %r2, %r2, %r4, %r3;
        mov.u32 %r3, %ctaid.x; mov.u32 %r4, %nctaid.x; mad.lo.u32 %r2, %r2, %r4, %r3;
        mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.z; mad.lo.u32 %r2, %r2, %r4, %r3;
        mov.u32 %r3, %tid.y; mov.u32 %r4, %ntid.y; mad.lo.u32 %r2, %r2, %r4, %r3;
        mov.u32 %r3, %tid.x; mov.u32 %r4, %ntid.x; mad.lo.u32 %r2, %r2, %r4, %r3;
        mad.wide.u32 %q1, %r2, 24, %q1;"""
    body += " ".join(f"mov.u32 %r4, {name}; st.global.u32 [%q1+{4 * i}], %r4;" for i, name in enumerate(names))
    run_kernel(body, y, grid=grid, block=block)
    want = [
        [tx, ty, tz, bx, by, bz]
        for bz, by, bx, tz, ty, tx in itertools.product(range(2), range(2), range(3), range(5), range(3), range(4))
    ]
    assert y.array.tolist() == want


def test_generic_addresses_reach_every_space():
    before = ".const .align 4 .b32 fixed[2] = {11, 22}; .global .align 4 .b32 table[1] = {33};"
    body = """.shared .align 4 .b8 s[128]; .local .align 4 .b8 depot[4];
        mov.u64 %q2, s; mad.wide.u32 %q2, %r1, 4, %q2; st.shared.u32 [%q2], %r1; cvta.shared.u64 %q3, %q2;
        mov.u64 %q4, depot; mov.b32 %r2, 77; st.local.u32 [%q4], %r2; cvta.local.u64 %q5, %q4;
        mov.u64 %q6, fixed; cvta.const.u64 %q6, %q6; add.u64 %q6, %q6, 4; mov.u64 %q7, table;
        and.b32 %r3, %r1, 3; setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r3, 1; setp.eq.u32 %p3, %r3, 2;
        selp.b64 %q8, %q3, %q5, %p1; selp.b64 %q8, %q6, %q8, %p2; selp.b64 %q8, %q7, %q8, %p3;
        ld.u32 %r4, [%q8]; mad.wide.u32 %q1, %r1, 4, %q1; st.u32 [%q1], %r4;
        cvta.to.shared.u64 %q9, %q3; setp.ne.u64 %p4, %q9, %q2; @%p4 trap;"""
    y = Buffer.poison(32, np.uint32)
    run_kernel(body, y, before=before)
    assert y.array.tolist() == [(i, 22, 33, 77)[i % 4] for i in range(32)]


def test_pointers_in_other_data_and_struct_parameters():
    x, y = Buffer(np.array([5, 6], np.uint32)), Buffer.poison(1, np.uint32)
    text = kernel(
        """mov.b64 %q1, s; ld.param.u64 %q2, [%q1+8]; ld.param.u32 %r1, [s]; mad.wide.u32 %q2, %r1, 4, %q2;
        ld.global.u32 %r2, [%q2]; ld.param.u64 %q3, [p]; st.global.u32 [%q3], %r2;""",
        ".param .align 8 .b8 s[16], .param .u64 p",
    )
    struct = np.array([1, x.address], np.uint64).tobytes()
    run(load(text), "k", 1, 1, [struct, y], buffers=[x])
    assert y.array.tolist() == [6]


def test_globals_keep_their_values_between_launches():
    module = load(
        kernel("ld.global.u32 %r1, [n]; add.u32 %r1, %r1, 1; st.global.u32 [n], %r1;", before=".global .u32 n;")
    )
    for _ in range(3):
        run(module, "k", 1, 1, [])
    assert module.array("n", np.uint32).tolist() == [3]


# %r2: 16 bytes of shared memory for each thread; %q3: its 16 bytes of the first argument
COPY = ".shared .align 16 .b8 s[1024]; mov.u32 %r2, s; mad.lo.u32 %r2, %r1, 16, %r2;"
COPY += "mad.wide.u32 %q3, %r1, 16, %q1;"
STORE = "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r2]; mad.wide.u32 %q4, %r1, 16, %q2;"
STORE += "st.global.v4.u32 [%q4], {%r5, %r6, %r7, %r8};"


def test_async_copies_land_when_waited_for():
    x = np.arange(128, dtype=np.uint32)
    y = Buffer.poison(128, np.uint32)
    copy = COPY + "cp.async.cg.shared.global [%r2], [%q3], 16;"
    for wait in ("cp.async.commit_group; cp.async.wait_group 0;", "cp.async.wait_all;"):
        run_kernel(copy + wait + STORE, x, y)
        assert y.array.tolist() == x.tolist()
    for early in ("", "cp.async.commit_group;", "cp.async.commit_group; cp.async.wait_group 1;"):
        run_kernel(copy + early + STORE, x, y)
        assert (y.array.view(np.uint8) == POISON).all()
    landed = []
    for seed in range(4):  # a seed lets some copies land early
        run_kernel(copy + "cp.async.commit_group;" + STORE, x, y, seed=seed)
        landed.append((y.array == x).mean())
    assert 0 < np.mean(landed) < 1


@pytest.mark.parametrize("used", [0, 1, 4, 7, 16])
def test_async_copies_fill_with_zeros(used):
    x = np.arange(1, 33, dtype=np.uint8)[: 16 + used]  # what is not used need not exist
    y = Buffer.poison(32, np.uint8)
    body = COPY + f"mov.u32 %r9, 16; setp.eq.u32 %p1, %r1, 1; @%p1 mov.u32 %r9, {used};"
    run_kernel(body + "cp.async.cg.shared.global [%r2], [%q3], 16, %r9; cp.async.wait_all;" + STORE, x, y, block=2)
    assert y.array.tolist() == [*range(1, 17 + used)] + [0] * (16 - used)


def test_async_copy_ignores_its_source():
    x, y = np.arange(8, dtype=np.uint32), Buffer.poison(8, np.uint32)
    body = COPY + "setp.eq.u32 %p1, %r1, 0; cp.async.ca.shared.global [%r2], [%q3], 16, %p1; cp.async.wait_all;"
    run_kernel(body + STORE, x, y, block=2)
    assert y.array.tolist() == [0, 0, 0, 0, 4, 5, 6, 7]


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode):
    values = np.random.default_rng(RNG_SEED).integers(0, 1 << 32, 64, np.uint32)
    for by, clamp, segment in itertools.product([0, 1, 3, 16, 31], [0, 5, 31], [0, 24, 31, 28]):
        y = Buffer.poison((64, 2), np.uint32)
        bounds = segment << 8 | clamp
        body = f"""mad.wide.u32 %q3, %r1, 4, %q1; ld.global.u32 %r2, [%q3]; mad.wide.u32 %q4, %r1, 8, %q2;
            shfl.sync.{mode}.b32 %r3|%p1, %r2, {by}, {bounds}, 0xffffffff; selp.u32 %r4, 1, 0, %p1;
            st.global.v2.u32 [%q4], {{%r3, %r4}};"""
        run_kernel(body, values, y, block=64)
        for i in range(64):
            lane = i % 32
            most, least = lane & segment | clamp & ~segment & 31, lane & segment
            j = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": least | by & ~segment}[mode]
            good = j >= most if mode == "up" else j <= most
            assert y.array[i].tolist() == [values[i - lane + j] if good else values[i], good]


def test_shuffle_waits_for_a_way_round_and_knows_its_members():
    # Odd lanes go another way first, to code that lies behind the shuffle.
    body = """mov.u32 %r2, 100; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 1; @%p1 bra ODD;
        BACK: add.u32 %r2, %r2, %r1; shfl.sync.bfly.b32 %r4, %r2, 1, 31, -1;
        mad.wide.u32 %q1, %r1, 4, %q1; st.global.u32 [%q1], %r4; ret;
        ODD: mov.u32 %r2, 500; bra BACK;"""
    y = Buffer.poison(32, np.uint32)
    run_kernel(body, y)
    assert y.array.tolist() == [(500 if i % 2 == 0 else 100) + (i ^ 1) for i in range(32)]
    halves = "setp.lt.u32 %p1, %r1, 16; @!%p1 ret; shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff;"
    run_kernel(halves + "mad.wide.u32 %q1, %r1, 4, %q1; st.global.u32 [%q1], %r2;", y)
    assert y.array[:16].tolist() == [i ^ 1 for i in range(16)]
    with pytest.raises(PtxError, match=r"line \d+: .*reads lane 16, which takes no part.*lane 0 of warp 0"):
        run_kernel("shfl.sync.bfly.b32 %r2, %r1, 16, 31, 0xffff;", y, block=16)


def test_votes_and_barrier_reductions():
    y = Buffer.poison((64, 5), np.uint32)
    body = """and.b32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 1; mad.wide.u32 %q1, %r1, 20, %q1;
        vote.sync.ballot.b32 %r3, %p1, -1; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r4, 1, 0, %p2;
        vote.sync.all.pred %p3, %p1, -1; selp.u32 %r5, 1, 0, %p3; setp.gt.u32 %p4, %r1, 39;
        bar.red.popc.u32 %r6, 0, %p4; bar.red.or.pred %p5, 0, %p4; selp.u32 %r7, 1, 0, %p5;
        st.global.u32 [%q1], %r3; st.global.u32 [%q1+4], %r4; st.global.u32 [%q1+8], %r5;
        st.global.u32 [%q1+12], %r6; st.global.u32 [%q1+16], %r7;"""
    run_kernel(body, y, block=64)
    assert (y.array == [0x22222222, 1, 0, 24, 1]).all()


def test_ldmatrix_plain_and_transposed():
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    put = COPY + "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%q3]; st.shared.v4.u32 [%r2], {%r5, %r6, %r7, %r8};"
    for trans in ("", ".trans"):
        y = Buffer.poison((32, 4, 2), np.uint16)
        body = f"""{put} ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r5, %r6, %r7, %r8}}, [%r2];
            mad.wide.u32 %q4, %r1, 16, %q2; st.global.v4.u32 [%q4], {{%r5, %r6, %r7, %r8}};"""
        run_kernel(body, x, y)
        for lane, j in itertools.product(range(32), range(4)):
            matrix = x[j].T if trans else x[j]
            pair = matrix[lane // 4, 2 * (lane % 4) :][:2]
            assert y.array[lane, j].tolist() == pair.tolist()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_mma_of_exact_values(kind):
    rng = np.random.default_rng(RNG_SEED)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((16, 16), (16, 8)))
    c = rng.integers(-99, 99, (16, 8)).astype(np.float32)
    bits = f32_to_bf16 if kind == "bf16" else lambda v: v.astype(np.float16).view(np.uint16)
    group, quad = np.arange(32)[:, None] // 4, np.arange(32)[:, None] % 4
    two = np.arange(2)
    # the fragments as the PTX ISA draws them: a0 a1, a2 a3, ... of lane (group, quad)
    of_a = [bits(a)[group + 8 * (r % 2), 2 * quad + two + 8 * (r // 2)] for r in range(4)]
    of_b = [bits(b)[2 * quad + two + 8 * r, group] for r in range(2)]
    of_c = [c[group + 8 * r, 2 * quad + two] for r in range(2)]
    left, right, sums = (np.ascontiguousarray(np.concatenate(f, axis=1)) for f in (of_a, of_b, of_c))
    y = Buffer.poison((32, 4), np.float32)
    body = f"""mad.wide.u32 %q5, %r1, 16, %q1; ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%q5];
        mad.wide.u32 %q6, %r1, 8, %q2; ld.global.v2.u32 {{%r6, %r7}}, [%q6];
        mad.wide.u32 %q7, %r1, 16, %q3; ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%q7];
        mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32
            {{%f1, %f2, %f3, %f4}}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}}, {{%f1, %f2, %f3, %f4}};
        mad.wide.u32 %q8, %r1, 16, %q4; st.global.v4.f32 [%q8], {{%f1, %f2, %f3, %f4}};"""
    run_kernel(body, left, right, sums, y)
    want = a @ b + c
    assert y.array.tolist() == np.concatenate([want[group + 8 * r, 2 * quad + two] for r in range(2)], 1).tolist()
    with pytest.raises(PtxError, match="a lane of the warp has exited"):
        run_kernel("setp.eq.u32 %p1, %r1, 9; @%p1 ret;" + body, left, right, sums, y)
