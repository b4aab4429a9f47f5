"""Checkpoints as the libraries that define them write them, with the numbers that these libraries decode.

    python tests/real/write_checkpoints.py FOLDER

It runs in an environment of its own, with torch, bitsandbytes, compressed-tensors and safetensors, and writes
FOLDER/NAME.safetensors and FOLDER/NAME.npy, the float32 numbers of the weight "layer.weight" in it.
`check_checkpoints.py` reads them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import bitsandbytes as bnb
import numpy as np
import torch
from bitsandbytes.functional import dequantize_4bit
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file

# Rows are whole blocks: bitsandbytes 0.50.2 encodes the tensor in one run, but where a row ends inside a block its
# decoder for the CPU begins a new one.
SHAPE = (160, 320)


def weight():
    torch.manual_seed(0)
    return torch.randn(SHAPE) * torch.logspace(-2, 1, SHAPE[0])[:, None]


def save(folder, name, tensors, values):
    save_file({f"layer.{key}": tensor.contiguous() for key, tensor in tensors.items()}, folder / f"{name}.safetensors")
    np.save(folder / f"{name}.npy", values.to(torch.float32).numpy())
    print(name, {key: (str(tensor.dtype), tuple(tensor.shape)) for key, tensor in tensors.items()})


# --- bitsandbytes ------------------------------------------------------------------------------------------


def write_bitsandbytes(folder, kind, nested, storage, block):
    layer = bnb.nn.Linear4bit(
        SHAPE[1], SHAPE[0], bias=False, quant_type=kind, compress_statistics=nested, quant_storage=storage
    )
    layer.weight = bnb.nn.Params4bit(weight(), False, None, block, nested, kind, storage)
    layer = layer.to("cpu")
    assert layer.weight.bnb_quantized
    values = dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    dtype = str(storage).removeprefix("torch.")
    name = f"bitsandbytes-{kind}-{'nested' if nested else 'plain'}-{dtype}-{block}"
    save(folder, name, layer.state_dict(), values)


# --- compressed-tensors ---------------------------------------------------------------------------------------


def grouped(x, rows, columns):
    """The largest magnitude of each tile of `rows` x `columns`."""
    n, k = (-(-length // size) for length, size in zip(x.shape, (rows, columns), strict=True))
    padded = torch.zeros(n * rows, k * columns)
    padded[: x.shape[0], : x.shape[1]] = x.abs()
    return padded.reshape(n, rows, k, columns).amax(dim=(1, 3))


def write_compressed(folder, form, args, scales, whole=None, dtype=None):
    args = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    state = {"weight": weight(), "weight_scale": scales}
    if whole is not None:
        state["weight_global_scale"] = whole
    stored = BaseCompressor.get_value_from_registry(form).compress(state, scheme)
    if "weight_packed" in stored:
        codes = unpack_fp4_from_uint8(stored["weight_packed"], *SHAPE, torch.float32)
    else:
        codes = stored["weight"]
    scale = stored["weight_scale"]
    numbers = 2.0 ** (scale.to(torch.float32) - 127) if scale.dtype == torch.uint8 else scale.to(torch.float32)
    values = dequantize(codes.to(torch.float32), numbers, args=args, dtype=torch.float32, global_scale=whole)
    save(folder, f"compressed_tensors-{form}-{args.strategy}", stored, values)


def write_all_compressed(folder):
    x = weight()
    fp4, fp8 = {"num_bits": 4, "type": "float"}, {"num_bits": 8, "type": "float"}
    whole = 448 * 6 / x.abs().max().reshape(1)
    groups = (grouped(x, 1, 16) / 6 * whole).clamp(2**-9, 448).to(torch.float8_e4m3fn).to(torch.float32)
    nvfp4 = {**fp4, "strategy": "tensor_group", "group_size": 16, "scale_dtype": torch.float8_e4m3fn}
    write_compressed(folder, "nvfp4-pack-quantized", nvfp4, groups, whole)
    powers = torch.exp2(torch.ceil(torch.log2(grouped(x, 1, 32) / 6)))
    mxfp4 = {**fp4, "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8}
    write_compressed(folder, "mxfp4-pack-quantized", mxfp4, powers)
    powers = torch.exp2(torch.ceil(torch.log2(grouped(x, 1, 32) / 448)))
    mxfp8 = {**fp8, "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8}
    write_compressed(folder, "mxfp8-quantized", mxfp8, powers)
    write_compressed(folder, "float-quantized", {**fp8, "strategy": "tensor"}, x.abs().max().reshape(1) / 448)
    rows = (grouped(x, 1, SHAPE[1]) / 448).to(torch.bfloat16)
    write_compressed(folder, "float-quantized", {**fp8, "strategy": "channel"}, rows)
    tiles = (grouped(x, 128, 128) / 448).to(torch.bfloat16)
    block = {**fp8, "strategy": "block", "block_structure": [128, 128]}
    write_compressed(folder, "float-quantized", block, tiles)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            write_bitsandbytes(folder, kind, nested, torch.uint8, 64)
    write_bitsandbytes(folder, "nf4", True, torch.bfloat16, 32)
    write_all_compressed(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
