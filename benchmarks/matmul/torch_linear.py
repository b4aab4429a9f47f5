"""torch's linear layers on decoded weights: float32, bfloat16, and int8 with activations quantized at run time."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.blocks import Turns
from benchmarks.matmul.weights import TOLERANCES, Dense, Floats, Operand
from benchmarks.timing import Call

# One scale for all weights and one for all of x.
_INT8_TOLERANCE = 0.05


def installed() -> bool:
    """Whether torch is there; it is loaded at its first use."""
    return importlib.util.find_spec("torch") is not None


def load(weights: Dense, stack: ExitStack) -> list[Operand]:
    """The layers that this build of torch has. A copy of the weights for each copy there is in float32, or for as many
    as take as much memory."""
    import torch

    copies = weights.cold.copies
    same = [torch.from_numpy(copy) for copy in copies]
    halves = [torch.from_numpy(copies[0]).bfloat16() for _ in range(_as_many_bytes(len(copies), 2))]
    operands = [
        _operand("torch f32", weights.cold.turns, [_linear(w) for w in same], torch.float32, TOLERANCES["f32"]),
        _operand("torch bf16", Turns(len(halves)), [_linear(w) for w in halves], torch.bfloat16, TOLERANCES["bf16"]),
    ]
    quantize = _quantize_dynamic()
    if quantize:
        layers = [_quantized(quantize, same[0]) for _ in range(_as_many_bytes(len(copies), 4))]
        operands.append(_operand("torch int8", Turns(len(layers)), layers, torch.float32, _INT8_TOLERANCE))
    return operands


def _as_many_bytes(copies: int, factor: int) -> int:
    return copies if copies == 1 else copies * factor


def _linear(w: Any) -> Callable[[Any], Any]:
    from torch.nn.functional import linear

    return lambda x: linear(x, w)


def notes() -> list[str]:
    """What is left out."""
    return [] if _quantize_dynamic() else ["no torch int8: this torch has no quantize_dynamic, or no engine for it"]


def _quantize_dynamic() -> Any:
    """The function that makes a layer quantize; None in a torch that has given it up, or has no kernels for it."""
    import torch

    try:
        from torch.ao.quantization import quantize_dynamic
    except ImportError:
        return None
    return quantize_dynamic if set(torch.backends.quantized.supported_engines) - {"none"} else None


def _quantized(quantize: Any, w: Any) -> Any:
    import torch

    layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all of it is deprecated in favour of another package
        layer.weight.copy_(w)
        return quantize(torch.nn.Sequential(layer), {torch.nn.Linear}, dtype=torch.qint8)


def _operand(name: str, turns: Turns, layers: list[Callable[[Any], Any]], dtype: Any, tolerance: float) -> Operand:
    import torch

    def calls(x: Floats, out: Floats, threads: int) -> list[Call]:
        own = torch.from_numpy(x).to(dtype)

        def apply(layer: Callable[[Any], Any]) -> Call:
            def call() -> Any:
                torch.set_num_threads(threads)
                with torch.inference_mode():
                    return layer(own)

            return call

        return [apply(layer) for layer in layers]

    def result(returned: Any) -> Floats:
        return np.asarray(returned.float().numpy(), np.float32)

    return Operand(name, calls, turns, tolerance, result)
