"""NF4 and FP4 planes against bitsandbytes itself, on the CPU; tools/check.py runs it in an environment that has it.

A program and not a test of pytest: torch warns of much that is no concern of this.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import bitsandbytes
import bitsandbytes.functional as bnb
import numpy as np
import torch
from numpy.typing import NDArray

from cbquant import planes
from cbquant.reference import planes as reference

BLOCKS = (64, 128, 256, 4096)
# Rows of its tensors of three dimensions must be whole blocks: from others its CPU code (0.50) does not get back what
# it was given.
SHAPES = ((64, 256), (33, 65), (4096,), (3, 40, 4096), (1, 2))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def as_numbers(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.float().numpy()


def state_as_arguments(state: Any) -> dict[str, Any]:
    """What docs/planes.md says of a quantization state of bitsandbytes, torch tensors as they are."""
    second = state.state2
    nested = None if second is None else (second.absmax, second.code, state.offset, second.blocksize)
    return {"shape": state.shape, "block": state.blocksize, "nested": nested}


def check_their_tensors() -> int:
    """Tensors that bitsandbytes quantized decode to what it decodes them to. A zero may have another sign (FP4)."""
    generator, count = torch.Generator().manual_seed(0), 0
    for fmt, nested, block, shape, dtype in itertools.product(("nf4", "fp4"), (False, True), BLOCKS, SHAPES, DTYPES):
        x = torch.randn(shape, generator=generator).to(dtype)
        codes, state = bnb.quantize_4bit(x, blocksize=block, quant_type=fmt, compress_statistics=nested)
        expected = as_numbers(bnb.dequantize_4bit(codes, state)).reshape(shape)  # it turns vectors into matrices
        name = str(dtype).removeprefix("torch.")
        arguments = state_as_arguments(state)
        found = planes.dequant(fmt, codes, state.absmax, **arguments, dtype=name).astype(np.float32)
        if not np.array_equal(found, expected):
            sys.exit(f"{fmt} {shape} in blocks of {block}, {name}, nested={nested}: not what bitsandbytes decodes")
        count += found.size
    return count


def check_every_code(fmt: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8).reshape(-1, 1)
    _, state = bnb.quantize_4bit(torch.ones(512), blocksize=64, quant_type=fmt)
    state.absmax = torch.arange(1, 9).float() / 7
    expected = as_numbers(bnb.dequantize_4bit(codes, state)).reshape(-1)
    found = planes.dequant(fmt, codes, state.absmax, shape=512)
    if not np.array_equal(found, expected):
        sys.exit(f"{fmt}: bytes {np.flatnonzero(found != expected) // 2} are not what bitsandbytes decodes")
    if not np.array_equal(as_numbers(state.code), reference.CODES[fmt]):
        sys.exit(f"{fmt}: another table than that of bitsandbytes")


def check_our_tensors(fmt: str) -> str:
    """bitsandbytes decodes what `planes.quantize` makes as we do, and mostly chooses the same codes."""
    x = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
    theirs, state = bnb.quantize_4bit(x, blocksize=64, quant_type=fmt)
    codes, absmax, _ = planes.quantize(x.numpy(), fmt)
    if not np.array_equal(absmax, as_numbers(state.absmax)):
        sys.exit(f"{fmt}: another absmax than that of bitsandbytes")
    decoded = as_numbers(bnb.dequantize_4bit(torch.from_numpy(codes.reshape(-1, 1)), state))
    if not np.array_equal(decoded, planes.dequant(fmt, codes, absmax)):
        sys.exit(f"{fmt}: bitsandbytes decodes our planes to other numbers")
    ours_error, their_error = (
        float(np.linalg.norm(x.numpy() - values))
        for values in (decoded, as_numbers(bnb.dequantize_4bit(theirs, state)))
    )
    if ours_error > their_error * (1 + 1e-6):
        sys.exit(f"{fmt}: an error of {ours_error:g}, where bitsandbytes has {their_error:g}")
    differing = np.count_nonzero(codes.reshape(-1) != theirs.numpy().reshape(-1))
    return f"{fmt}: {differing} of {codes.size} bytes differ from theirs, error {ours_error:.6g} and {their_error:.6g}"


def main() -> None:
    for fmt in ("nf4", "fp4"):
        check_every_code(fmt)
    count = check_their_tensors()
    notes = [check_our_tensors(fmt) for fmt in ("nf4", "fp4")]
    print(f"bitsandbytes {bitsandbytes.__version__}: {count:,} numbers equal")
    print("\n".join(notes))


if __name__ == "__main__":
    main()
