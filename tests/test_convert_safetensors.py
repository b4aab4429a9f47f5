"""Conversions of safetensors files, which the library made."""

from __future__ import annotations

import json
import os

import ml_dtypes
import numpy as np
import pytest

import cbquant
from cbquant.convert import quantize_file
from tests import convert_files as cf

save_file = pytest.importorskip("safetensors.numpy").save_file  # Python 3.13t has no wheel of it

Q = "model.layers.0.self_attn.q_proj.weight"


def tensors():
    """A checkpoint of a few tensors, as people name them."""
    rng = np.random.default_rng(0)
    return {
        "model.embed_tokens.weight": rng.normal(size=(8, 64)).astype(ml_dtypes.bfloat16),
        Q: rng.normal(size=(64, 64)).astype(np.float16),
        "model.layers.0.input_layernorm.weight": np.ones(64, ml_dtypes.bfloat16),
        "model.layers.0.mlp.gate.weight": np.ones((4, 64), np.float32),
        "model.layers.0.position_ids": np.arange(6).reshape(2, 3),
        "odd.weight": np.ones((2, 33), np.float32),
    }


@pytest.fixture
def dst(tmp_path):
    return tmp_path / "new.gguf"


def check(dst, names):
    file, source = cbquant.open(dst), tensors()
    assert list(file) == names
    expected = {"model.embed_tokens.weight": "q4_0", Q: "q4_0", "odd.weight": "f16"}
    kept = {"model.layers.0.input_layernorm.weight": "bf16", "model.layers.0.mlp.gate.weight": "f32"}
    assert cf.formats(file) == {name: {**expected, **kept}.get(name, "i64") for name in names}
    for name, array in source.items():
        assert file[name].shape == array.shape
        if cf.formats(file)[name] == "q4_0":
            assert cf.raw(file, name) == cbquant.quantize(array.astype(np.float32), "q4_0").tobytes()
        elif name in kept:
            assert cf.raw(file, name) == array.tobytes()
    return file


@pytest.mark.parametrize("architecture", [None, "llama"])
def test_a_checkpoint(tmp_path, dst, architecture):
    src = tmp_path / "model.safetensors"
    save_file(tensors(), src, metadata={"format": "pt", "empty": ""})
    report = quantize_file(src, dst, "q4_0", architecture=architecture)
    file = check(dst, list(cbquant.open(src)))
    assert dict(file.metadata) == {
        "general.architecture": architecture or "unknown",
        "safetensors.format": "pt",
        "safetensors.empty": "",
        "general.file_type": 2,
        "general.quantization_version": 2,
    }
    assert [tensor.name for tensor in report.fallbacks] == ["odd.weight"]


@pytest.mark.parametrize("name", ["m-00002-of-00002.safetensors", "m.safetensors.index.json"])
def test_a_checkpoint_in_shards(tmp_path, dst, name):
    places, parts = {}, [dict(list(tensors().items())[:2]), dict(list(tensors().items())[2:])]
    for number, part in enumerate(parts, 1):
        save_file(part, tmp_path / f"m-0000{number}-of-00002.safetensors")
        places |= dict.fromkeys(part, f"m-0000{number}-of-00002.safetensors")
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    quantize_file(tmp_path / name, dst, "q4_0")
    check(dst, list(cbquant.open(tmp_path / name)))


def test_types_and_shapes_that_gguf_lacks(tmp_path, dst):
    src = tmp_path / "model.safetensors"
    odd = {"mask": np.ones((2, 2), np.bool_), "conv.weight": np.ones((2, 1, 2, 2, 32), np.float32)}
    save_file({**tensors(), **odd}, src)
    with pytest.raises(ValueError, match="'mask' is bool, which no GGUF file can hold; map: 'drop' leaves it out"):
        quantize_file(src, dst, "q4_0", map=["conv=drop"])
    with pytest.raises(ValueError, match=r"'conv\.weight' has 5 dimensions, a GGUF file allows 4; map: 'drop'"):
        quantize_file(src, dst, "q4_0", map=["mask=drop"])
    assert os.listdir(tmp_path) == ["model.safetensors"]
    report = quantize_file(src, dst, "q4_0", map={"mask": "drop", "conv.weight": "drop"})
    assert sorted(report.dropped) == sorted(odd)
    check(dst, [name for name in cbquant.open(src) if name not in odd])


def test_fp8_is_refused_by_name(tmp_path, dst):
    src = tmp_path / "model.safetensors"
    header = json.dumps({"w.weight": {"dtype": "F8_E4M3", "shape": [2, 32], "data_offsets": [0, 64]}}).encode()
    src.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(ValueError, match=r"tensor 'w\.weight' is unknown_F8_E4M3, which no GGUF file can hold"):
        quantize_file(src, dst, "q4_0")
