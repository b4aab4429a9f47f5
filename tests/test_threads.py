"""How many threads a call gets, and the pool: what starts it, calls from many threads at once, fork."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from cbquant import _core, reference
from cbquant.testing import assert_bits_equal
from tests.paths import random_blocks
from tests.test_machine import run_python

FORMATS = ["q4_0", "q6_k", "iq2_xxs", "iq1_m", "mxfp4", "tq1_0", "f16"]
BIG = 2**20  # elements: past the size that stays on the caller's thread
Q8 = bytes.fromhex("0038") + bytes(range(32))

pytestmark = pytest.mark.usefixtures("_restore_threads")


def blocks_of(fmt: str, elements: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random blocks that repeat: at least `elements`, and one block more, so that the last piece is not whole."""
    n = elements // cbquant._formats.get(fmt).elements + 1
    few = random_blocks(fmt, min(n, 509), seed)
    return np.resize(few, n * (few.size // min(n, 509)))


# ---- the number of threads ----


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    cbquant.set_num_threads(None)
    return monkeypatch


@pytest.mark.parametrize("value", ["1", "3", "512"])
def test_environment_gives_the_number(env: pytest.MonkeyPatch, value: str) -> None:
    env.setenv("CBQUANT_NUM_THREADS", value)
    assert cbquant.info()["threads"] == int(value)


@pytest.mark.parametrize("value", ["0", "-1", "513", "9" * 40, "two", "1.5", "0x4", "4 cores", "4,2", " "])
def test_environment_must_be_a_number(env: pytest.MonkeyPatch, value: str) -> None:
    env.setenv("CBQUANT_NUM_THREADS", value)
    message = f"CBQUANT_NUM_THREADS: expected a number from 1 to {_core.MAX_THREADS}, got '{value}'"
    large = Q8 * (2**20 // len(Q8))  # a small call does not ask how many threads there are
    for call in (cbquant.info, lambda: cbquant.dequant(large, "q8_0"), lambda: cbquant.validate(Q8, "q8_0")):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
            call()
        assert str(caught.value) == message
    assert cbquant.dequant(Q8, "q8_0", threads=2)[2] == 1  # a call that names its own does not ask
    env.delenv("CBQUANT_NUM_THREADS")
    assert cbquant.dequant(Q8, "q8_0")[2] == 1


def test_import_does_not_read_the_environment() -> None:
    code = """
import cbquant
try:
    cbquant.info()
except ValueError as error:
    print(error)
"""
    expected = "CBQUANT_NUM_THREADS: expected a number from 1 to 512, got 'many'\n"
    assert run_python(code, CBQUANT_NUM_THREADS="many") == expected


def test_set_num_threads_comes_before_the_environment(env: pytest.MonkeyPatch) -> None:
    env.setenv("CBQUANT_NUM_THREADS", "3")
    cbquant.set_num_threads(2)
    assert cbquant.info()["threads"] == 2
    cbquant.set_num_threads(None)
    assert cbquant.info()["threads"] == 3
    env.setenv("CBQUANT_NUM_THREADS", "")
    assert cbquant.info()["threads"] == default_threads()


def default_threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _core.cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup")
    return min(cores, quota or cores, _core.MAX_THREADS)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_the_affinity_mask_counts_at_each_call() -> None:
    code = """
import os, cbquant
cores = os.sched_getaffinity(0)
print(cbquant.info()["threads"])
os.sched_setaffinity(0, {min(cores)})
print(cbquant.info()["threads"])
os.sched_setaffinity(0, cores)
print(cbquant.info()["threads"])
"""
    expected = default_threads()
    assert run_python(code, CBQUANT_NUM_THREADS="").split() == [str(expected), "1", str(expected)]


# ---- the pool ----

# What the processes below share. Their results must be right whatever the number of threads.
CHILD = """
import os, sys, threading, time
import numpy as np
def system_threads():
    return len(os.listdir("/proc/self/task"))
before = system_threads()
import cbquant
from cbquant import _core
blocks = np.resize(np.random.default_rng(0).integers(0, 256, 210 * 509, np.uint8), 210 * (2**20 // 256 + 1))
out_shape = blocks.size // 210 * 256
def decode(threads, out=None):
    return cbquant.dequant(blocks, "q6_k", out=out, threads=threads)
expected = decode(1).view(np.uint32)
def right(threads, out=None):
    return bool((decode(threads, out).view(np.uint32) == expected).all())
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_threads_start_at_the_first_large_call() -> None:
    code = """
print(system_threads() - before, _core.pool_size())
cbquant.dequant(blocks[: 210 * 1024], "q6_k", threads=8)
print(system_threads() - before, _core.pool_size())
for threads in (3, 2, 5, 4):
    assert right(threads)
    print(system_threads() - before, _core.pool_size())
"""
    printed = run_python(CHILD + code, OPENBLAS_NUM_THREADS="1").split("\n")
    assert printed == ["0 0", "0 0", "2 2", "2 2", "4 4", "4 4", ""]


def test_a_system_that_refuses_threads_gets_the_work_done() -> None:
    """Stacks of 2^46 bytes fit nowhere: pthread_create fails until the default is mended."""
    code = """
import ctypes
libc, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
def stacks_of(size):
    assert libc.pthread_attr_init(attributes) == 0
    assert libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(size)) == 0
    assert libc.pthread_setattr_default_np(attributes) == 0
if not hasattr(libc, "pthread_setattr_default_np"):
    raise SystemExit(print("no pthread_setattr_default_np"))
stacks_of(2**46)
print(right(4), _core.pool_size())
stacks_of(2**20)
print(right(4), _core.pool_size())
"""
    printed = run_python(CHILD + code)
    if printed == "no pthread_setattr_default_np\n":
        pytest.skip("only glibc lets the default size of a stack be changed")
    assert printed == "True 0\nTrue 3\n"


@pytest.mark.parametrize("fmt", FORMATS)
def test_results_do_not_depend_on_threads(fmt: str) -> None:
    blocks = blocks_of(fmt, BIG)
    expected = reference.dequant(blocks, fmt)
    for threads in (1, 2, 7):
        assert_bits_equal(cbquant.dequant(blocks, fmt, threads=threads), expected, fmt=fmt)


def test_validate_does_not_depend_on_threads() -> None:
    blocks = np.zeros((400_003, 34), np.uint8)
    bad = np.random.default_rng(0).choice(len(blocks), 100, replace=False)
    blocks[bad, 1] = 0x7C
    for threads in (1, 2, 7):
        assert np.array_equal(cbquant.validate(blocks, "q8_0", threads=threads), np.sort(bad))


@pytest.mark.parametrize("callers", [2, 8])
def test_calls_from_many_threads_at_once(callers: int) -> None:
    """Each caller has a format, blocks and an output of its own, and another number of threads each time."""
    work = [(fmt := FORMATS[i % len(FORMATS)], blocks_of(fmt, BIG, seed=i)) for i in range(callers)]
    expected = [reference.dequant(blocks, fmt).view(np.uint32) for fmt, blocks in work]
    barrier, wrong = threading.Barrier(callers), []

    def call(i: int) -> None:
        fmt, blocks = work[i]
        out = np.empty(expected[i].shape, np.float32)
        barrier.wait()
        for threads in (2, 4, 3, 1, 2):
            out.view(np.uint32).fill(0x5A5A5A5A)
            cbquant.dequant(blocks, fmt, out=out, threads=threads)
            same = (out.view(np.uint32) == expected[i]) | (np.isnan(out) & np.isnan(expected[i].view(np.float32)))
            if not same.all():
                wrong.append((fmt, threads))

    run_threads([threading.Thread(target=call, args=(i,)) for i in range(callers)])
    assert wrong == []


def run_threads(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_first_use_by_many_threads_at_once() -> None:
    """The choice of a level, the count of cores, the pool: nothing was made before the barrier falls."""
    code = """
import cbquant
from cbquant import _core
import threading
import numpy as np
blocks = np.resize(np.random.default_rng(0).integers(0, 256, 34 * 509, np.uint8), 34 * 32769)
barrier, results = threading.Barrier(8), [None] * 8
def call(i):
    barrier.wait()
    results[i] = cbquant.dequant(blocks, "q8_0", threads=None if i % 2 else 3).view(np.uint32)
assert _core.pool_size() == 0
threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
alone = cbquant.dequant(blocks, "q8_0", threads=1).view(np.uint32)
print(sum(np.array_equal(result, alone) for result in results), _core.pool_size())
"""
    assert run_python(code, CBQUANT_NUM_THREADS="2") == "8 2\n"


class Counter(threading.Thread):
    """Counts whenever it gets the GIL, and gives it back each time."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.stop = 0, False

    def run(self) -> None:
        while not self.stop:
            self.count += 1
            time.sleep(0)


@pytest.fixture
def counter() -> Iterator[Counter]:
    """With it no thread is made to give up the GIL: another one runs only where the GIL is released."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    counter = Counter()
    counter.start()
    yield counter
    counter.stop = True
    counter.join()
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", ["dequant", "nonfinite"])
def test_the_gil_is_released(counter: Counter, call: str, threads: int) -> None:
    """Of the core alone: NumPy's own functions, which the public ones call, release it too."""
    blocks = blocks_of("q8_0", 2**23)
    n = blocks.size // 34
    if call == "dequant":
        arguments: tuple[Any, ...] = (blocks, "q8_0", np.empty(n * 32, np.float32), "float32", threads)
    else:
        arguments = (blocks, "q8_0", np.empty(n, np.uint8), threads)
    function = getattr(_core, call)
    for _ in range(1000):  # a busy machine may not come to the counter at once
        before = counter.count
        function(*arguments)
        after = counter.count
        if after > before:
            return
    pytest.fail("no other thread ran while a call was under way")


# ---- fork ----

FORK = """
import multiprocessing, warnings
warnings.filterwarnings("ignore", "This process .*is multi-threaded", DeprecationWarning)  # as from Python 3.12 on
def status_of_child(work, seconds=30):
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_fork_after_use() -> None:
    """The child has none of the parent's threads, and starts its own; so has its own child."""
    code = """
def child():
    return _core.pool_size() == 0 and right(3) and _core.pool_size() == 2 and status_of_child(grandchild) == 0
def grandchild():
    return _core.pool_size() == 0 and right(2) and _core.pool_size() == 1
assert right(4)
print([status_of_child(child) for _ in range(3)])
print(right(4), _core.pool_size())
"""
    assert run_python(CHILD + FORK + code) == "[0, 0, 0]\nTrue 3\n"


@needs_fork
def test_fork_before_use() -> None:
    code = """
print([status_of_child(lambda: right(3)) for _ in range(3)], _core.pool_size())
print(right(2), _core.pool_size())
"""
    assert run_python(CHILD + FORK + code) == "[0, 0, 0] 0\nTrue 1\n"


@needs_fork
def test_fork_while_other_threads_decode() -> None:
    """At any moment of two other threads' calls: the child never waits for what only they could give."""
    code = """
stop, wrong = threading.Event(), []
def loop(threads):
    out = np.empty(out_shape, np.float32)
    while not stop.is_set():
        if not right(threads, out):
            wrong.append(threads)
loops = [threading.Thread(target=loop, args=(threads,)) for threads in (2, 3)]
for thread in loops: thread.start()
statuses = [status_of_child(lambda: right(2)) for _ in range(30)]
stop.set()
for thread in loops: thread.join()
print(set(statuses), wrong)
"""
    assert run_python(CHILD + FORK + code) == "{0} []\n"


@needs_fork
def test_multiprocessing_pool_of_forks() -> None:
    code = """
assert right(2)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map_async(right, [1, 2, 3, 2]).get(timeout=60))
    pool.close()
    pool.join()
"""
    assert run_python(CHILD + FORK + code) == "[True, True, True, True]\n"
