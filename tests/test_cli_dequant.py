"""``dequant`` of the command line, in-process: what it writes, and what it leaves alone."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cbquant
from cbquant.cli import dequant as dequant_command
from cbquant.cli import main, tensors, writers
from tests import gguf_bytes as gb
from tests.cli_files import (
    PLAIN,
    finite_blocks,
    run_error,
    run_json,
    write_hostile,
)


@pytest.fixture
def hostile(tmp_path):
    """Alone in its folder."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    return write_hostile(folder / "hostile.gguf")


def check_stored(array, file, name, dtype="float32"):
    """An array that `dequant` stored has the reference's bits, those of bfloat16 as uint16; integers stay."""
    info = file.infos[name]
    if info.format == "i32":
        np.testing.assert_array_equal(array, file[name], strict=True)
        return
    values = cbquant.reference.dequant(tensors.raw_bytes(file, name), info.format, info.shape, dtype)
    cbquant.testing.assert_bits_equal(array, values, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("target", ["folder", "arrays.npz"])
def test_dequant_stores_the_values_of_the_reference(model, tmp_path, capsys, dtype, target):
    target = tmp_path / target
    assert main(["dequant", str(model), "-o", str(target), "--dtype", dtype]) == 0
    captured = capsys.readouterr()
    assert "9 tensors" in captured.out
    assert ("uint16" in captured.err) == (dtype == "bfloat16")
    with cbquant.open(model) as file:
        for name in file:
            if target.suffix:
                with np.load(target) as archive:
                    assert len(archive) == len(file)
                    array = archive[name]
            else:
                array = np.load(target / f"{name}.npy")
            check_stored(array, file, name, dtype)


def test_dequant_writes_one_tensor_to_an_npy_file(model, tmp_path, capsys):
    target = tmp_path / "one.npy"
    report = run_json(capsys, "dequant", model, "k", "-o", target)
    assert report["bytes"] == 2 * 256 * 4
    (tensor,) = report["tensors"]
    assert report["seconds"] >= 0
    assert (tensor["name"], tensor["format"], tensor["key"]) == ("k", "q6_k", None)
    with cbquant.open(model) as file:
        check_stored(np.load(tensor["path"]), file, "k")
    assert "holds one array, not 2" in run_error(capsys, "dequant", model, "blk.*", "-o", tmp_path / "two.npy")


def test_dequant_takes_names_on_both_sides_of_an_option(model, tmp_path, capsys):
    report = run_json(capsys, "dequant", model, "k", "-o", tmp_path / "x.npz", "blk.1.*", "norm")
    assert [t["name"] for t in report["tensors"]] == ["blk.1.attn_q.weight", "k", "norm"]
    with np.load(tmp_path / "x.npz") as archive:
        assert sorted(archive) == sorted(t["key"] for t in report["tensors"])


def test_dequant_keeps_integers(model, tmp_path, capsys):
    report = run_json(capsys, "dequant", model, "ids", "-o", tmp_path / "ids.npy", "--dtype", "float16")
    assert report["tensors"][0]["dtype"] == "int32"
    np.testing.assert_array_equal(np.load(tmp_path / "ids.npy"), PLAIN["ids"], strict=True)


@pytest.mark.parametrize("threads", [1, 3])
def test_dequant_in_slices_gives_the_same(model, tmp_path, monkeypatch, threads):
    monkeypatch.setattr(tensors, "_SLICE_ELEMENTS", 256)
    assert main(["dequant", str(model), "-o", str(tmp_path / "out"), "--threads", str(threads)]) == 0
    with cbquant.open(model) as file:
        for name in file:
            check_stored(np.load(tmp_path / "out" / f"{name}.npy"), file, name)


def test_dequant_of_scalar_and_empty_tensors(tmp_path):
    path = tmp_path / "sample.gguf"
    path.write_bytes(gb.sample())
    out = tmp_path / "out"
    assert main(["dequant", str(path), "-o", str(out), "--skip-unknown"]) == 0
    assert np.load(out / "scalar.npy").item() == -0.25
    assert np.load(out / "scalar.npy").shape == ()
    assert np.load(out / "empty.npy").shape == (4, 0)[::-1]
    assert np.load(out / "bytes.npy").dtype == np.int8


def test_dequant_overwrites_only_when_told(model, tmp_path, capsys):
    for target, existing in ((tmp_path / "out", "out/k.npy"), (tmp_path / "a.npz", "a.npz")):
        argv = ["dequant", model, "norm", "k", "-o", target]
        (tmp_path / existing).parent.mkdir(exist_ok=True)
        (tmp_path / existing).write_bytes(b"precious")
        capsys.readouterr()
        assert "exists already" in run_error(capsys, *argv)
        assert (tmp_path / existing).read_bytes() == b"precious"
        assert not (tmp_path / "out" / "norm.npy").exists()
        assert main([*map(str, argv), "--force"]) == 0
        assert (tmp_path / existing).read_bytes() != b"precious"
        (tmp_path / "out" / "norm.npy").unlink(missing_ok=True)


def test_dequant_does_not_write_into_a_file_as_if_a_folder(model, capsys):
    assert "File exists" in run_error(capsys, "dequant", model, "-o", model)
    assert "no such folder" in run_error(capsys, "dequant", model, "-o", model.parent / "none" / "x.npz")


@pytest.mark.parametrize("target", ["out", "out.npz", "out.npy"])
def test_dequant_leaves_nothing_half_written(model, tmp_path, capsys, monkeypatch, target):
    def interrupted(raw, fmt, dtype, threads):
        yield np.zeros(256, np.float32)
        raise KeyboardInterrupt

    monkeypatch.setattr(dequant_command, "decode", interrupted)
    assert main(["dequant", str(model), "k", "-o", str(tmp_path / target)]) == 130
    assert capsys.readouterr().err == "cbquant: interrupted\n"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [model]


def test_dequant_names_cannot_leave_the_folder(hostile, capsys):
    folder = hostile.parent
    report = run_json(capsys, "dequant", hostile, "-o", folder / "out")
    assert sorted(folder.iterdir()) == [hostile, folder / "out"]
    assert {Path(t["path"]).parent for t in report["tensors"]} == {folder / "out"}
    values = [np.load(t["path"]).item() for t in report["tensors"]]
    assert values == list(range(len(report["tensors"])))
    report = run_json(capsys, "dequant", hostile, "-o", folder / "out.npz")
    with zipfile.ZipFile(folder / "out.npz") as archive:
        assert not any("/" in name or "\\" in name for name in archive.namelist())
        assert len(set(archive.namelist())) == len(values)
    with np.load(folder / "out.npz") as archive:
        assert [archive[t["key"]].item() for t in report["tensors"]] == values


def test_keys_of_ordinary_names_are_the_names():
    for name in ("blk.0.attn_q.weight", "token-embd_1+2", "Grüße"):
        assert writers.key(name) == name


@pytest.mark.parametrize("names", [("a", "a.npy"), ("a.npy", "a"), ("a.npy.npy", "a.npy", ".npy", "a%2Enpy")])
def test_a_name_that_ends_in_npy_is_found_under_its_key(tmp_path, capsys, names):
    path = tmp_path / "npy.gguf"
    infos = [gb.info(name, [1], gb.F32, 32 * number) for number, name in enumerate(names)]
    data = b"".join(np.float32(number).tobytes().ljust(32, b"\0") for number in range(len(names)))
    path.write_bytes(gb.gguf([], infos, data))
    report = run_json(capsys, "dequant", path, "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert [archive[t["key"]].item() for t in report["tensors"]] == list(range(len(names)))


def write_named(path, *names):
    path.write_bytes(gb.gguf([], [gb.info(name, [1], gb.F32, 32 * i) for i, name in enumerate(names)], bytes(64)))
    return path


@pytest.mark.parametrize(("name", "size"), [("n" * 252, 256), ("ü" * 126, 256), ("/" * 84, 256)])
def test_dequant_finds_names_too_long_before_it_writes(tmp_path, capsys, name, size):
    path, out = write_named(tmp_path / "long.gguf", "first", name), tmp_path / "out"
    text = f"the file of tensor {name!r} would have a name of {size} bytes, at most 255 are possible"
    assert run_error(capsys, "dequant", path, "-o", out) == text
    assert not out.exists()
    report = run_json(capsys, "dequant", path, "-o", tmp_path / "out.npz")
    assert [t["name"] for t in report["tensors"]] == ["first", name]
    fits = write_named(tmp_path / "fits.gguf", "first", "n" * 251)
    assert main(["dequant", str(fits), "-o", str(out)]) == 0


def test_dequant_finds_names_too_long_for_an_archive(tmp_path, capsys):
    path, out = write_named(tmp_path / "long.gguf", "n" * 65_532), tmp_path / "out.npz"
    assert "would have a name of 65,536 bytes, at most 65,535" in run_error(capsys, "dequant", path, "-o", out)
    assert list(tmp_path.iterdir()) == [path]
    write_named(path, "n" * 65_531)
    assert main(["dequant", str(path), "-o", str(out)]) == 0


def test_dequant_names_the_output_that_is_too_long_or_a_folder(model, tmp_path, capsys):
    long = tmp_path / ("x" * 252 + ".npy")
    assert run_error(capsys, "dequant", model, "k", "-o", long).startswith(f"{long} would have a name of 256 bytes")
    for name in ("folder.npy", "folder.npz", "out/k.npy"):
        (tmp_path / name).mkdir(parents=True)
        output = tmp_path / name if name.startswith("folder") else tmp_path / "out"
        for force in ([], ["--force"]):
            error = run_error(capsys, "dequant", model, "k", "-o", output, *force)
            assert error == f"{tmp_path / name}: is a folder, expected a file or nothing"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [model]


def test_dequant_raw_takes_regular_files_alone(tmp_path, capsys):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)  # without a writer, to open the pipe would be to wait
    try:
        for path in (fifo, "/dev/zero", tmp_path):
            error = run_error(capsys, "dequant", "--raw", path, "--format", "q8_0", "-o", tmp_path / "out.npy")
            assert error.startswith(f"{path}: expected a regular file")
    finally:
        os.close(keep)


def test_dequant_refuses_unknown_types_unless_told_to_skip(strange, tmp_path, capsys):
    argv = ["dequant", strange, "-o", tmp_path / "out.npz"]
    assert "'odd' is of the unknown GGUF type 99" in run_error(capsys, *argv)
    assert main([*map(str, argv), "--skip-unknown"]) == 0
    assert "left out: tensor 'odd'" in capsys.readouterr().err
    with np.load(tmp_path / "out.npz") as archive:
        assert list(archive) == ["even"]


@pytest.mark.parametrize("fmt", ["iq4_xs", "q4_0", "f16", "i16"])
def test_dequant_raw(tmp_path, capsys, fmt):
    raw = finite_blocks(fmt, (4, 512))
    source = tmp_path / "blocks.bin"
    source.write_bytes(raw.tobytes())
    argv = ["dequant", "--raw", source, "--format", fmt, "-o", tmp_path / "out.npy"]
    (flat,) = run_json(capsys, *argv)["tensors"]
    assert (flat["name"], flat["shape"]) == ("blocks", [2048])
    (tensor,) = run_json(capsys, *argv, "--shape", "2,1024", "--force")["tensors"]
    assert tensor["shape"] == [2, 1024]
    values = cbquant.reference.dequant(raw, fmt, (2, 1024))
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy").astype(np.float32), values)


def test_dequant_raw_tells_what_does_not_fit(tmp_path, capsys):
    source, out = tmp_path / "blocks.bin", ["-o", tmp_path / "out.npy"]
    source.write_bytes(bytes(34 * 3 + 1))
    argv = ["dequant", "--raw", source, "--format"]
    assert "103 bytes are not a multiple of 34" in run_error(capsys, *argv, "q8_0", *out)
    assert "did you mean iq4_" in run_error(capsys, *argv, "iq4", *out)
    source.write_bytes(bytes(34 * 3))
    assert "blocks.bin: expected 68 bytes" in run_error(capsys, *argv, "q8_0", "--shape", "2,32", *out)
    assert "not a multiple of 32" in run_error(capsys, *argv, "q8_0", "--shape", "6,16", *out)
    assert not (tmp_path / "out.npy").exists()
