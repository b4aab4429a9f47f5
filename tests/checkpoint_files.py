"""Quantized checkpoints for the tests: safetensors files, and the numbers of their weights in plain NumPy."""

from __future__ import annotations

import json
import struct

import ml_dtypes
import numpy as np

E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu
BF16 = ml_dtypes.bfloat16

DTYPES = {
    "bool": "BOOL",
    **{f"{kind}int{bits}": f"{kind.upper() or 'I'}{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)

# The constants of bitsandbytes (get_4bit_type in bitsandbytes/functional.py).
NF4 = np.array(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ],
    np.float32,
)
FP4 = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3, -0.0, -0.0625, -8, -12, -4, -6, -2, -3], np.float32) / np.float32(12)


def content(tensors, metadata=None):
    """The bytes of a file of arrays, or of (dtype, shape, bytes), without any library."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            dtype, shape, raw = tensor
        else:
            array = np.asarray(tensor)
            dtype, shape, raw = DTYPES[array.dtype.name], array.shape, array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(path, tensors, metadata=None):
    path.write_bytes(content(tensors, metadata))
    return path


def write_sharded(folder, tensors, owner):
    """The same tensors in two files with an index; `owner` says which of them a name goes to."""
    names = [f"m-0000{number}-of-00002.safetensors" for number in (1, 2)]
    places = {name: names[owner(name)] for name in tensors}
    for number, file in enumerate(names):
        write(folder / file, {name: tensor for name, tensor in tensors.items() if owner(name) == number})
    (folder / "m.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder / "m.safetensors.index.json"


# --- the numbers -------------------------------------------------------------------------------------------


def spread(scales, shape, rows, columns):
    """Scales [..., tiles, tiles] as float32, one for each element."""
    wide = np.repeat(np.repeat(scales.astype(np.float32), rows, axis=-2), columns, axis=-1)
    return wide[..., : shape[-2], : shape[-1]]


def pairs(codes):
    """Codes of four bits, those of the low nibbles first."""
    codes = codes.view(np.uint8)
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)


def e8m0(scales):
    return np.asarray(scales).view(E8M0).astype(np.float32)


# --- one checkpoint of each convention: tensors, the weight's name, format and numbers ------------------------


def _fp8(rng, shape, dtype=E4M3):
    finite = {E4M3: 0x7F, E5M2: 0x7C}[dtype]
    codes = rng.integers(0, finite, shape, np.uint8) | (rng.integers(0, 2, shape, np.uint8) << 7)
    return codes.view(dtype)


def deepseek_v3(rng, scales=np.float32):
    codes = _fp8(rng, (200, 300))
    inv = rng.uniform(1e-4, 1, (2, 3)).astype(scales)
    values = codes.astype(np.float32) * spread(inv, codes.shape, 128, 128)
    return {"a.weight": codes, "a.weight_scale_inv": inv}, "a.weight", "fp8_e4m3", values


def deepseek_v3_bf16(rng):
    return deepseek_v3(rng, BF16)


def transformers_experts(rng):
    codes, inv = _fp8(rng, (3, 130, 140)), rng.uniform(1e-4, 1, (3, 2, 2)).astype(np.float32)
    values = codes.astype(np.float32) * spread(inv, codes.shape, 128, 128)
    return (
        {"experts.gate_up_proj": codes, "experts.gate_up_proj_scale_inv": inv},
        "experts.gate_up_proj",
        "fp8_e4m3",
        values,
    )


def transformers_experts_whole(rng):
    codes, inv = _fp8(rng, (3, 130, 140)), rng.uniform(1e-4, 1, (3, 1, 1)).astype(np.float32)
    return {"up_proj": codes, "up_proj_scale_inv": inv}, "up_proj", "fp8_e4m3", codes.astype(np.float32) * inv


def transformers_experts_fp4(rng):
    codes, scales = rng.integers(-128, 128, (2, 6, 64), np.int8), rng.integers(0, 255, (2, 6, 4), np.uint8)
    values = (E2M1[pairs(codes)].reshape(2, 6, 4, 32) * e8m0(scales)[..., None]).reshape(2, 6, 128)
    return {"up_proj": codes, "up_proj_scale_inv": scales.view(E8M0)}, "up_proj", "mxfp4_planes", values


def transformers_whole(rng):
    codes, inv = _fp8(rng, (200, 300)), np.float32(0.25)
    tensors = {"a.weight": codes, "a.weight_scale_inv": inv, "a.activation_scale": np.float32(3)}
    return tensors, "a.weight", "fp8_e4m3", codes.astype(np.float32) * inv


def mistral(rng):
    codes, scale = _fp8(rng, (4, 32)), np.array([0.3], np.float32)
    return {"a.weight": codes, "a.qscale_weight": scale}, "a.weight", "fp8_e4m3", codes.astype(np.float32) * scale


def comfyui_old(rng):
    codes, scale = _fp8(rng, (4, 32)), np.float32(0.3)
    return {"a.weight": codes, "a.scale_weight": scale}, "a.weight", "fp8_e4m3", codes.astype(np.float32) * scale


def deepseek_v4(rng):
    codes, scales = _fp8(rng, (200, 300)), rng.integers(100, 140, (2, 3), np.uint8)
    values = codes.astype(np.float32) * spread(e8m0(scales), codes.shape, 128, 128)
    return {"a.weight": codes, "a.scale": scales.view(E8M0)}, "a.weight", "fp8_e4m3", values


def deepseek_v4_base(rng):
    codes, scales = _fp8(rng, (200, 300)), np.exp2(rng.integers(-9, 9, (2, 3))).astype(np.float32)
    values = codes.astype(np.float32) * spread(scales, codes.shape, 128, 128)
    return {"a.weight": codes, "a.scale": scales}, "a.weight", "fp8_e4m3", values


def deepseek_v4_expert(rng):
    codes, scales = rng.integers(-128, 128, (6, 64), np.int8), rng.integers(0, 255, (6, 4), np.uint8)
    values = (E2M1[pairs(codes)].reshape(6, 4, 32) * e8m0(scales)[..., None]).reshape(6, 128)
    return (
        {"experts.0.w1.weight": codes, "experts.0.w1.scale": scales.view(E8M0)},
        "experts.0.w1.weight",
        "mxfp4_planes",
        values,
    )


def deepseek_v4_engram(rng):
    codes, scales = _fp8(rng, (9, 256)), rng.integers(100, 140, (9, 8), np.uint8)
    values = (codes.astype(np.float32).reshape(9, 8, 32) * e8m0(scales)[..., None]).reshape(9, 256)
    return (
        {"engram.embed.weight": codes, "engram.embed.scale": scales.view(E8M0)},
        "engram.embed.weight",
        "mxfp8_e4m3",
        values,
    )


def gpt_oss(rng):
    codes, scales = rng.integers(0, 256, (2, 3, 4, 16), np.uint8), rng.integers(0, 255, (2, 3, 4), np.uint8)
    values = (E2M1[pairs(codes)] * e8m0(scales)[..., None]).reshape(2, 3, 128)
    tensors = {"up_proj_bias": np.zeros((2, 3), BF16), "up_proj_blocks": codes, "up_proj_scales": scales}
    return tensors, "up_proj", "mxfp4_planes", values


def gpt_oss_original(rng):
    tensors, name, fmt, values = gpt_oss(rng)
    codes, scales = tensors["up_proj_blocks"], tensors["up_proj_scales"]
    return {f"{name}.blocks": codes, f"{name}.scales": scales}, name, fmt, values


def _nvfp4(rng):
    codes, scales = rng.integers(0, 256, (5, 40), np.uint8), _fp8(rng, (5, 5))
    values = (E2M1[pairs(codes)].reshape(5, 5, 16) * scales.astype(np.float32)[..., None]).reshape(5, 80)
    return codes, scales, values


def compressed_tensors_nvfp4(rng):
    codes, scales, values = _nvfp4(rng)
    whole = np.array([3584.7], np.float32)
    tensors = {
        "a.weight_packed": codes,
        "a.weight_scale": scales,
        "a.weight_global_scale": whole,
        "a.input_global_scale": np.ones(1, np.float32),
    }
    return tensors, "a.weight", "nvfp4_planes", values / whole


def compressed_tensors_mxfp4(rng):
    codes, scales = rng.integers(0, 256, (6, 64), np.uint8), rng.integers(0, 255, (6, 4), np.uint8)
    values = (E2M1[pairs(codes)].reshape(6, 4, 32) * e8m0(scales)[..., None]).reshape(6, 128)
    return {"a.weight_packed": codes, "a.weight_scale": scales}, "a.weight", "mxfp4_planes", values


def compressed_tensors_rows(rng):
    codes, scales = _fp8(rng, (200, 64)), rng.uniform(1e-4, 1, (200, 1)).astype(BF16)
    return (
        {"a.weight": codes, "a.weight_scale": scales},
        "a.weight",
        "fp8_e4m3",
        codes.astype(np.float32) * scales.astype(np.float32),
    )


def compressed_tensors_whole(rng):
    codes, scales = _fp8(rng, (200, 64), E5M2), np.array([0.7], np.float16)
    return (
        {"a.weight": codes, "a.weight_scale": scales},
        "a.weight",
        "fp8_e5m2",
        codes.astype(np.float32) * scales.astype(np.float32),
    )


def compressed_tensors_tiles(rng):
    tensors, name, fmt, values = deepseek_v3(rng, BF16)
    return {"a.weight": tensors["a.weight"], "a.weight_scale": tensors["a.weight_scale_inv"]}, name, fmt, values


def compressed_tensors_mxfp8(rng):
    codes, scales = _fp8(rng, (6, 96)), rng.integers(100, 140, (6, 3), np.uint8)
    values = (codes.astype(np.float32).reshape(6, 3, 32) * e8m0(scales)[..., None]).reshape(6, 96)
    return {"a.weight": codes, "a.weight_scale": scales}, "a.weight", "mxfp8_e4m3", values


def modelopt_nvfp4(rng):
    codes, scales, values = _nvfp4(rng)
    whole = np.float32(0.00028)
    tensors = {"a.weight": codes, "a.weight_scale": scales, "a.weight_scale_2": whole, "a.input_scale": np.float32(1)}
    return tensors, "a.weight", "nvfp4_planes", values * whole


def modelopt_fp8(rng):
    codes, scale = _fp8(rng, (5, 64)), np.float32(0.3)
    return {"a.weight": codes, "a.weight_scale": scale}, "a.weight", "fp8_e4m3", codes.astype(np.float32) * scale


def modelopt_fp8_rows(rng):
    codes, scale = _fp8(rng, (5, 64)), rng.uniform(1e-4, 1, 5).astype(np.float32)
    return (
        {"a.weight": codes, "a.weight_scale": scale},
        "a.weight",
        "fp8_e4m3",
        codes.astype(np.float32) * scale[:, None],
    )


def quark_mxfp4(rng):
    tensors, name, fmt, values = compressed_tensors_mxfp4(rng)
    return {"a.weight": tensors["a.weight_packed"], "a.weight_scale": tensors["a.weight_scale"]}, name, fmt, values


def bitsandbytes(rng, kind="nf4", shape=(6, 50), block=64, nested=False, storage=np.uint8):
    n = int(np.prod(shape))
    table = {"nf4": NF4, "fp4": FP4}[kind]
    codes, blocks = rng.integers(0, 256, -(-n // 2), np.uint8), -(-n // block)
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": list(shape)}
    tensors = {
        "a.weight": codes.view(storage).reshape(-1, 1),
        "a.weight.absmax": rng.uniform(0.01, 2, blocks).astype(np.float32),
        "a.weight.quant_map": table,
    }
    absmax = tensors["a.weight.absmax"]
    if nested:
        indices, outer = (
            rng.integers(0, 256, blocks, np.uint8),
            rng.uniform(0.1, 1, -(-blocks // 256)).astype(np.float32),
        )
        numbers = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0414}
        tensors |= {
            "a.weight.absmax": indices,
            "a.weight.nested_absmax": outer,
            "a.weight.nested_quant_map": numbers,
        }
        absmax = numbers[indices] * np.repeat(outer, 256)[:blocks] + np.float32(0.0414)
    text = json.dumps(state).encode()
    tensors[f"a.weight.quant_state.bitsandbytes__{kind}"] = np.frombuffer(text, np.uint8)
    numbers = np.stack([codes >> 4, codes & 15], axis=-1).reshape(-1)[:n]
    values = (table[numbers] * np.repeat(absmax, block)[:n]).reshape(shape)
    return tensors, "a.weight", kind, values


def bitsandbytes_fp4(rng):
    return bitsandbytes(rng, "fp4", (4, 3, 7), 32)


def bitsandbytes_odd(rng):
    return bitsandbytes(rng, "nf4", (7, 9))


def bitsandbytes_nested(rng):
    return bitsandbytes(rng, "nf4", (300, 70), nested=True)


def bitsandbytes_stored_as_bfloat16(rng):
    return bitsandbytes(rng, "nf4", (6, 50), storage=BF16)


CHECKPOINTS = {
    made.__name__: made
    for made in (
        deepseek_v3,
        deepseek_v3_bf16,
        transformers_experts,
        transformers_experts_whole,
        transformers_experts_fp4,
        transformers_whole,
        mistral,
        comfyui_old,
        deepseek_v4,
        deepseek_v4_base,
        deepseek_v4_expert,
        deepseek_v4_engram,
        gpt_oss,
        gpt_oss_original,
        compressed_tensors_nvfp4,
        compressed_tensors_mxfp4,
        compressed_tensors_rows,
        compressed_tensors_whole,
        compressed_tensors_tiles,
        compressed_tensors_mxfp8,
        modelopt_nvfp4,
        modelopt_fp8,
        modelopt_fp8_rows,
        quark_mxfp4,
        bitsandbytes,
        bitsandbytes_fp4,
        bitsandbytes_odd,
        bitsandbytes_nested,
        bitsandbytes_stored_as_bfloat16,
    )
}


def checkpoint(name, seed=0):
    """The tensors of a checkpoint, and its weight: name, format, float32 numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        tensors, weight, fmt, values = CHECKPOINTS[name](np.random.default_rng(seed))
    return tensors, weight, fmt, values.astype(np.float32, copy=False)
