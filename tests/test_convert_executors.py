"""Conversions whose pieces are encoded by others: threads, processes, a Dask cluster."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import cbquant
from cbquant.convert import _quantize, quantize_file
from cbquant.convert._work import Piece, encode
from tests import convert_files as cf
from tests.conftest import ROOT


@pytest.fixture
def model(tmp_path):
    return cf.write_gguf(tmp_path / "model.gguf", cf.arrays())


@pytest.fixture
def whole(model, tmp_path_factory):
    """The bytes of a conversion in one process, in one go."""
    path = tmp_path_factory.mktemp("whole") / "new.gguf"
    quantize_file(model, path, "q4_0", imatrix={cf.V: np.arange(64)})
    return path.read_bytes()


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 64 * 8)


class Counting(Executor):
    """Runs one piece at a time, and notes how many were waiting."""

    def __init__(self):
        self.waiting, self.most = 0, 0
        self._pool = ThreadPoolExecutor(1)

    def submit(self, fn, /, *args, **kwargs):
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        return self._pool.submit(self._run, fn, *args)

    def _run(self, fn, *args):
        self.waiting -= 1
        return fn(*args)

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._pool.shutdown(wait)


def spawning_pool(workers=2):
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize(
    "make", [lambda: ThreadPoolExecutor(3), spawning_pool, Counting], ids=["threads", "processes", "other"]
)
def test_the_bytes_are_those_of_one_process(model, tmp_path, whole, small_pieces, make):
    dst = tmp_path / "new.gguf"
    with make() as executor:
        report = quantize_file(model, dst, "q4_0", imatrix={cf.V: np.arange(64)}, executor=executor)
    assert dst.read_bytes() == whole
    assert report.bytes_after == len(whole)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_pieces_in_flight_are_bounded(model, tmp_path, small_pieces, limit):
    with Counting() as executor:
        quantize_file(model, tmp_path / "new.gguf", "q4_0", executor=executor, in_flight=limit)
    assert 1 <= executor.most <= limit


def test_workers_use_one_thread_unless_told(model, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(cbquant, "quantize", cf.fake_quantize(calls))
    with ThreadPoolExecutor(1) as executor:
        for threads in (None, 2):
            calls.clear()
            quantize_file(model, tmp_path / "new.gguf", "q4_0", executor=executor, threads=threads, overwrite=True)
            assert {call[-1] for call in calls[1:]} == {threads or 1}


class Dying(Executor):
    """A pool of processes one of which is told to die, in place of its fifth piece."""

    def __init__(self):
        self._pool, self._count = spawning_pool(1), 0

    def submit(self, fn, /, *args, **kwargs):
        self._count += 1
        return self._pool.submit(os._exit, 1) if self._count == 5 else self._pool.submit(fn, *args)

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._pool.shutdown(wait)


def test_what_a_dead_pool_has_finished_is_not_lost(model, tmp_path, whole, small_pieces):
    dst, importance = tmp_path / "new.gguf", {cf.V: np.arange(64)}
    with Dying() as executor, pytest.raises(BrokenExecutor):
        quantize_file(model, dst, "q4_0", imatrix=importance, executor=executor, in_flight=2)
    assert not dst.exists()
    report = quantize_file(model, dst, "q4_0", imatrix=importance)
    assert report.resumed >= 3 * 8 * 36
    assert dst.read_bytes() == whole


def test_weights_that_are_not_finite_are_told_from_afar(tmp_path):
    arrays = cf.arrays()
    arrays[cf.V][31, 2] = np.inf
    src = cf.write_gguf(tmp_path / "model.gguf", arrays)
    with spawning_pool(1) as executor, pytest.raises(ValueError, match=r"inf at \(31, 2\) of shape \(32, 64\)"):
        quantize_file(src, tmp_path / "new.gguf", "q4_0", executor=executor)
    assert cf.leftovers(tmp_path) == []


class Failing(Executor):
    """Finishes two pieces, then fails."""

    def __init__(self, error):
        self.error, self.count = error, 0

    def submit(self, fn, /, *args, **kwargs):
        self.count += 1
        future = Future()
        if self.count == 3:
            future.set_exception(self.error)
        else:
            future.set_result(fn(*args))
        return future


@pytest.mark.parametrize(
    "error", [OSError("no such file there"), ValueError("another file there"), KeyboardInterrupt()]
)
def test_a_failure_elsewhere_keeps_what_is_done(model, tmp_path, error):
    dst = tmp_path / "new.gguf"
    with pytest.raises(type(error)):
        quantize_file(model, dst, "q4_0", executor=Failing(error), in_flight=3)
    assert quantize_file(model, dst, "q4_0").resumed > 0


class Changing(Executor):
    """Gives something else than the bytes of a piece."""

    def __init__(self, change):
        self.change = change

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(self.change(fn(*args)))
        return future


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda data: data[:-1], r"\d+ of uint8"),
        (lambda data: data.astype(np.int8), r"\d+ of int8"),
        (lambda data: data.astype(np.float32), r"\d+ of float32"),
        (lambda data: data.tobytes() + b"x", r"\d+ of uint8"),
        (lambda data: list(data), "list"),
        (lambda data: None, "NoneType"),
    ],
)
def test_what_an_executor_gives_is_checked(model, tmp_path, change, got):
    message = rf"executor: tensor 'token_embd.weight', rows 0 to 39: expected 1440 bytes, uint8, got {got}"
    with pytest.raises(RuntimeError, match=message):
        quantize_file(model, tmp_path / "new.gguf", "q4_0", executor=Changing(change), in_flight=1)
    assert not (tmp_path / "new.gguf").exists()
    assert quantize_file(model, tmp_path / "new.gguf", "q4_0").resumed == 0


def test_an_executor_may_give_bytes(model, tmp_path, whole):
    options = {"imatrix": {cf.V: np.arange(64)}, "executor": Changing(lambda data: data.tobytes())}
    quantize_file(model, tmp_path / "new.gguf", "q4_0", **options)
    assert (tmp_path / "new.gguf").read_bytes() == whole


def piece(model, **changes):
    info = cbquant.open(model).infos[cf.V]
    file = ((str(model), model.stat().st_size),)
    values = (file, cf.V, info.shape, info.offset, info.nbytes, 0, 32, 0, 64, "f32", "q4_0", None)
    return Piece(*values, None, "reference", "raise", 1, cbquant.__version__)._replace(**changes)


def test_a_piece_is_small_and_checked_where_it_is_done(model):
    sent = pickle.dumps((encode, piece(model, weights=np.ones(64, np.float32))))
    assert len(sent) < 2000
    function, received = pickle.loads(sent)
    expected = cbquant.quantize(cf.arrays()[cf.V], "q4_0", np.ones(64, np.float32))
    np.testing.assert_array_equal(function(received), expected.reshape(-1))
    with pytest.raises(ValueError, match=r"cbquant is .* here, and 9\.9 where the work was planned"):
        encode(piece(model, version="9.9"))
    with pytest.raises(ValueError, match=r"model\.gguf: expected a file of 1 bytes, got one of \d+"):
        encode(piece(model, sizes=((str(model), 1),)))
    with pytest.raises(FileNotFoundError):
        encode(piece(model, sizes=(("/nowhere/model.gguf", 1),)))


def test_a_dask_cluster_loses_nothing_when_a_worker_is_killed(model, tmp_path, whole):
    """In a process of its own, for the library's warnings are not ours."""
    pytest.importorskip("distributed")
    dst = tmp_path / "new.gguf"
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONWARNINGS", "PYTHONDEVMODE")}
    env |= {"PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}
    command = [sys.executable, "-m", "tests.convert_dask", str(model), str(dst)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["killed"]
    assert told["resumed"] == 0
    assert len(set(told["workers"])) == 2
    assert dst.read_bytes() == whole
