"""The command line: what only a process can show: streams, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import gguf_bytes as gb

ROOT = Path(__file__).resolve().parent.parent


def command(*argv):
    return [sys.executable, "-X", "dev", "-W", "error", "-m", "cbquant", *map(str, argv)]


def environment(env):
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **(env or {})}


def run_process(*argv, env=None):
    return subprocess.run(command(*argv), env=environment(env), capture_output=True, text=True, check=False)


def test_process_prints_json_and_exits_with_0(model):
    done = run_process("inspect", model, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["tensors"]) == 9


def test_process_exits_with_1_and_2(damaged):
    assert run_process("validate", damaged).returncode == 1
    done = run_process("inspect", damaged.with_name("none"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")
def test_a_full_disk_behind_stdout_is_told():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("info"),
            env=environment({"PYTHONUNBUFFERED": ""}),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "cbquant: error: stdout: No space left on device\n")


def test_an_impossible_environment_is_an_error():
    done = run_process("info", env={"CBQUANT_ISA": "mmx"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cbquant: error: CBQUANT_ISA")


def test_process_writes_names_to_a_stream_that_is_ascii(tmp_path):
    path = tmp_path / "names.gguf"
    path.write_bytes(gb.gguf([], [gb.info("Grüße", [1], gb.F32, 0)], bytes(4)))
    done = run_process("inspect", path, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert r"Gr\xfc\xdfe" in done.stdout


def test_process_is_quiet_when_its_reader_goes_away():
    with subprocess.Popen(
        command("formats", "--json"), env=environment(None), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_process_is_quiet_when_interrupted():
    # A shell that puts the tests into the background has them ignore the signal, and so would what they start.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from cbquant.cli import main; print('ready', flush=True); sys.exit(main(sys.argv[1:]))"
    argv = ["bench", "--formats", *["q4_0"] * 100_000, "--mib", "1"]
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code, *argv],
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until it measures: the arguments are many
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "cbquant: interrupted\n")


def run_shell(redirection, *argv):
    """A process whose streams the shell changes, and what is left of them."""
    shell = ["/bin/sh", "-c", f'"$@" {redirection}', "sh", *command(*argv)]
    return subprocess.run(shell, env=environment(None), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("redirection", ["2>&-", "0<&- 2>&-", ">&-", ">&- 2>&-"])
def test_process_does_without_streams_that_are_closed(model, redirection):
    done = run_shell(redirection, "validate", model)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("all finite" in done.stdout) == (">&-" not in redirection.split())


_FULL = pytest.param("2>/dev/full", marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full"))


@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", _FULL])
def test_process_prints_no_error_to_stdout(tmp_path, redirection):
    done = run_shell(redirection, "validate", tmp_path / "none")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_process_finds_damage_without_streams(damaged):
    assert run_shell(">&- 2>&-", "validate", damaged).returncode == 1


@pytest.mark.parametrize("target", ["out", "out.npz"])
def test_process_removes_what_is_half_written_when_terminated(model, tmp_path, target):
    code = """
import os, signal, sys
import numpy as np
from cbquant.cli import dequant, main

def decode(*args):
    yield np.zeros(256, np.float32)
    os.kill(os.getpid(), signal.SIGTERM)
    yield np.zeros(256, np.float32)

dequant.decode = decode
sys.exit(main(sys.argv[1:]))
"""
    argv = [sys.executable, "-X", "dev", "-W", "error", "-c", code, "dequant", model, "k", "-o", tmp_path / target]
    done = subprocess.run(argv, env=environment(None), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "cbquant: terminated\n")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [model]
