"""The PTX interpreter as a whole: what it reports, and CUDA kernels as nvcc compiles them.

Its single instructions are tested in tests/ptx.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests import ptx
from tests.paths import ROOT
from tests.ptx.nvcc import compile_ptx, find_nvcc
from tests.ptx.rounding import bf16_to_f32, f32_to_bf16
from tests.ptx.snippet import kernel

SOURCE = Path(ptx.__file__).parent / "kernels.cu"
RNG_SEED = 7

# --- what it reports ----------------------------------------------------------------------------------------


def run_body(body: str, *args, block=32, grid=1, **options) -> None:
    """`body` finds the first two arguments in %q1 and %q2, and the thread's number in %r1."""
    params = ", ".join(f".param .u64 p{i}" for i in range(len(args)))
    loads = " ".join(f"ld.param.u64 %q{i + 1}, [p{i}];" for i in range(len(args)))
    ptx.run(ptx.load(kernel(f"{loads} mov.u32 %r1, %tid.x;\n{body}", params)), "k", grid, block, args, **options)


STORE = "mad.wide.u32 %q3, %r1, 4, %q1; st.global.u32 [%q3], %r1;"


def test_out_of_bounds_names_kernel_line_thread_and_address():
    y = ptx.Buffer(np.zeros(70, np.uint32), "y")
    run_body(STORE, y, block=(32, 4))  # all rows write the first 32
    with pytest.raises(ptx.PtxError) as caught:
        run_body("mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 32, %r1; " + STORE, y, grid=3)
    error = caught.value
    assert (error.kernel, error.lane, error.address) == ("k", 6, y.address + 280)
    assert re.search(r"^k: line 8: .*st\.global\.u32 \[%q3\], %r1;: out of bounds: ", str(error))
    assert f"4 bytes of global memory at 0x{y.address + 280:x}, byte 280 of 'y', which has 280" in str(error)
    assert str(error).endswith("block (2, 0, 0) thread (6, 0, 0) (lane 6 of warp 0)")
    assert error.line == 8


@pytest.mark.parametrize(
    ("body", "message"),
    {
        "before": (
            "ld.global.u32 %r2, [%q1+-4];",
            "out of bounds: 4 bytes of global memory at .* before everything",
        ),
        "null": ("mov.b64 %q2, 0; ld.global.u32 %r2, [%q2];", "out of bounds: .* at 0x0, before everything"),
        "last": ("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%q1+64];", "out of bounds: 16 bytes .* byte 64"),
        "misaligned": ("ld.global.u32 %r2, [%q1+2];", "misaligned: 4 bytes of global memory at 0x"),
        "vector": ("ld.global.v2.u32 {%r2, %r3}, [%q1+4];", "misaligned: 8 bytes"),
        "shared": (".shared .b8 s[8]; ld.shared.u32 %r2, [s+8];", "out of bounds: .* byte 8 of 's'"),
        "local": (".local .b8 s[8]; st.local.u32 [s+8], 0;", "out of bounds: .* of local memory"),
        "no dynamic": (
            "mov.b32 %r3, 4; ld.shared.u32 %r2, [%r3];",
            "out of bounds: .* of shared memory at 0x4",
        ),
        "generic": ("mov.b64 %q2, -8; ld.u64 %q3, [%q2];", "0xfffffffffffffff8 is in no state space"),
        "32 bits": ("cvt.u32.u64 %r2, %q1; ld.global.u32 %r3, [%r2];", "out of bounds"),
        "division": ("mov.b32 %r2, 0; div.u32 %r2, %r1, %r2;", "division by zero"),
        "trap": ("trap;", "trap; block"),
        "no end": ("LOOP: bra LOOP;", "still running after max_steps"),
    }.values(),
)
def test_what_hardware_would_refuse(body, message):
    with pytest.raises(ptx.PtxError, match=message):
        run_body(body, np.zeros(18, np.uint32), max_steps=1000)


def test_read_only_memory():
    x = np.zeros(32, np.uint32)
    x.flags.writeable = False
    with pytest.raises(ptx.PtxError, match="store into 'args\\[0\\]', which is read-only"):
        run_body(STORE, x)
    module = ptx.load(kernel("st.const.u32 [c], 1;", before=".const .u32 c;"))
    with pytest.raises(ptx.PtxError, match="store into 'c', which is read-only"):
        ptx.run(module, "k", 1, 1, [])


DIVERGENT = """setp.lt.u32 %p1, %r1, 40; @%p1 bra FIRST;
    bar.sync 0; bra DONE;
FIRST: bar.sync 0;
DONE: """


def test_divergent_barriers():
    with pytest.raises(ptx.PtxError, match=r"k: divergent barrier: 24 threads, from .*thread \(40, .*; 40 thr"):
        run_body(DIVERGENT, block=64)
    with pytest.raises(ptx.PtxError, match=r"divergent barrier: 31 threads.*wait at line .*shfl.*; 1 thr"):
        run_body("setp.eq.u32 %p1, %r1, 5; @%p1 bra A;\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nA: bar.sync 0;")
    with pytest.raises(ptx.PtxError, match=r"deadlock: 64 threads.* wait at line"):
        run_body("bar.sync 1, 96;", block=64)


def test_exited_threads_are_not_waited_for():
    y = ptx.Buffer.poison(40, np.uint32)
    run_body("setp.ge.u32 %p1, %r1, 40; @%p1 ret; bar.sync 0; " + STORE, y, block=64)
    assert y.array.tolist() == list(range(40))
    run_body("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 1, 32;", block=64)


def test_unknown_instructions_and_modifiers():
    with pytest.raises(NotImplementedError, match=r"unknown instruction 'frob\.u32': line 8: frob\.u32 %r1, %r2;"):
        run_body("frob.u32 %r1, %r2;")
    for body in ("ex2.approx.f32 %f1, %f2;", "div.full.f32 %f1, %f2, %f3;", "add.cc.u32 %r1, %r2, %r3;"):
        with pytest.raises(NotImplementedError, match=f"line 8: {re.escape(body)}"):
            run_body(body)
    with pytest.raises(NotImplementedError, match=r"%q1 has 64 bits where \.u32 is read: line 8"):
        run_body("add.u32 %r2, %r1, %q1;", np.zeros(1))
    for register in ("%clock", "%r20"):  # %r<20> is declared
        with pytest.raises(NotImplementedError, match=f"line 8: the register {register} is neither declared"):
            run_body(f"mov.u32 %r2, {register};")
    module = ptx.load(kernel("call vprintf;", before=".extern .func vprintf();"))
    with pytest.raises(NotImplementedError, match="call of 'vprintf', which has no body"):
        ptx.run(module, "k", 1, 1, [])


def test_unwritten_memory_is_poison():
    y = ptx.Buffer.poison((32, 3), np.uint32)
    body = """.shared .align 4 .b8 s[128]; .local .align 4 .b8 l[4];
        ld.shared.u32 %r2, [s]; ld.local.u32 %r3, [l];
        mad.wide.u32 %q1, %r1, 12, %q1; st.global.u32 [%q1], %r2; st.global.u32 [%q1+4], %r3;"""
    run_body(body, y)
    assert (y.array == 0xFFFFFFFF).all()
    # written with what happens to be the poison, and left out, are two things
    assert y.unwritten().tolist() == [3 * i + 2 for i in range(32)]


def test_arguments_are_checked():
    module = ptx.load(kernel("", ".param .u32 n, .param .u64 p, .param .f32 x, .param .b8 s[8]"))
    good = [3, np.zeros(4), 1.5, bytes(8)]
    ptx.run(module, "k", 1, 1, good)
    for place, value, error, message in (
        (0, 1 << 32, ValueError, r"args\[0\]: 4294967296 does not fit \.u32"),
        (0, 1.5, TypeError, r"args\[0\]: expected a \.u32 value, got float"),
        (0, np.zeros(4), TypeError, r"args\[0\]: expected a \.u32 value, got an array"),
        (1, "x", TypeError, r"args\[1\]: expected a \.u64 value, got str"),
        (1, np.zeros((4, 4))[:, 0], ValueError, r"args\[1\]: expected a C-contiguous ndarray"),
        (3, bytes(7), TypeError, r"args\[3\]: expected 8 bytes, got 7 bytes"),
    ):
        args = list(good)
        args[place] = value
        with pytest.raises(error, match=message):
            ptx.run(module, "k", 1, 1, args)
    with pytest.raises(TypeError, match="k has 4 parameters, got 3"):
        ptx.run(module, "k", 1, 1, good[:3])
    with pytest.raises(ValueError, match=r"kernel='j': expected one of \['k'\]"):
        ptx.run(module, "j", 1, 1, good)
    with pytest.raises(ValueError, match=r"block=.*expected at most 1024 threads, got 2048"):
        ptx.run(module, "k", 1, 2048, good)
    with pytest.raises(ValueError, match="grid=0: expected one to three positive integers"):
        ptx.run(module, "k", 0, 32, good)


def test_stats_count_lane_instructions():
    stats = Counter()
    body = "setp.lt.u32 %p1, %r1, 10; @%p1 add.u32 %r2, %r1, 1; " + STORE
    run_body(body, np.zeros(40, np.uint32), block=40, grid=3, stats=stats)
    assert stats["add.u32"] == 30
    assert stats["st.global.u32"] == 120
    assert stats["ret"] == 120


# --- kernels through nvcc -----------------------------------------------------------------------------------

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc not found")


@pytest.fixture(scope="module", params=["sm_80", "sm_90a", "sm_100", "sm_120"])
def compiled(request):
    """compiled(defines...) -> the module of kernels.cu for an architecture."""

    @functools.cache
    def build(*defines: str) -> ptx.Loaded:
        return ptx.load(compile_ptx(SOURCE, request.param, defines=defines, cache_dir=ROOT / "build" / "ptx"))

    return build


@needs_nvcc
def test_saxpy_with_a_tail(compiled):
    rng = np.random.default_rng(RNG_SEED)
    x, y = rng.normal(size=(2, 1000)).astype(np.float32)
    want = (np.float64(x) * np.float64(np.float32(0.3)) + y).astype(np.float32)  # no double rounding here
    ptx.run(compiled(), "saxpy", 8, 128, [0.3, x, y, 1000])
    assert y.tolist() == want.tolist()


@needs_nvcc
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_transpose_through_shared_memory(compiled, seed):
    x = np.arange(50 * 70, dtype=np.uint32).reshape(50, 70)
    y = ptx.Buffer.poison((70, 50), np.uint32)
    ptx.run(compiled(), "transpose", (3, 2), (32, 32), [x, y, 50, 70], seed=seed)
    assert y.array.tolist() == x.T.tolist()


@needs_nvcc
def test_drifting_warps_find_a_missing_barrier(compiled):
    x = np.arange(64 * 64, dtype=np.uint32).reshape(64, 64)
    wrong = []
    for seed in range(3):
        y = ptx.Buffer.poison((64, 64), np.uint32)
        ptx.run(compiled("NO_SYNC"), "transpose", (2, 2), (32, 32), [x, y, 64, 64], seed=seed)
        wrong.append((y.array != x.T).any())
    assert any(wrong)


@needs_nvcc
def test_block_sum_by_shuffles(compiled):
    x = np.random.default_rng(RNG_SEED).integers(-1000, 1000, (5, 256), np.int32)
    y = ptx.Buffer.poison(5, np.int32)
    ptx.run(compiled(), "block_sum", 5, 256, [x, y])
    assert y.array.tolist() == x.sum(axis=1).tolist()


def sums_across(x: np.ndarray, chunk: int, chunks: int) -> np.ndarray:
    padded = np.zeros(chunk * chunks, x.dtype)
    padded[: len(x)] = x
    padded = padded.reshape(chunks, chunk)
    return (padded + padded[:, ::-1]).reshape(-1)[: len(x)]


@needs_nvcc
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_double_buffer_by_async_copies(compiled, seed):
    x = np.random.default_rng(RNG_SEED).integers(0, 1 << 31, 4 * 64 * 5 - 3, np.uint32)
    y = ptx.Buffer.poison(len(x), np.uint32)
    ptx.run(compiled(), "double_buffer", 1, 64, [x, y, len(x), 5], smem=2 * 16 * 64, seed=seed)
    assert y.array.tolist() == sums_across(x, 256, 5).tolist()


@needs_nvcc
@pytest.mark.parametrize("planted", ["NO_WAIT", "NO_SYNC_AFTER"])
def test_drift_finds_unordered_async_copies(compiled, planted):
    x = np.random.default_rng(RNG_SEED).integers(0, 1 << 31, 4 * 128 * 8, np.uint32)
    module, wrong = compiled(planted), []
    for seed in range(3):
        y = ptx.Buffer.poison(len(x), np.uint32)
        ptx.run(module, "double_buffer", 1, 128, [x, y, len(x), 8], smem=2 * 16 * 128, seed=seed)
        wrong.append((y.array != sums_across(x, 512, 8)).any())
    assert any(wrong)


@needs_nvcc
def test_matrix_tile(compiled):
    a, b = (np.random.default_rng(RNG_SEED).normal(size=(2, 3, 16, 16)) / 4).astype(np.float32)
    a, b = f32_to_bf16(a), f32_to_bf16(np.ascontiguousarray(b[:, :, :8]))
    y = ptx.Buffer.poison((3, 16, 8), np.float32)
    ptx.run(compiled(), "matrix_tile", 3, 32, [a, b, y])
    want = bf16_to_f32(a).astype(np.float64) @ bf16_to_f32(b).astype(np.float64)
    np.testing.assert_allclose(y.array, want, rtol=1e-6, atol=1e-6)


@needs_nvcc
def test_tables_in_global_and_constant_memory(compiled):
    index = np.arange(60, dtype=np.uint8)
    grid, floats, constants = (ptx.Buffer.poison(60, t) for t in (np.uint64, np.uint32, np.int32))
    ptx.run(compiled(), "table_lookup", 1, 60, [index, grid, floats, constants])
    table = np.array([0x0807060504030201, 0xFFFEFDFCFBFAF9F8, 1 << 63, 42], np.uint64)
    assert grid.array.tolist() == table[index & 3].tolist()
    bits = np.array([1.5, -0.0, 1e-40], np.float32).view(np.uint32)
    assert floats.array.tolist() == bits[index % 3].tolist()
    assert constants.array.tolist() == np.array([-1, 2, -32768, 0, 0])[index % 5].tolist()


@needs_nvcc
def test_local_array_and_a_call(compiled):
    x = np.random.default_rng(RNG_SEED).integers(0, 1 << 32, (40, 8), np.uint32)
    by = np.arange(40, dtype=np.int32)
    y = ptx.Buffer.poison((40, 8), np.uint32)
    ptx.run(compiled(), "local_array", 1, 40, [x, by, y])
    want = []
    for row, n in zip(x.tolist(), by.tolist(), strict=True):
        first = row[n & 7]
        if n <= 20:
            first, row[n & 7] = 3 * first, n
        want.append([(row[(k + n) & 7] + first) % (1 << 32) for k in range(8)])
    assert y.array.tolist() == want


@needs_nvcc
def test_packed_halves_are_stored_whole(compiled):
    q = np.random.default_rng(RNG_SEED).integers(0, 1 << 32, 2 * 256, np.uint32)
    y = ptx.Buffer.poison(16 * 256, np.uint16)
    ptx.run(compiled(), "unpack_nibbles", 2, 128, [q, y])
    assert y.unwritten().tolist() == []
    bytes_ = q.view(np.uint8).reshape(256, 8)
    want = np.concatenate([bytes_ & 15, bytes_ >> 4], axis=1)
    assert y.array.reshape(256, 16).tolist() == want.tolist()


@needs_nvcc
def test_lost_stores_are_noticed(compiled):
    x = np.full(2 * 256, 0xFFFFFFFF, np.uint32)  # looks like poison where it is stored
    y = ptx.Buffer.poison(len(x), np.uint32)
    ptx.run(compiled(), "loses_stores", 2, 128, [x, y])
    assert y.array.tolist() == x.tolist()
    assert y.unwritten().tolist() == [255, 511]


@needs_nvcc
def test_batches_of_ctas_do_not_matter(compiled):
    module, results = compiled(), []
    x = np.random.default_rng(RNG_SEED).integers(-1000, 1000, (7, 64), np.int32)
    for together in (1, 3, None):
        y = ptx.Buffer.poison(7, np.int32)
        ptx.run(module, "block_sum", 7, 64, [x, y], ctas_at_once=together)
        results.append(y.array.tolist())
    assert results[0] == results[1] == results[2] == x.sum(axis=1).tolist()


@needs_nvcc
def test_compilation_is_cached_by_source_and_flags(tmp_path):
    source, cache = tmp_path / "one.cu", tmp_path / "cache"
    source.write_text("__global__ void one(int *x) { *x = N; }")
    first = compile_ptx(source, "sm_80", defines=["N=1"], cache_dir=cache)
    (kept,) = cache.iterdir()
    kept.write_text("from the cache")
    assert compile_ptx(source, "sm_80", defines=["N=1"], cache_dir=cache) == "from the cache"
    assert compile_ptx(source, "sm_80", defines=["N=2"], cache_dir=cache) != first
    source.write_text("__global__ void one(int *x) { *x = N + 5; }")
    assert compile_ptx(source, "sm_80", defines=["N=1"], cache_dir=cache) not in ("from the cache", first)
    x = np.zeros(1, np.int32)
    ptx.run(ptx.load(first), "one", 1, 1, [x])  # a C++ name finds its mangled kernel
    assert x.tolist() == [1]
    with pytest.raises(RuntimeError, match="error"):
        compile_ptx(source, "sm_80", cache_dir=cache)
