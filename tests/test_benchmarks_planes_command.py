"""The benchmark of codecs and planes, end to end on tiny sizes. Nothing about speed."""

from __future__ import annotations

import json

import pytest

import cbquant
from benchmarks.planes import codecs, command, peers, products, targets
from cbquant import planes
from tests.test_benchmarks_planes import CASES, TINY, small_cache

__all__ = ["small_cache"]


def run(capsys, tmp_path, *argv, tiny=TINY):
    code = command.main([*argv, "--out", str(tmp_path)], tiny)
    return code, capsys.readouterr().out


def sections(tmp_path):
    return json.loads((tmp_path / "planes.json").read_text())["sections"]


def test_targets_are_of_things_that_exist():
    assert targets.PEERS.keys() == peers.PEERS.keys()
    assert {name for _, names in peers.PEERS.values() for name in names} <= {f.name for f in planes.formats()}
    assert {products.blocks_for(case) for case in CASES} <= {f.name for f in cbquant.formats()}


def test_a_run_of_two_formats(capsys, tmp_path):
    page = tmp_path / "docs" / "page.md"
    code, out = run(capsys, tmp_path, "--formats", "mxfp4,NF4", "--docs", str(page))
    assert code == 0
    saved = json.loads((tmp_path / "planes.json").read_text())
    assert saved["benchmark"] == "planes"
    assert saved["plan"] == {
        "formats": ["mxfp4_planes", "nf4"],
        "threads": [1, 2],
        "rounds": 2,
        "sample_seconds": 0,
        "shape": "128x256",
        "large": "256x256",
        "peer_shapes": ["64x256", "128x256"],
        "elements": 1024,
        "large_rounds": 2,
        "product_rounds": 2,
        "m": [1, 5],
        "rows": 128,
    }
    found = saved["sections"]
    assert list(found) == list("ABCDEFG")
    assert len(found["A"]) == 2 * 2 * 2
    assert len(found["B"]) == 2 * 2
    assert {row["format"] for row in found["C"]} == {*codecs.KINDS}
    assert {row["group"] for row in found["D"]} == {
        f"bitsandbytes, {shape}, 1 thread" for shape in ("64x256", "128x256")
    }
    blocks = [row for row in found["E"] if row["group"].startswith("of blocks")]
    assert len(blocks) == (3 + 2) * 2
    assert all(row["figure"] > 0 for row in blocks)
    assert [row["format"] for row in found["F"]] == ["mxfp4_planes", "nf4"]
    assert all(f"\n{letter}. " in out for letter in found)
    text = page.read_text()
    assert "\n## A. Planes to float32: 128x256, 128 KiB\n" in text
    assert "matrix is 128x256 unless" in text


@pytest.mark.parametrize("letter", "ABEFG")
def test_every_format_runs(capsys, tmp_path, letter):
    run(capsys, tmp_path, "--sections", letter)
    assert sections(tmp_path).keys() == {letter}
    assert {row["format"] for row in sections(tmp_path)[letter]} == {case.name for case in CASES}


def test_an_earlier_run_is_shown_without_measuring(capsys, tmp_path, monkeypatch):
    _, first = run(capsys, tmp_path / "one", "--formats", "mxint8", "--sections", "A,D,F")
    monkeypatch.setattr(command, "run", lambda *args: pytest.fail("it measured"))
    _, second = run(capsys, tmp_path / "two", "--load", str(tmp_path / "one" / "planes.json"))
    assert first == second


def test_strict_and_bold_tell_of_misses(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "TO_MEMORY", 1e9)
    page = tmp_path / "page.md"
    argv = ("--formats", "mxint8", "--sections", "A")
    assert run(capsys, tmp_path, *argv)[0] == 0
    code, out = run(capsys, tmp_path, *argv, "--strict", "--docs", str(page))
    assert code == 1
    assert "missed  A: mxint8, 128x256, 128 KiB, 2 threads: " in out
    lines = [line for line in page.read_text().splitlines() if line.startswith("| mxint8")]
    assert [line.count("**") for line in lines] == [2, 2]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--formats", "mxfp5"], "unknown format of planes 'mxfp5'"),
        (["--formats", "q4_0"], "q4_0 is a format of blocks"),
        (["--threads", "0"], "--threads: "),
        (["--sections", "A,H"], "expected some of A, B, C, D, E, F, G, got 'A,H'"),
        (["--load", "no-such.json"], "no-such.json"),
    ],
)
def test_wrong_usage(capsys, tmp_path, argv, message):
    with pytest.raises(SystemExit) as error:
        command.main([*argv, "--out", str(tmp_path)], TINY)
    assert error.value.code == 2
    assert message in capsys.readouterr().err
