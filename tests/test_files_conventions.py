"""`cbquant.open` on quantized checkpoints: codes and scales become one tensor, with the numbers of plain NumPy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import cbquant
from cbquant.testing import assert_bits_equal
from tests import checkpoint_files as cf

# Scales of layers' inputs are not parts of a weight.
OTHERS = ("activation_scale", "input_scale", "input_global_scale", "_bias")


def others(tensors):
    return [name for name in tensors if name.endswith(OTHERS)]


@pytest.fixture(params=cf.CHECKPOINTS)
def kind(request):
    return request.param


def test_a_weight_is_one_tensor(tmp_path, kind):
    tensors, name, fmt, values = cf.checkpoint(kind)
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))
    assert sorted(file) == sorted([name, *others(tensors)])
    assert not file.notes
    info, tensor = file.infos[name], file[name]
    assert (info.name, info.shape, info.format, info.tag) == (name, values.shape, fmt, -1)
    assert (tensor.shape, tensor.format) == (info.shape, info.format)
    parts = {part: tensor for part, tensor in tensors.items() if part not in others(tensors)}
    assert sorted(info.parts) == sorted(parts)
    assert info.nbytes == sum(np.asarray(part).nbytes for part in parts.values())
    assert file.stored.infos[info.parts[0]].offset == info.offset
    assert_bits_equal(tensor.dequant(), values)


def test_the_parts_are_there_as_they_are_stored(tmp_path, kind):
    tensors, *_ = cf.checkpoint(kind)
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))
    assert list(file.stored) == list(tensors)
    for name, expected in tensors.items():
        stored = file.stored[name]
        raw = stored.raw if isinstance(stored, cbquant.QuantTensor) else stored
        assert raw.tobytes() == np.asarray(expected).tobytes()
        assert stored.shape == np.asarray(expected).shape
        assert file.stored.infos[name].shape == np.asarray(expected).shape
    with pytest.raises(KeyError, match="no such tensor"):
        file.stored["nothing"]
    assert "as they are stored" in repr(file.stored)


@pytest.mark.parametrize("turned", [False, True])
def test_parts_may_lie_in_different_files(tmp_path, kind, turned):
    tensors, name, _, values = cf.checkpoint(kind)
    codes = cbquant.open(cf.write(tmp_path / "whole.safetensors", tensors)).infos[name].parts[0]
    index = cf.write_sharded(tmp_path, tensors, lambda part: (part == codes) == turned)
    for path in (index, tmp_path / "m-00002-of-00002.safetensors"):
        file = cbquant.open(path)
        assert_bits_equal(file[name].dequant(), values)
        assert file.infos[name].path == file.stored.infos[codes].path
        assert_bits_equal(pickle.loads(pickle.dumps(file))[name].dequant(), values)


@pytest.mark.parametrize("padding", range(1, 4))
def test_scales_may_begin_anywhere(tmp_path, kind, padding):
    tensors, name, _, values = cf.checkpoint(kind)
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", {"odd": np.zeros(padding, np.uint8), **tensors}))
    assert_bits_equal(file[name].dequant(), values)


def test_the_library_reads_these_files(tmp_path, kind):
    safe_open = pytest.importorskip("safetensors").safe_open
    tensors, *_ = cf.checkpoint(kind)
    path = cf.write(tmp_path / "m.safetensors", tensors)
    with safe_open(path, "np") as file:
        assert sorted(file.keys()) == sorted(tensors)
        for name, tensor in tensors.items():
            stored = file.get_slice(name)
            assert (stored.get_dtype(), stored.get_shape()) == (
                cf.DTYPES[np.asarray(tensor).dtype.name],
                list(np.asarray(tensor).shape),
            )


def test_many_weights_in_the_order_of_their_codes(tmp_path):
    tensors = {}
    for layer in range(3):
        for kind in ("deepseek_v3", "gpt_oss", "modelopt_nvfp4"):
            tensors |= {f"{layer}.{kind}.{name}": tensor for name, tensor in cf.checkpoint(kind, layer)[0].items()}
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))
    weights = [
        f"{i}.{name}"
        for i in range(3)
        for name in ("deepseek_v3.a.weight", "gpt_oss.up_proj", "modelopt_nvfp4.a.weight")
    ]
    assert [name for name in file if file.infos[name].parts] == weights
    assert_bits_equal(file["2.gpt_oss.up_proj"].dequant(), cf.checkpoint("gpt_oss", 2)[3])


def test_the_tensors_are_views_of_the_file(tmp_path):
    for kind in ("deepseek_v3", "gpt_oss", "compressed_tensors_nvfp4", "bitsandbytes"):
        tensors, name, *_ = cf.checkpoint(kind)
        file = cbquant.open(cf.write(tmp_path / f"{kind}.safetensors", tensors))
        tensor, (codes, *_) = file[name], file.infos[name].parts
        stored = file.stored[codes]
        raw = stored.raw if isinstance(stored, cbquant.QuantTensor) else stored
        assert np.shares_memory(tensor.codes, raw)
        assert not tensor.codes.flags.writeable
        file.close()
        assert tensor.dequant().shape == tensor.shape
        with pytest.raises(ValueError, match="the file is closed"):
            file[name]
        with pytest.raises(ValueError, match="the file is closed"):
            file.stored[codes]


def test_products_take_them(tmp_path):
    tensors, name, _, values = cf.checkpoint("deepseek_v3")
    w = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))[name]
    x = np.random.default_rng(1).normal(size=(3, values.shape[1])).astype(np.float32)
    expected = x.astype(np.float64) @ values.T.astype(np.float64)
    np.testing.assert_allclose(x @ w.T, expected, rtol=1e-4, atol=1e-3)


# --- tiles that the caller states ------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [(32, 32), (1, 128), (64, None), (None, 100)])
def test_other_tiles_are_the_callers_to_state(tmp_path, tile):
    rng = np.random.default_rng(0)
    codes = cf._fp8(rng, (200, 300))
    rows, columns = tile[0] or 200, tile[1] or 300
    scales = rng.uniform(1e-3, 1, (-(-200 // rows), -(-300 // columns))).astype(np.float32)
    path = cf.write(tmp_path / "m.safetensors", {"a.weight": codes, "a.weight_scale_inv": scales})
    with pytest.raises(ValueError, match=r"m\.safetensors: tensor 'a\.weight': 'a\.weight_scale_inv' is F32 .*tile="):
        cbquant.open(path)["a.weight"]
    file = cbquant.open(path, tile=tile)
    values = codes.astype(np.float32) * cf.spread(scales, codes.shape, rows, columns)
    assert_bits_equal(file["a.weight"].dequant(), values)
    assert_bits_equal(pickle.loads(pickle.dumps(file))["a.weight"].dequant(), values)


TILED = ("deepseek_v3", "deepseek_v3_bf16", "transformers_experts", "deepseek_v4", "deepseek_v4_base")


@pytest.mark.parametrize("kind", [kind for kind in cf.CHECKPOINTS if kind not in (*TILED, "compressed_tensors_tiles")])
def test_tiles_do_not_change_what_has_none(tmp_path, kind):
    tensors, name, _, values = cf.checkpoint(kind)
    assert_bits_equal(cbquant.open(cf.write(tmp_path / "m", tensors), tile=(32, 32))[name].dequant(), values)


@pytest.mark.parametrize(
    ("tile", "error"),
    [((0, 1), ValueError), ((-1, None), ValueError), ((1.5, 1), TypeError), ((True, 1), TypeError), (128, TypeError),
     ((1, 2, 3), TypeError), ("ab", TypeError)],
)  # fmt: skip
def test_a_tile_is_two_sizes(tmp_path, tile, error):
    path = cf.write(tmp_path / "m", cf.checkpoint("deepseek_v3")[0])
    with pytest.raises(error, match=r"^tile: expected"):
        cbquant.open(path, tile=tile)


# --- FP8 without scales ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "fmt"), [(cf.E4M3, "fp8_e4m3"), (cf.E5M2, "fp8_e5m2")])
def test_fp8_without_scales_is_decoded_where_asked(tmp_path, dtype, fmt):
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64).view(dtype)
    path = cf.write(tmp_path / "m.safetensors", {"a.weight": codes, "b": np.float32(1)})
    listed = cbquant.open(path)
    assert listed.infos["a.weight"].format == f"unknown_{cf.DTYPES[codes.dtype.name]}"
    with pytest.raises(ValueError, match=r"FP8 without scales.*cbquant\.open\(path, unscaled_fp8=True\)"):
        listed["a.weight"].dequant()
    file = cbquant.open(path, unscaled_fp8=True)
    assert (file.infos["a.weight"].format, file.infos["a.weight"].parts) == (fmt, ("a.weight",))
    assert_bits_equal(file["a.weight"].dequant(), codes.astype(np.float32))
    assert_bits_equal(pickle.loads(pickle.dumps(file))["a.weight"].dequant(), codes.astype(np.float32))


def test_unscaled_fp8_is_a_flag(tmp_path):
    path = cf.write(tmp_path / "m", {"b": np.float32(1)})
    with pytest.raises(TypeError, match=r"^unscaled_fp8: expected True or False"):
        cbquant.open(path, unscaled_fp8=1)


def test_scales_count_where_unscaled_fp8_is_taken(tmp_path):
    tensors, name, _, values = cf.checkpoint("deepseek_v3")
    tensors["lone.weight"] = codes = cf._fp8(np.random.default_rng(1), (3, 4))
    file = cbquant.open(cf.write(tmp_path / "m", tensors), unscaled_fp8=True)
    assert_bits_equal(file[name].dequant(), values)
    assert_bits_equal(file["lone.weight"].dequant(), codes.astype(np.float32))


def test_e4m3fnuz_is_another_format(tmp_path):
    raw = bytes(range(8))
    file = cbquant.open(cf.write(tmp_path / "m", {"a.weight": ("F8_E4M3FNUZ", (2, 4), raw)}), unscaled_fp8=True)
    with pytest.raises(ValueError, match="F8_E4M3FNUZ, which cbquant does not know"):
        file["a.weight"].dequant()


def test_float4_as_the_dtype_has_its_logical_shape(tmp_path):
    tensors, _, _, values = cf.checkpoint("deepseek_v4_expert")
    codes = tensors["experts.0.w1.weight"]
    stored = {"w.weight": ("F4", (6, 128), codes.tobytes()), "w.scale": tensors["experts.0.w1.scale"]}
    file = cbquant.open(cf.write(tmp_path / "m", stored))
    assert file.infos["w.weight"].shape == (6, 128)
    assert_bits_equal(file["w.weight"].dequant(), values)
