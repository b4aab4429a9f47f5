"""Conversions of quantized checkpoints: codes beside scales are decoded, a piece at a time, and encoded anew."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import cbquant
from cbquant.convert import _quantize, quantize_file
from cbquant.convert._work import encode
from tests import checkpoint_files as cf

pytest.importorskip("gguf")


@pytest.fixture
def dst(tmp_path):
    return tmp_path / "new.gguf"


def raw(file, name):
    tensor = file[name]
    return (tensor.raw if isinstance(tensor, cbquant.QuantTensor) else tensor).tobytes()


@pytest.mark.parametrize("kind", cf.CHECKPOINTS)
def test_a_checkpoint_becomes_numbers(tmp_path, dst, kind):
    tensors, name, fmt, values = cf.checkpoint(kind)
    src = cf.write(tmp_path / "m.safetensors", tensors)
    report = quantize_file(src, dst, "f32", nonfinite="allow")
    file = cbquant.open(dst)
    assert list(file) == list(cbquant.open(src))
    assert file[name].shape == values.shape
    # Of NaN only that it is one: the bits of a NaN are the encoder's.
    np.testing.assert_array_equal(file[name], values)
    assert np.array_equal(np.signbit(file[name]), np.signbit(values)) or np.isnan(values).any()
    (told,) = [tensor for tensor in report.tensors if tensor.name == name]
    assert (told.source, told.format, told.bytes_before) == (fmt, "f32", cbquant.open(src).infos[name].nbytes)


SMALL = [kind for kind in cf.CHECKPOINTS if np.abs(cf.checkpoint(kind)[3]).max() < 65504]  # what float16 holds


@pytest.mark.parametrize("kind", SMALL)
def test_a_checkpoint_is_quantized_anew(tmp_path, dst, kind):
    tensors, name, _, values = cf.checkpoint(kind)
    report = quantize_file(cf.write(tmp_path / "m.safetensors", tensors), dst, "q8_0")
    file, columns = cbquant.open(dst), values.shape[-1]
    if columns % 32:
        assert [tensor.name for tensor in report.fallbacks] == [name]
        np.testing.assert_array_equal(file[name], values.astype(np.float16))
    else:
        assert raw(file, name) == cbquant.quantize(values, "q8_0").tobytes()


@pytest.mark.parametrize("elements", [97, 300, 64 * 130])
@pytest.mark.parametrize("kind", ["deepseek_v3", "deepseek_v4_engram", "modelopt_nvfp4", "bitsandbytes_nested"])
def test_pieces_of_any_size_give_the_same_bytes(tmp_path, dst, monkeypatch, kind, elements):
    src = cf.write(tmp_path / "m.safetensors", cf.checkpoint(kind)[0])
    quantize_file(src, dst, "bf16")
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", elements)
    quantize_file(src, tmp_path / "pieces.gguf", "bf16")
    assert (tmp_path / "pieces.gguf").read_bytes() == dst.read_bytes()


def test_long_rows_are_cut_between_blocks(tmp_path, dst, monkeypatch):
    rng = np.random.default_rng(0)
    codes, scales = cf._fp8(rng, (3, 640)), rng.uniform(1e-4, 1, (1, 5)).astype(np.float32)
    src = cf.write(tmp_path / "m.safetensors", {"a.weight": codes, "a.weight_scale_inv": scales})
    quantize_file(src, dst, "q8_0")
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 100)
    quantize_file(src, tmp_path / "pieces.gguf", "q8_0")
    assert (tmp_path / "pieces.gguf").read_bytes() == dst.read_bytes()


def shards(folder):
    """A model of three layers in two files, codes in the one and scales in the other, by turns."""
    tensors = {}
    for layer, kind in enumerate(("deepseek_v3", "modelopt_nvfp4", "bitsandbytes_nested")):
        tensors |= {f"{layer}.{name}": tensor for name, tensor in cf.checkpoint(kind)[0].items()}
    return cf.write_sharded(folder, tensors, lambda name: list(tensors).index(name) % 2)


def threads():
    return ThreadPoolExecutor(2)


def processes():
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=os.chdir, initargs=("/",))


@pytest.mark.parametrize("make", [threads, processes])
def test_others_can_do_the_work(tmp_path, dst, monkeypatch, make):
    src = shards(tmp_path)
    quantize_file(src, dst, "q8_0")
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 1000)
    monkeypatch.chdir(tmp_path)  # processes are elsewhere
    with make() as executor:
        quantize_file(src.name, tmp_path / "others.gguf", "q8_0", executor=executor)
    assert (tmp_path / "others.gguf").read_bytes() == dst.read_bytes()


def test_a_piece_is_small_and_says_where_its_parts_are(tmp_path, dst, monkeypatch):
    src, sent = shards(tmp_path), []
    monkeypatch.setattr(_quantize, "encode", lambda piece: sent.append(piece) or encode(piece))
    quantize_file(src, dst, "q8_0")
    pieces = [piece for piece in sent if piece.recipe is not None]
    assert len(pieces) == 3
    for piece in pieces:
        assert len(pickle.dumps((encode, piece))) < 5000
        assert len(piece.sizes) == 2
        np.testing.assert_array_equal(encode(pickle.loads(pickle.dumps(piece))), encode(piece))
        path, size = piece.sizes[1]
        with pytest.raises(ValueError, match=rf"expected a file of {size + 1} bytes, got one of {size}"):
            encode(piece._replace(sizes=(piece.sizes[0], (path, size + 1))))


def test_an_interrupted_conversion_goes_on(tmp_path, dst, monkeypatch):
    src = shards(tmp_path)
    quantize_file(src, dst, "q8_0")
    whole = dst.read_bytes()
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 10000)
    calls = []

    def interrupt(done, total, name):
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_file(src, tmp_path / "again.gguf", "q8_0", progress=interrupt)
    assert quantize_file(src, tmp_path / "again.gguf", "q8_0").resumed > 0
    assert (tmp_path / "again.gguf").read_bytes() == whole


def test_weights_of_gpt_oss_have_other_names(tmp_path, dst):
    tensors, name, *_ = cf.checkpoint("gpt_oss")
    tensors["up_proj_scales"] = np.full((2, 3, 4), 120, np.uint8)
    src = cf.write(tmp_path / "m.safetensors", tensors)
    quantize_file(src, dst, "mxfp4")
    file = cbquant.open(dst)
    assert (file.infos[name].format, file.infos["up_proj_bias"].format) == ("mxfp4", "bf16")
    # The formats hold the same numbers.
    np.testing.assert_array_equal(file[name].dequant(), cbquant.open(src)[name].dequant())


def test_what_has_to_stay_is_refused_by_name(tmp_path, dst):
    tensors, _, _, values = cf.checkpoint("modelopt_fp8")
    src = cf.write(tmp_path / "m.safetensors", {name.replace("a.", "mlp.gate."): t for name, t in tensors.items()})
    message = r"tensor 'mlp\.gate\.weight' is fp8_e4m3, which no GGUF file can hold; map: a format such as 'f16'"
    with pytest.raises(ValueError, match=message):
        quantize_file(src, dst, "q8_0")
    quantize_file(src, dst, "q8_0", map={"mlp.gate.weight": "f16"})
    np.testing.assert_array_equal(cbquant.open(dst)["mlp.gate.weight"], values.astype(np.float16))
    with pytest.raises(ValueError, match="'drop' leaves it out"):
        quantize_file(src, dst, "q8_0", map={"mlp.gate.weight": "keep"}, overwrite=True)


def test_fp8_without_scales_is_asked_for(tmp_path, dst):
    codes = cf._fp8(np.random.default_rng(0), (4, 32))
    src = cf.write(tmp_path / "m.safetensors", {"a.weight": codes})
    with pytest.raises(ValueError, match=r"'a\.weight' is unknown_F8_E4M3, .*unscaled_fp8=True takes its codes"):
        quantize_file(src, dst, "q8_0")
    quantize_file(src, dst, "q8_0", unscaled_fp8=True)
    assert raw(cbquant.open(dst), "a.weight") == cbquant.quantize(codes.astype(np.float32), "q8_0").tobytes()


def test_tiles_are_the_callers_to_state(tmp_path, dst):
    rng = np.random.default_rng(0)
    codes, scales = cf._fp8(rng, (40, 64)), rng.uniform(1e-3, 1, (2, 2)).astype(np.float32)
    src = cf.write(tmp_path / "m.safetensors", {"a.weight": codes, "a.weight_scale_inv": scales})
    message = r"'a\.weight' is unknown_F8_E4M3, which no GGUF file can hold \('a\.weight_scale_inv' is F32 \(2, 2\)"
    with pytest.raises(ValueError, match=message):
        quantize_file(src, dst, "q8_0")
    quantize_file(src, dst, "q8_0", tile=(32, 32))
    values = codes.astype(np.float32) * cf.spread(scales, codes.shape, 32, 32)
    assert raw(cbquant.open(dst), "a.weight") == cbquant.quantize(values, "q8_0").tobytes()


def test_damage_is_found_before_anything_is_written(tmp_path, dst):
    tensors, *_ = cf.checkpoint("bitsandbytes")
    tensors["a.weight.quant_map"] = np.zeros(16, np.float32)
    src = cf.write(tmp_path / "m.safetensors", tensors)
    with pytest.raises(ValueError, match=r"tensor 'a\.weight': 'a\.weight\.quant_map': expected the numbers of nf4"):
        quantize_file(src, dst, "q8_0")
    assert os.listdir(tmp_path) == ["m.safetensors"]
    quantize_file(src, dst, "q8_0", map={"a.weight": "drop"})  # what is left out may be damaged


def test_a_number_that_is_none_is_told_with_its_place(tmp_path, dst):
    tensors, name, *_ = cf.checkpoint("deepseek_v3")
    tensors[name].view(np.uint8)[150, 201] = 0x7F
    src = cf.write(tmp_path / "m.safetensors", tensors)
    with pytest.raises(ValueError, match=r"tensor 'a\.weight': nan at \(150, 201\) of shape \(200, 300\)"):
        quantize_file(src, dst, "f16")


def test_what_is_not_known_is_told(tmp_path, dst):
    tensors = {
        "a.qweight": np.ones((4, 8), np.int32),
        "a.scales": np.ones((1, 8), np.float16),
        "b.weight": np.ones((4, 32), np.float32),
    }
    report = quantize_file(cf.write(tmp_path / "m.safetensors", tensors), dst, "q8_0")
    assert report.told == ("'a.qweight': packed integers of GPTQ or AWQ, which are not known",)
    assert report.told[0] in repr(report)
    assert cbquant.open(dst).infos["a.qweight"].format == "i32"
