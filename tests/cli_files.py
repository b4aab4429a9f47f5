"""GGUF files for the tests of the command line, and calls of it."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest

import cbquant
from cbquant.cli import main
from tests import gguf_bytes as gb

BLOCKS = {
    "blk.0.attn_q.weight": "q4_1",
    "blk.1.attn_q.weight": "q4_1",
    "token_embd.weight": "q8_0",
    "k": "q6_k",
}
PLAIN = {
    "norm": np.linspace(-2, 2, 6, dtype=np.float32),
    "half": np.array([[0.5, -1.5]], np.float16),
    "double": np.array([1 / 3, 2.0**60]),
    "ids": np.array([2**31 - 1, -5], np.int32),
}


def finite_blocks(fmt, shape, seed=0):
    """Random blocks of these elements whose float16 fields, wherever they are, are small numbers."""
    f = next(f for f in cbquant.formats() if f.name == fmt)
    raw = np.random.default_rng(seed).integers(0, 60, (*shape[:-1], shape[-1] // f.elements * f.bytes), np.uint8)
    assert cbquant.validate(raw, fmt).size == 0
    return raw


def write_model(path):
    """A small sound GGUF file of the library's making."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("text", "two\nlines")
    writer.add_string("long", "x" * 1000)
    writer.add_array("many", list(range(1000)))
    writer.add_float32("bad", float("nan"))
    for seed, (name, fmt) in enumerate(BLOCKS.items()):
        raw = finite_blocks(fmt, (2, 256), seed)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[fmt.upper()])
    for name, array in PLAIN.items():
        writer.add_tensor(name, array)
    bits = np.array([0x3F80, 0xC000], np.uint16)
    writer.add_tensor("brain", bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    gb.save(writer)
    return path


def write_damaged(path):
    """q8_0 with two bad blocks of 20 and f32 with a NaN, beside a sound tensor."""
    blocks = np.zeros((20, 34), np.uint8)
    blocks[3, :2] = np.array([0x00, 0x7C])  # inf
    blocks[17, :2] = np.array([0x01, 0xFE])  # NaN
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("scales", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("values", np.array([1, 2, np.nan, 4], np.float32))
    writer.add_tensor("sound", np.zeros((2, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    gb.save(writer)
    return path


def write_strange(path):
    """A file with a tensor of a type that no one knows."""
    path.write_bytes(gb.gguf([], [gb.info("odd", [4], gb.UNKNOWN, 0), gb.info("even", [2], gb.F32, 32)], bytes(40)))
    return path


def write_hostile(path):
    """A file whose tensors' names are made to do harm; each is one f32, its own number."""
    names = [
        "../up",
        "/abs",
        "a/b",
        "..",
        ".",
        "",
        "two\nlines",
        "\x1b[31m",
        "[red]x[/red]",
        "nul\0",
        b"\xff",
        "%2F",
    ]
    infos = [gb.info(name, [1], gb.F32, 32 * number) for number, name in enumerate(names)]
    data = b"".join(np.float32(number).tobytes().ljust(32, b"\0") for number in range(len(names)))
    path.write_bytes(gb.gguf([], infos, data))
    return path


def run_json(capsys, *argv, code=0):
    assert main([*map(str, argv), "--json"]) == code
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def run_error(capsys, *argv):
    """The one line that a failing command leaves, its prefix taken off."""
    assert main(list(map(str, argv))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("cbquant: error: ")
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("cbquant: error: ").rstrip("\n")
