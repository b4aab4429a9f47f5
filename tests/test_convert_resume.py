"""Conversions that are stopped, and go on."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest

import cbquant
from cbquant.convert import _partial, _quantize, quantize_file
from cbquant.convert._partial import Partial, Span
from tests import convert_files as cf
from tests.conftest import ROOT

PARTS = [".new.gguf.cbquant-part", ".new.gguf.cbquant-state"]

#: Ends itself without a word after three pieces.
KILLED = """
import os, signal, sys
from cbquant.convert import quantize_file
calls = []
def stop(done, total, name):
    calls.append(name)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
quantize_file(sys.argv[1], sys.argv[2], "q4_0", progress=stop)
"""


class Stopped(Exception):
    """The conversion is stopped from within."""


@pytest.fixture
def model(tmp_path):
    return cf.write_gguf(tmp_path / "model.gguf", cf.arrays())


@pytest.fixture
def whole(model, tmp_path_factory):
    """The bytes of a conversion in one go."""
    path = tmp_path_factory.mktemp("whole") / "new.gguf"
    quantize_file(model, path, "q4_0")
    return path.read_bytes()


def stop_after(count, change=lambda: None):
    calls = []

    def progress(done, total, name):
        calls.append(name)
        if len(calls) == count:
            change()
            raise Stopped

    return progress


def interrupted(model, dst, count=3, **options):
    with pytest.raises(Stopped):
        quantize_file(model, dst, "q4_0", progress=stop_after(count), **options)
    assert not dst.exists()
    return dst


@pytest.fixture
def part(model, tmp_path):
    """A conversion that was stopped after three of eight tensors."""
    return interrupted(model, tmp_path / "new.gguf")


def resumed(model, dst, fmt="q4_0", **options):
    """The names of the tensors that are done now."""
    names = []
    report = quantize_file(model, dst, fmt, progress=lambda done, total, name: names.append(name), **options)
    assert cf.leftovers(dst.parent) == []
    finished = [t.bytes_after for t in report.tensors if t.name not in names]
    assert report.resumed == sum(finished)
    return names


def test_a_killed_conversion_goes_on(model, tmp_path, whole):
    dst = tmp_path / "new.gguf"
    command = [sys.executable, "-c", KILLED, str(model), str(dst)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(os.listdir(tmp_path)) == [*PARTS, "model.gguf"]
    assert resumed(model, dst) == list(cf.arrays())[3:]
    assert dst.read_bytes() == whole


def test_progress_counts_what_is_left(model, part):
    calls = []
    quantize_file(model, part, "q4_0", progress=lambda *call: calls.append(call))
    infos = cbquant.open(model).infos
    assert [name for *_, name in calls] == list(infos)[3:]
    assert [done for done, *_ in calls] == list(np.cumsum([infos[name].nbytes for *_, name in calls]))
    assert {total for _, total, _ in calls} == {calls[-1][0]}


def test_it_can_be_stopped_again_and_again(model, part, whole):
    for left in (3, 2):
        interrupted(model, part, count=left)
    assert resumed(model, part) == []
    assert part.read_bytes() == whole


def test_pieces_of_a_tensor_are_resumed(model, tmp_path, monkeypatch, whole):
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 64 * 16)
    dst = interrupted(model, tmp_path / "new.gguf", count=5)
    report = quantize_file(model, dst, "q4_0")
    assert report.resumed == (40 + 2 * 16) * 36
    assert dst.read_bytes() == whole


def touch(model, dst):
    status = model.stat()
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    return {}


def replace(model, dst):
    status = model.stat()
    copy = shutil.copy(model, model.with_name("copy"))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(copy, model)
    return {}


@pytest.mark.parametrize(
    "change",
    [
        touch,
        replace,
        lambda model, dst: {"fmt": "q8_0"},
        lambda model, dst: {"nonfinite": "allow"},
        lambda model, dst: {"map": {"attn_v": "q8_0"}},
        lambda model, dst: {"imatrix": {cf.V: np.ones(64)}},
        lambda model, dst: dst.with_name(PARTS[0]).unlink() or {},
        lambda model, dst: dst.with_name(PARTS[1]).unlink() or {},
        lambda model, dst: dst.with_name(PARTS[1]).write_bytes(b"something else\n") and {},
        lambda model, dst: os.truncate(dst.with_name(PARTS[0]), 1000) or {},
    ],
    ids=["touched", "replaced", "format", "option", "map", "imatrix", "no-part", "no-state", "foreign", "cut-part"],
)
def test_it_begins_anew_where_anything_is_different(model, part, change, tmp_path_factory):
    options = change(model, part)
    names = resumed(model, part, **options)
    assert names == list(cf.arrays())
    other = tmp_path_factory.mktemp("other") / "new.gguf"
    quantize_file(model, other, **{"fmt": "q4_0", **options})
    assert part.read_bytes() == other.read_bytes()


def test_another_version_begins_anew(model, part, monkeypatch):
    monkeypatch.setattr(cbquant, "__version__", "9.9")
    assert resumed(model, part) == list(cf.arrays())


def test_what_the_disk_lost_is_encoded_again(model, part, whole):
    name = list(cf.arrays())[1]
    with part.with_name(PARTS[0]).open("r+b") as stream:
        stream.seek(whole.index(cbquant.quantize(cf.arrays()[name], "q4_0").tobytes()))
        stream.write(bytes(8))
    assert resumed(model, part) == [name, *list(cf.arrays())[3:]]
    assert part.read_bytes() == whole


@pytest.mark.parametrize(
    "tail", [b"5", b"5 0123", b"5 0123456x\n", b"\0\0\0\0\n", b"99999 00000000\n", b"-1 00000000\n"]
)
def test_a_torn_state_is_read_as_far_as_it_goes(model, part, whole, tail):
    state = part.with_name(PARTS[1])
    lines = state.read_bytes().splitlines(keepends=True)
    state.write_bytes(b"".join(lines[:-1]) + tail + lines[-1])
    names = list(cf.arrays())
    assert resumed(model, part) in (names[2:], names[3:])
    assert part.read_bytes() == whole


def test_two_conversions_do_not_share_a_file(model, tmp_path, whole):
    dst, errors = tmp_path / "new.gguf", []

    def meanwhile(done, total, name):
        with pytest.raises(BlockingIOError, match=r"another conversion is writing this file.*new\.gguf") as error:
            quantize_file(model, dst, "q4_0")
        errors.append(error)

    quantize_file(model, dst, "q4_0", progress=meanwhile)
    assert len(errors) == 8
    assert dst.read_bytes() == whole


def test_file_systems_without_locks_do(model, tmp_path, monkeypatch, whole):
    def flock(descriptor, how):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(_partial.fcntl, "flock", flock)
    quantize_file(model, tmp_path / "new.gguf", "q4_0")
    assert (tmp_path / "new.gguf").read_bytes() == whole


def test_a_full_disk_is_told_before_the_work(model, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**6, 10**6 - 1000, 1000)
    monkeypatch.setattr(_partial.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"no room for \d+ bytes") as error:
        quantize_file(model, tmp_path / "new.gguf", "q4_0")
    assert error.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == ["model.gguf"]


def test_a_full_disk_takes_no_finished_work_away(model, part, monkeypatch, whole):
    before = [part.with_name(name).read_bytes() for name in PARTS]
    with monkeypatch.context() as patch:
        usage = namedtuple("usage", "total used free")(10**6, 10**6 - 1000, 1000)
        patch.setattr(_partial.shutil, "disk_usage", lambda path: usage)
        with pytest.raises(OSError, match=r"no room for \d+ bytes"):
            quantize_file(model, part, "q4_0")
    assert [part.with_name(name).read_bytes() for name in PARTS] == before
    assert resumed(model, part) == list(cf.arrays())[3:]
    assert part.read_bytes() == whole


def test_padding_is_zeros_again(tmp_path):
    tensors = {f"{number}.weight": np.ones((1, 33), np.float32) for number in range(5)}
    model = cf.write_gguf(tmp_path / "model.gguf", tensors)
    dst = interrupted(model, tmp_path / "new.gguf")
    part = dst.with_name(PARTS[0])
    quantize_file(model, tmp_path / "whole", "q4_0")
    whole = (tmp_path / "whole").read_bytes()
    pads = np.ones(len(whole), np.uint8)
    for info in cbquant.open(tmp_path / "whole").infos.values():
        pads[info.offset : info.offset + info.nbytes] = 0
    data = np.fromfile(part, np.uint8)
    data[pads == 1] = 0xAA
    data.tofile(part)
    assert quantize_file(model, dst, "q4_0").resumed == 3 * 132
    assert dst.read_bytes() == whole


def test_a_source_that_changes_meanwhile_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"src: .*model\.gguf was changed while it was read"):
        quantize_file(model, tmp_path / "new.gguf", "q4_0", progress=lambda *call: touch(model, None))
    assert os.listdir(tmp_path) == ["model.gguf"]


def test_no_descriptor_stays_open(model, tmp_path):
    gc.collect()  # what other tests left is not closed in the midst of this one
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    interrupted(model, tmp_path / "new.gguf")
    resumed(model, tmp_path / "new.gguf")
    assert sys.platform != "linux" or len(os.listdir("/proc/self/fd")) == before


def test_partial_refuses_a_piece_of_another_size(tmp_path):
    partial = Partial(tmp_path / "x", b"key", b"head", 12, [Span(4, 8)])
    try:
        with pytest.raises(ValueError, match="piece 0: expected 8 bytes"):
            partial.write(0, np.zeros(7, np.uint8))
        partial.write(0, np.arange(8, dtype=np.uint8))
        partial.commit()
    finally:
        partial.close()
    assert (tmp_path / "x").read_bytes() == b"head" + bytes(range(8))
