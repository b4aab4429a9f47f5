"""Where a conversion writes: nothing that is read, or is no model file, is ever replaced."""

from __future__ import annotations

import errno
import os
import stat

import numpy as np
import pytest

import cbquant
from cbquant.convert import _partial, quantize_file
from tests import convert_files as cf

SIDES = [".new.gguf.cbquant-part", ".new.gguf.cbquant-state"]


@pytest.fixture
def model(tmp_path):
    return cf.write_gguf(tmp_path / "model.gguf", cf.arrays())


@pytest.fixture
def dst(tmp_path):
    return tmp_path / "new.gguf"


def contents(folder):
    """Names and, of regular files, bytes: no FIFO is opened."""
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/null", path)], ids=["FIFO", "device"])
def test_only_regular_files_are_replaced(model, dst, make, overwrite):
    make(dst)
    before, kind = contents(dst.parent), dst.lstat().st_mode
    with pytest.raises(ValueError, match=r"dst: .*new\.gguf is no regular file, and is not replaced"):
        quantize_file(model, dst, "q4_0", overwrite=overwrite)
    assert contents(dst.parent) == before
    assert dst.lstat().st_mode == kind
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("side", SIDES)
def test_a_source_named_like_a_side_file_stays(model, dst, side):
    src = model.rename(dst.with_name(side))
    before = contents(dst.parent)
    message = rf"dst: .*{side}, which is written beside new\.gguf, is a file of the source"
    with pytest.raises(ValueError, match=message):
        quantize_file(src, dst, "q4_0")
    os.link(src, model)  # under another name too
    with pytest.raises(ValueError, match=message):
        quantize_file(model, dst, "q4_0")
    assert {name: data for name, data in contents(dst.parent).items() if name != model.name} == before


@pytest.mark.parametrize("name", ["new.gguf", *SIDES])
def test_the_importance_matrix_stays(model, dst, name):
    entry = b"\1\0\0\0" + len(cf.V).to_bytes(4, "little") + cf.V.encode() + b"\1\0\0\0\x40\0\0\0"
    imatrix = dst.with_name(name)
    imatrix.write_bytes(entry + np.ones(64, np.float32).tobytes())
    before = contents(dst.parent)
    for given in (imatrix, cbquant.convert.read_imatrix(imatrix)):
        with pytest.raises(ValueError, match=r"dst: .* is the importance matrix"):
            quantize_file(model, dst, "q4_0", imatrix=given, overwrite=True)
    assert contents(dst.parent) == before


@pytest.mark.parametrize("side", SIDES)
def test_side_files_follow_no_links(model, dst, side, monkeypatch):
    precious = dst.with_name("precious")
    precious.write_bytes(b"precious")
    path = dst.with_name(side)
    for make in (lambda: path.symlink_to(precious), lambda: path.symlink_to("absent"), lambda: os.mkfifo(path)):
        make()
        before = contents(dst.parent)
        with pytest.raises(ValueError, match=rf"dst: .*{side}, which is written beside new\.gguf, is no regular file"):
            quantize_file(model, dst, "q4_0")
        assert contents(dst.parent) == before
        with pytest.raises(OSError, match=side):  # one that comes after the check
            _partial.Partial(dst, b"key", b"head", 4, [])
        path.unlink()
    assert precious.read_bytes() == b"precious"
    assert not dst.with_name("absent").exists()


def test_side_files_with_other_names_are_not_written(model, dst):
    precious = dst.with_name("precious")
    precious.write_bytes(b"precious")
    state, part = dst.with_name(SIDES[1]), dst.with_name(SIDES[0])
    os.link(precious, state)
    with pytest.raises(OSError, match=r"expected a file of one name.*cbquant-state"):
        quantize_file(model, dst, "q4_0")
    state.unlink()
    part.unlink(missing_ok=True)
    os.link(precious, part)
    quantize_file(model, dst, "q4_0")
    assert precious.read_bytes() == b"precious"
    assert cf.leftovers(dst.parent) == []


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_appears_meanwhile_stays(model, dst, monkeypatch, has_links):
    def link(*paths):
        raise OSError(errno.EPERM, "no links here")

    if not has_links:
        monkeypatch.setattr(_partial.os, "link", link)
    else:  # it comes at the last moment
        monkeypatch.setattr(_partial, "check_replaceable", lambda path, overwrite: None)
    with pytest.raises(FileExistsError, match=r"new\.gguf"):
        quantize_file(model, dst, "q4_0", progress=lambda *call: dst.write_bytes(b"another's"))
    assert dst.read_bytes() == b"another's"
    monkeypatch.undo()
    report = quantize_file(model, dst, "q4_0", overwrite=True)  # the work is not lost
    assert report.resumed == sum(tensor.bytes_after for tensor in report.tensors)
    assert cf.leftovers(dst.parent) == []


def test_file_systems_without_links_do(model, dst, monkeypatch):
    def link(*paths):
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(_partial.os, "link", link)
    quantize_file(model, dst, "q4_0")
    assert sorted(contents(dst.parent)) == ["model.gguf", "new.gguf"]


def test_a_pipe_that_appears_meanwhile_stays(model, dst):
    def meanwhile(*call):
        if not dst.exists():
            os.mkfifo(dst)

    with pytest.raises(ValueError, match="is no regular file"):
        quantize_file(model, dst, "q4_0", overwrite=True, progress=meanwhile)
    assert dst.is_fifo()


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (b"new.gguf", TypeError, "expected a path, str or os.PathLike, got bytes"),
        (None, TypeError, "expected a path, .* got NoneType"),
        ("new\0.gguf", ValueError, "expected a path, got one with a NUL character"),
    ],
)
def test_paths_that_are_none(model, value, error, message):
    with pytest.raises(error, match=f"dst: {message}"):
        quantize_file(model, value, "q4_0")
    with pytest.raises(error, match=f"src: {message}"):
        quantize_file(value, model, "q4_0")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_disk_that_is_full_midway_is_named(model, dst, monkeypatch, number):
    write, calls = os.pwrite, []

    def pwrite(descriptor, data, offset):
        calls.append(offset)
        if len(calls) == 5:
            raise OSError(number, os.strerror(number))
        return write(descriptor, data, offset)

    monkeypatch.setattr(_partial.os, "pwrite", pwrite)
    with pytest.raises(OSError, match=r"new\.gguf\.cbquant-part") as caught:
        quantize_file(model, dst, "q4_0")
    assert caught.value.errno == number
    monkeypatch.undo()
    assert quantize_file(model, dst, "q4_0").resumed > 0
