"""What the process around cbquant does: variables that change, signals, values that are no text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_other_threads_may_change_the_environment() -> None:
    """getenv beside setenv would crash: the variables come from os.environ."""
    code = """
import os, threading, cbquant
block, stop = bytes.fromhex("003c") + bytes(32), threading.Event()
def decode():
    while not stop.is_set():
        cbquant.dequant(block, "q8_0")
threads = [threading.Thread(target=decode) for _ in range(4)]
[t.start() for t in threads]
for i in range(14000):
    os.environ[f"V{i}"] = "x"
stop.set()
[t.join() for t in threads]
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "done")


def test_helpers_take_no_signals() -> None:
    """A signal that the program has blocked waits for it; a helper that took it would end the process."""
    code = """
import os, signal, numpy as np, cbquant
from cbquant import _core
cbquant.dequant(np.zeros(34 << 15, np.uint8), "q8_0", threads=4)
assert _core.pool_size() == 3
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigtimedwait({signal.SIGUSR1}, 10).si_signo == signal.SIGUSR1)
"""
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1")  # whose own threads do take them
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env=env
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True")


@pytest.mark.parametrize("value", [b"x" + "\u00e9".encode() * 50, b"\xff"])
@pytest.mark.parametrize("name", ["CBQUANT_ISA", "CBQUANT_NUM_THREADS"])
def test_a_value_that_is_no_text_is_named(name: str, value: bytes) -> None:
    code = "import cbquant\ntry: cbquant.info()\nexcept ValueError as error: print(ascii(str(error)))"
    env = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items()} | {name.encode(): value}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env, timeout=60
    )
    assert name in done.stdout
    assert "expected" in done.stdout
