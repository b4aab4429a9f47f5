"""`cbquant.open` on checkpoints that are not whole, not known, or only similar to quantized ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cbquant
from cbquant.testing import assert_bits_equal
from tests import checkpoint_files as cf


def check_misfit(path, name, message, parts=()):
    """The file opens; the tensor is listed as it is stored and told of, and asking for it is an error."""
    file = cbquant.open(path)
    with pytest.raises(ValueError, match=message) as caught:
        file[name]
    assert str(path) in str(caught.value)
    assert repr(name) in str(caught.value)
    assert file.notes[name] in str(caught.value)
    assert file.infos[name].format.startswith("unknown_")
    assert file.infos[name].shape == file.stored.infos[name].shape
    assert set(parts) <= set(file)
    assert set(file) == set(file.stored)
    return file


def f32(*shape):
    return np.ones(shape, np.float32)


def e4m3(*shape):
    return np.ones(shape, cf.E4M3)


def e8m0(*shape):
    return np.ones(shape, cf.E8M0)


def bf16(*shape):
    return np.ones(shape, cf.BF16)


def u8(*shape):
    return np.ones(shape, np.uint8)


def i8(*shape):
    return np.ones(shape, np.int8)


def i32(*shape):
    return np.ones(shape, np.int32)


#: A sound checkpoint, a part of it, what is there in its place (None: nothing), and what is said of that.
MISFITS = [
    # tiles of another size, the wrong way round, scales of columns
    ("deepseek_v3", "a.weight_scale_inv", f32(2, 2), r"F32 \(2, 2\).*tiles of 128 x 128 of F8_E4M3 \(200, 300\)"),
    ("deepseek_v3", "a.weight_scale_inv", f32(3, 2), r"F32 \(3, 2\)"),
    ("deepseek_v3", "a.weight_scale_inv", f32(300), r"F32 \(300,\)"),
    ("deepseek_v3", "a.weight_scale_inv", f32(1, 1, 1), r"F32 \(1, 1, 1\)"),
    ("deepseek_v3", "a.weight_scale_inv", np.ones((2, 3)), r"F64 \(2, 3\)"),
    ("deepseek_v3", "a.weight_scale_inv", i32(2, 3), r"I32 \(2, 3\)"),
    ("deepseek_v3", "a.weight_scale_inv", u8(2, 3), r"U8 \(2, 3\)"),
    ("deepseek_v3", "a.weight_scale", f32(), "scales of two kinds, 'a.weight_scale_inv' and 'a.weight_scale'"),
    ("transformers_experts", "experts.gate_up_proj_scale_inv", f32(2, 2), r"F32 \(2, 2\)"),
    ("transformers_experts_whole", "up_proj_scale_inv", f32(3, 2, 1), r"F32 \(3, 2, 1\)"),
    ("transformers_experts_whole", "up_proj_scale_inv", f32(3), r"F32 \(3,\)"),
    ("transformers_experts_fp4", "up_proj_scale_inv", e8m0(2, 6, 2), r"I8 \(2, 6, 64\).*K/32"),
    ("deepseek_v4", "a.scale", e8m0(2, 2), r"F8_E8M0 \(2, 2\)"),
    ("deepseek_v4_expert", "experts.0.w1.scale", e8m0(6, 2), r"I8 \(6, 64\).*K/32"),
    ("gpt_oss", "up_proj_scales", u8(2, 3, 3), r"U8 \(2, 3, 3\): expected uint8 \(2, 3, 4\)"),
    ("gpt_oss", "up_proj_scales", i8(2, 3, 4), r"I8 \(2, 3, 4\)"),
    ("gpt_oss_original", "up_proj.scales", u8(2, 3), r"U8 \(2, 3\): expected uint8 \(2, 3, 4\)"),
    ("compressed_tensors_nvfp4", "a.weight_scale", e4m3(5, 4), r"F8_E4M3 \(5, 4\).*K/16"),
    ("compressed_tensors_nvfp4", "a.weight_scale", bf16(5, 5), "expected F8_E4M3, or U8"),
    ("compressed_tensors_nvfp4", "a.weight_scale", None, "'a.weight_scale' is missing"),
    ("compressed_tensors_nvfp4", "a.weight_global_scale", None, "'a.weight_global_scale' is missing"),
    ("compressed_tensors_nvfp4", "a.weight_global_scale", f32(2), "expected one float32"),
    ("compressed_tensors_nvfp4", "a.weight_global_scale", bf16(1), "expected one float32"),
    ("compressed_tensors_nvfp4", "a.weight", f32(2), r"another tensor 'a\.weight' in its place"),
    ("compressed_tensors_mxfp4", "a.weight_global_scale", f32(1), "expected F8_E4M3, or U8"),
    ("modelopt_nvfp4", "a.weight_scale_2", None, "'a.weight_scale_2' is missing"),
    ("modelopt_nvfp4", "a.weight_scale_2", f32(2, 1, 1), "expected one float32"),
    ("modelopt_nvfp4", "a.weight_scale", None, "'a.weight_scale' is missing"),
    ("modelopt_nvfp4", "a.weight_scale", e4m3(4, 5), r"F8_E4M3 \(4, 5\).*K/16"),
    ("modelopt_nvfp4", "a.weight_scale", f32(5, 5), r"F32 \(5, 5\): expected F8_E4M3"),
    ("modelopt_fp8_rows", "a.weight_scale", f32(4), r"F32 \(4,\)"),
    ("compressed_tensors_mxfp8", "a.weight_scale", u8(6, 2), r"U8 \(6, 2\)"),
    ("bitsandbytes", "a.weight", u8(149, 1), r"149 bytes of codes: expected 150 for shape \(6, 50\)"),
    ("bitsandbytes", "a.weight.absmax", None, "'a.weight.absmax' is missing"),
    ("bitsandbytes", "a.weight.absmax", f32(4), r"F32 \(4,\): expected 5 of F32"),
    ("bitsandbytes", "a.weight.absmax", i32(5), r"I32 \(5,\): expected 5 of F32"),
    ("bitsandbytes", "a.weight.quant_map", None, "'a.weight.quant_map' is missing"),
    ("bitsandbytes", "a.weight.quant_map", f32(17), "expected 16 of F32"),
    ("bitsandbytes", "a.weight.quant_map", np.ones(16, np.float16), "expected 16 of F32"),
    ("bitsandbytes", "a.weight.quant_state.bitsandbytes__nf4", None, "__nf4', or fp4, is missing"),
    ("bitsandbytes_nested", "a.weight.nested_absmax", None, "'a.weight.nested_absmax' is missing"),
    ("bitsandbytes_nested", "a.weight.nested_absmax", f32(1), "expected 2 of F32"),
    ("bitsandbytes_nested", "a.weight.nested_quant_map", None, "'a.weight.nested_quant_map' is missing"),
    ("bitsandbytes_nested", "a.weight.nested_quant_map", f32(16), "expected 256 of F32"),
]


@pytest.mark.parametrize(("kind", "part", "other", "message"), MISFITS)
def test_parts_that_do_not_fit(tmp_path, kind, part, other, message):
    tensors, *_ = cf.checkpoint(kind)
    path = cf.write(tmp_path / "m.safetensors", tensors)
    codes = next(info.parts[0] for info in cbquant.open(path).infos.values() if info.parts)
    if other is None:
        del tensors[part]
    else:
        tensors[part] = other
    check_misfit(cf.write(path, tensors), codes, message, tensors)


STATES = {
    "no JSON": (b"{", "JSONDecodeError"),
    "bytes that are no text": (b"\xff\xfe", "UnicodeDecodeError|JSONDecodeError"),
    "a list": (b"[]", "TypeError"),
    "no shape": (b'{"blocksize": 64}', "KeyError.*shape"),
    "no block": (b'{"shape": [6, 50]}', "KeyError.*blocksize"),
    "a shape that is none": (b'{"blocksize": 64, "shape": null}', "expected a list, got None"),
    "a negative length": (b'{"blocksize": 64, "shape": [-6, -50]}', "expected a whole number from 0, got -6"),
    "a length in words": (b'{"blocksize": 64, "shape": ["6", 50]}', "expected a whole number from 0, got"),
    "a length past 64 bits": (b'{"blocksize": 64, "shape": [6, 1e400]}', "expected a whole number from 0, got inf"),
    "a huge length": (b'{"blocksize": 64, "shape": [6, 99999999999999999999]}', "expected a whole number from 0"),
    "more than any array": (b'{"blocksize": 64, "shape": [4611686018427387904, 4]}', "larger than any array can be"),
    "another number": (b'{"blocksize": 64, "shape": [6, 52]}', "150 bytes of codes: expected 156"),
    "a block of 0": (b'{"blocksize": 0, "shape": [6, 50]}', "expected a whole number from 1, got 0"),
    "an odd block": (b'{"blocksize": 63, "shape": [6, 50]}', "expected an even block, got 63"),
    "a block that is true": (b'{"blocksize": true, "shape": [6, 50]}', "expected a whole number from 1, got True"),
    "another type": (b'{"blocksize": 64, "shape": [6, 50], "quant_type": "fp4"}', "the name says nf4, the text 'fp4'"),
    "deep": (b"[" * 60000, "RecursionError|JSONDecodeError"),
    "long": (b" " * 70000, "expected at most 65536 bytes, got 70000"),
}


@pytest.mark.parametrize(("text", "message"), STATES.values(), ids=STATES)
def test_a_quant_state_that_says_something_else(tmp_path, text, message):
    tensors, name, *_ = cf.checkpoint("bitsandbytes")
    tensors["a.weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(text, np.uint8)
    check_misfit(cf.write(tmp_path / "m.safetensors", tensors), name, message)


@pytest.mark.parametrize("offset", ["NaN", "Infinity", '"0.5"', "null"])
def test_a_nested_offset_is_a_number(tmp_path, offset):
    tensors, name, *_ = cf.checkpoint("bitsandbytes_nested")
    state = tensors[key := "a.weight.quant_state.bitsandbytes__nf4"].tobytes().replace(b"0.0414", offset.encode())
    tensors[key] = np.frombuffer(state, np.uint8)
    check_misfit(cf.write(tmp_path / "m.safetensors", tensors), name, "expected a finite number")


@pytest.mark.parametrize("place", [0, 7, 15])
def test_a_table_of_other_numbers(tmp_path, place):
    tensors, name, *_ = cf.checkpoint("bitsandbytes")
    tensors["a.weight.quant_map"] = table = cf.NF4.copy().reshape(4, 4)
    table.reshape(-1)[place] += np.float32(1e-6)
    path = cf.write(tmp_path / "m.safetensors", tensors)
    expected = rf"tensor 'a\.weight': 'a\.weight\.quant_map': expected the numbers of nf4, got .* in place {place}$"
    with pytest.raises(ValueError, match=expected):
        cbquant.open(path)[name]


def test_a_table_of_the_other_type(tmp_path):
    tensors, name, *_ = cf.checkpoint("bitsandbytes_fp4")
    tensors["a.weight.quant_map"] = cf.NF4
    with pytest.raises(ValueError, match=r"tensor 'a\.weight': .*expected the numbers of fp4"):
        cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))[name]


@pytest.mark.parametrize(("value", "message"), [(np.nan, "finite"), (np.inf, "finite"), (0, "divisor other than 0")])
def test_a_scale_of_the_whole_tensor_is_a_number(tmp_path, value, message):
    tensors, name, *_ = cf.checkpoint("compressed_tensors_nvfp4")
    tensors["a.weight_global_scale"] = np.array([value], np.float32)
    with pytest.raises(ValueError, match=f"tensor 'a.weight': global_scale: .*{message}"):
        cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))[name]


def test_scales_that_are_misfits_do_not_become_numbers(tmp_path):
    tensors, name, *_ = cf.checkpoint("deepseek_v3")
    tensors["a.weight_scale_inv"] = f32(2, 2)
    with pytest.raises(ValueError, match=r"tensor 'a\.weight': 'a\.weight_scale_inv' is F32"):
        cbquant.open(cf.write(tmp_path / "m.safetensors", tensors), unscaled_fp8=True)[name]


#: Tensors, the first of which has a note, and what is said of it.
NOTES = [
    ({"a.weight": i8(2, 4), "a.SCB": f32(2)}, "8-bit weights of bitsandbytes"),
    ({"a.qweight": i32(4, 8), "a.scales": f32(1, 8)}, "packed integers of GPTQ or AWQ"),
    ({"a.weight_packed": i32(4, 8), "a.weight_scale": bf16(4, 1)}, "packed integers of compressed-tensors"),
    ({"a.weight_packed": u8(4, 48), "a.weight_scale": u8(4, 2)}, "a packing that is not known"),  # MXFP6
    ({"a.weight_packed": u8(4, 8), "a.weight_scale": e4m3(4, 1), "a.weight_zero_point": u8(4, 1)}, "a zero point"),
    ({"a.weight": i8(2, 4), "a.weight_scale": bf16(2, 1)}, "a scheme that is not known"),
    ({"a.weight": u8(2, 4), "a.weight_scale": bf16(1)}, "a scheme that is not known"),  # ternary
    ({"a.weight": i8(2, 4), "a.weight_scale": bf16(2, 1), "a.weight_zero_point": i8(2, 1)}, "a zero point"),
    ({"x_blocks": u8(2, 3, 16)}, "no 'x_scales'"),
    ({"a.weight_scale_inv": f32(2, 3)}, "no 'a.weight'"),
    ({"up_proj": u8(2, 4, 8), "up_proj_weight_scale": f32(2, 4, 1)}, "experts in one tensor"),
]


@pytest.mark.parametrize(("tensors", "sentence"), NOTES)
def test_schemes_that_are_not_known_come_as_they_are_stored(tmp_path, tensors, sentence):
    name = next(iter(tensors))
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))
    assert list(file) == list(tensors)
    assert list(file.notes) == [name]
    assert sentence in file.notes[name]
    assert "1 with notes" in repr(file)
    np.testing.assert_array_equal(file[name], tensors[name])
    assert not file.infos[name].parts


@pytest.mark.parametrize("told", ["comfy_quant", "metadata"])
@pytest.mark.parametrize("kind", ["modelopt_nvfp4", "compressed_tensors_mxfp8"])
def test_comfyui_has_the_same_names_for_another_layout(tmp_path, kind, told):
    tensors, name, *_ = cf.checkpoint(kind)
    metadata = {"_quantization_metadata": "{}"} if told == "metadata" else None
    if metadata is None:
        tensors["a.comfy_quant"] = np.frombuffer(b'{"format": "nvfp4"}', np.uint8)
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors, metadata))
    assert "as ComfyUI lays it out" in file.notes[name]
    assert not file.infos[name].parts
    assert set(file) == set(tensors)
    # FP8 has no layout of its own there.
    tensors, name, _, values = cf.checkpoint("modelopt_fp8")
    tensors["a.comfy_quant"] = np.frombuffer(b'{"format": "float8_e4m3fn"}', np.uint8)
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors, metadata))
    assert_bits_equal(file[name].dequant(), values)


def test_what_inputs_are_multiplied_by_is_told(tmp_path):
    tensors, name, _, values = cf.checkpoint("modelopt_nvfp4")
    tensors["a.pre_quant_scale"] = np.ones(80, cf.BF16)
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))
    assert file.notes[name] == "'a.pre_quant_scale' multiplies the inputs of this weight"
    assert_bits_equal(file[name].dequant(), values)


SIMILAR = [
    {"norm.weight": f32(4), "norm.scale": f32(4)},
    {"a.scale": f32(4), "b.weight_scale": f32(), "c.weight_scale_2": f32(), "d.weight_global_scale": f32(1)},
    {"a.weight": f32(4, 4), "a.scale": e8m0(4, 1)},
    {"a.weight": bf16(4, 4), "a.weight_scale": bf16(4, 1)},
    {"a.weight": bf16(4, 4), "a.weight_scale_inv": bf16(4, 1)},
    {"a.weight": i32(4, 4), "a.weight_scale": f32(4, 1), "a.weight_scale_2": f32()},
    {"x_blocks": f32(4, 4), "x_scales": f32(4)},
    {"x_blocks": u8(4, 15), "x_scales": u8(4)},
    {"x.blocks": u8(4, 15), "x.scales": u8(4), "y.blocks": f32(4, 16), "y.scales": f32(4)},
    {"x_blocks": u8(16), "x_scales": u8()},
    {"a.absmax": f32(4), "a.quant_map": f32(16)},
    {"a.scales": f32(4), "a.SCB": f32(4), "b.qweight": i32(4, 4)},
    {"weight_scale": f32(), "_scale_inv": f32(), ".scale": f32(), ".weight": f32()},
]


@pytest.mark.parametrize("tensors", SIMILAR)
def test_similar_names_are_no_convention(tmp_path, tensors):
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))
    assert list(file) == list(tensors)
    assert not [name for name in file.notes if not name.endswith("_scale_inv")]
    for name, expected in tensors.items():
        assert not file.infos[name].parts
        if np.asarray(expected).dtype.kind != "V":
            np.testing.assert_array_equal(file[name], expected)


@pytest.mark.parametrize("shape", [(0, 128), (128, 0), (0, 0)])
def test_weights_without_elements(tmp_path, shape):
    n, k = shape
    tiles = np.ones((-(-n // 128), -(-k // 128)), np.float32)
    tensors = {
        "a.weight": np.zeros(shape, cf.E4M3),
        "a.weight_scale_inv": tiles,
        "b.weight": np.zeros((n, k // 2), np.int8),
        "b.scale": np.zeros((n, k // 32), cf.E8M0),
        "x_blocks": np.zeros((n, k // 32, 16), np.uint8),
        "x_scales": np.zeros((n, k // 32), np.uint8),
    }
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", tensors))
    assert list(file) == ["a.weight", "b.weight", "x"]
    for name in file:
        assert file[name].dequant().shape == shape


def found(file, name):
    """A tensor, or None once it was refused by name."""
    try:
        return file[name]
    except ValueError as error:
        told = str(error)
    assert repr(name) in told
    return None


@pytest.mark.parametrize("kind", cf.CHECKPOINTS)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_headers_that_say_something_else(tmp_path, kind, data):
    """Of a checkpoint whose parts have other dtypes, shapes or names each tensor is decoded, or refused."""
    tensors, *_ = cf.checkpoint(kind)
    changed = {}
    for name, tensor in tensors.items():
        array = np.asarray(tensor)
        shape = data.draw(st.sampled_from([array.shape, array.shape[1:], (*array.shape, 1), array.shape[::-1]]))
        dtype = data.draw(st.sampled_from([array.dtype, np.dtype(np.uint8), np.dtype(cf.E4M3), np.dtype(np.float32)]))
        stem = data.draw(st.sampled_from([name, name, name, name.replace("weight", "scale"), "_scale_inv", ".weight"]))
        changed[stem] = np.zeros(shape, dtype)
    file = cbquant.open(cf.write(tmp_path / "m.safetensors", changed), unscaled_fp8=data.draw(st.booleans()))
    assert set(file.stored) == set(changed)
    for name, info in file.infos.items():
        tensor = found(file, name)
        if tensor is None:
            continue
        assert tensor.shape == info.shape
        if not info.format.startswith("unknown_"):
            assert np.asarray(tensor).shape == info.shape
