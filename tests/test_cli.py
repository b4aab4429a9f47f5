"""The command line, in-process: inspect, validate, bench, info, formats."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

import cbquant
from cbquant.cli import bench, inspect, main, output, tensors
from tests import gguf_bytes as gb
from tests.cli_files import BLOCKS, PLAIN, run_error, run_json

# --- inspect -----------------------------------------------------------------------------------------------


def test_inspect_lists_every_tensor(model, capsys):
    assert main(["inspect", str(model)]) == 0
    out = capsys.readouterr().out
    for name in [*BLOCKS, *PLAIN, "brain"]:
        assert any(line.split()[0] == name for line in out.splitlines()[2:])
    assert "2 x 256" in out
    assert "6.562" in out
    assert out.splitlines()[-1].split()[0] == "total"


def test_inspect_json_agrees_with_the_file(model, capsys):
    report = run_json(capsys, "inspect", model)
    with cbquant.open(model) as file:
        assert [t["name"] for t in report["tensors"]] == list(file)
        for tensor in report["tensors"]:
            info = file.infos[tensor["name"]]
            assert (tensor["shape"], tensor["format"], tensor["tag"]) == (
                list(info.shape),
                info.format,
                info.tag,
            )
            assert (tensor["bytes"], tensor["offset"]) == (info.nbytes, info.offset)
            bits = next(f.bits_per_weight for f in cbquant.formats() if f.name == info.format)
            assert tensor["bits_per_weight"] == bits
    total = report["total"]
    assert total["tensors"] == len(report["tensors"])
    assert total["bytes"] == sum(t["bytes"] for t in report["tensors"])
    assert total["bits_per_weight"] == 8 * total["bytes"] / total["elements"]
    assert "metadata" not in report


def test_inspect_chooses_by_pattern(model, capsys):
    names = [t["name"] for t in run_json(capsys, "inspect", model, "--tensors", "blk.*")["tensors"]]
    assert names == [name for name in BLOCKS if name.startswith("blk.")]
    assert main(["inspect", str(model), "--tensors", "norm"]) == 0
    assert "1 of 9 tensors" in capsys.readouterr().out
    assert "matches 'blq.*'" in run_error(capsys, "inspect", model, "--tensors", "blq.*")


def test_inspect_shortens_metadata_for_people_only(model, capsys):
    assert main(["inspect", str(model), "--metadata"]) == 0
    out = capsys.readouterr().out
    assert "[0, 1, 2, 3, 4, 5, ...] (1,000 items)" in out
    assert "(1,000 characters)" in out
    assert r"two\nlines" in out
    metadata = run_json(capsys, "inspect", model, "--metadata")["metadata"]
    assert metadata["many"] == list(range(1000))
    assert metadata["long"] == "x" * 1000
    assert metadata["bad"] is None


def test_inspect_shows_every_kind_of_metadata(tmp_path, capsys):
    path = tmp_path / "sample.gguf"
    path.write_bytes(gb.sample())
    assert main(["inspect", str(path), "--metadata"]) == 0
    assert "[[1, 2], ['x']]" in capsys.readouterr().out
    report = run_json(capsys, "inspect", path, "--metadata")
    assert report["metadata"]["nested"] == [[1, 2], ["x"]]
    strange = next(t for t in report["tensors"] if t["name"] == "strange")
    assert (strange["format"], strange["bits_per_weight"]) == ("unknown_99", None)


def test_inspect_of_a_file_without_tensors(tmp_path, capsys):
    path = tmp_path / "empty.gguf"
    path.write_bytes(gb.gguf())
    assert main(["inspect", str(path)]) == 0
    assert "0 tensors" in capsys.readouterr().out
    assert run_json(capsys, "inspect", path)["total"]["bits_per_weight"] is None


@pytest.mark.parametrize(("value", "text"), [([], "[]"), ([[]], "[[]]"), (0.5, "0.5"), (True, "True"), ("a", "a")])
def test_inspect_short_values(value, text):
    assert inspect._short(value) == text


def test_a_long_name_is_cut_in_the_table_and_whole_in_json(tmp_path, capsys):
    long = "x" * 5000
    path = tmp_path / "long.gguf"
    path.write_bytes(gb.gguf([], [gb.info(long, [1], gb.F32, 0), gb.info("short", [1], gb.F32, 32)], bytes(36)))
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[1:])) < 200
    assert f"\n{'x' * 79}…  1 " in out
    assert [t["name"] for t in run_json(capsys, "inspect", path)["tensors"]] == [long, "short"]


@pytest.mark.parametrize(("size", "shown"), [(80, "a" * 80), (81, "a" * 79 + "…")])
def test_a_cell_is_cut_at_the_width_of_its_column(size, shown, capsys):
    output.print_table([output.Column("name")], [["a" * size]])
    assert capsys.readouterr().out.splitlines()[2] == shown


def test_a_cell_is_cut_after_its_escapes(capsys):
    output.print_table([output.Column("name", width=10)], [["a" * 8 + "\n"], ["\n" * 6], ["a" * 9 + "\n"]])
    assert capsys.readouterr().out.splitlines()[2:] == [r"aaaaaaaa\n", r"\n\n\n\n\…", "aaaaaaaaa…"]


# --- validate ----------------------------------------------------------------------------------------------


def test_validate_finds_nothing_in_a_sound_file(model, capsys):
    assert main(["validate", str(model)]) == 0
    assert "all finite" in capsys.readouterr().out
    report = run_json(capsys, "validate", model, "--threads", 2)
    assert (report["findings"], report["not_checked"], report["tensors"]) == ([], [], 8)


@pytest.mark.parametrize("slice_elements", [32, 1 << 23])
def test_validate_lists_bad_blocks(damaged, capsys, monkeypatch, slice_elements):
    monkeypatch.setattr(tensors, "_SLICE_ELEMENTS", slice_elements)
    findings = run_json(capsys, "validate", damaged, code=1)["findings"]
    assert findings == [
        {"name": "scales", "format": "q8_0", "blocks": 20, "bad": 2, "first": [3, 17]},
        {"name": "values", "format": "f32", "blocks": 4, "bad": 1, "first": [2]},
    ]
    assert main(["validate", str(damaged)]) == 1
    out = capsys.readouterr().out
    assert "3, 17" in out
    assert "3 are NaN or infinite, in 2 of the tensors" in out
    assert "sound" not in out


def test_validate_lists_the_first_of_many(tmp_path, capsys):
    path = tmp_path / "bad.gguf"
    blocks = np.tile(np.array([0x00, 0x7C, *[0] * 32], np.uint8), (50, 1))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("x", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    gb.save(writer)
    (finding,) = run_json(capsys, "validate", path, code=1)["findings"]
    assert (finding["bad"], finding["first"]) == (50, list(range(8)))
    assert main(["validate", str(path)]) == 1
    assert "6, 7, ..." in capsys.readouterr().out


def test_validate_says_what_it_did_not_check(strange, capsys):
    assert main(["validate", str(strange)]) == 0
    assert "not checked: tensor 'odd'" in capsys.readouterr().err
    assert run_json(capsys, "validate", strange)["not_checked"] == ["odd"]


# --- bench, info, formats ----------------------------------------------------------------------------------


def test_bench_measures_the_formats_asked_for(capsys):
    argv = ["bench", "--formats", "q4_0,iq4_xs", "F16", "--mib", "1", "--threads", "2"]
    report = run_json(capsys, *argv)
    assert [r["format"] for r in report["results"]] == ["q4_0", "iq4_xs", "f16"]
    assert report["threads"] == 2
    assert report["fill_bytes_per_second"] > 0
    for result in report["results"]:
        assert result["elements"] == 1 << 18
        assert result["output_bytes_per_second"] == pytest.approx(4 * result["elements"] / result["seconds"])
        assert result["output_bytes_per_second"] == pytest.approx(4 * result["elements_per_second"])
        share = result["output_bytes_per_second"] / report["fill_bytes_per_second"]
        assert result["of_fill"] == pytest.approx(share)
    assert main(argv) == 0
    assert "iq4_xs" in capsys.readouterr().out


def test_bench_takes_all_block_formats_by_default(capsys):
    names = [r["format"] for r in run_json(capsys, "bench", "--mib", "1", "--threads", "1")["results"]]
    assert names == [f.name for f in cbquant.formats() if f.kind != "plain"]


@pytest.mark.parametrize(("mib", "threads", "used"), [(1, 512, 1), (3, 4, 3), (4, 2, 2)])
def test_bench_fills_with_parts_that_are_worth_a_thread(capsys, monkeypatch, mib, threads, used):
    asked = []
    monkeypatch.setattr(bench, "_fill_seconds", lambda out, threads: asked.append(threads) or 0.5)
    argv = ["bench", "--formats", "q8_0", "--mib", str(mib), "--threads", str(threads)]
    report = run_json(capsys, *argv)
    assert (report["threads"], report["fill_threads"], asked) == (threads, used, [used])
    assert main(argv) == 0
    header = capsys.readouterr().out.splitlines()[0]
    assert header.endswith(f"GB/s with {used} of the threads" if used != threads else "GB/s")


def test_info_and_formats_print_what_the_library_says(capsys):
    assert run_json(capsys, "info") == dict(cbquant.info())
    assert run_json(capsys, "formats") == [f._asdict() for f in cbquant.formats()]
    assert main(["info"]) == 0
    assert capsys.readouterr().out == f"{cbquant.info()}\n"
    assert main(["formats"]) == 0
    assert capsys.readouterr().out == f"{cbquant.formats()}\n"
