"""Other libraries' 4-bit products, where they can be imported. Not yet run on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cbquant.gpucheck._items import need

#: Makes one weight [n, k] from a bf16 tensor, and returns what multiplies x by it.
Make = Callable[[Any, Any], Callable[[Any], Any]]


def bitsandbytes(torch: Any, w: Any) -> Callable[[Any], Any]:
    """NF4 in blocks of 64 (https://huggingface.co/docs/bitsandbytes/reference/functional)."""
    library = need("bitsandbytes")
    packed, state = library.functional.quantize_4bit(w, blocksize=64, quant_type="nf4")
    return lambda x: library.matmul_4bit(x, packed.t(), quant_state=state)


def humming(torch: Any, w: Any) -> Callable[[Any], Any]:
    """4-bit integers, as its README has it (https://pypi.org/project/humming-kernels)."""
    layer_class = need("humming.layer").HummingLayer
    n, k = w.shape
    layer = layer_class(shape_n=n, shape_k=k, weight_config={"dtype": "int4"}, torch_dtype=torch.bfloat16).cuda()
    layer.load_from_unquantized(w)
    layer.transform()
    return layer  # type: ignore[no-any-return]


PEERS: dict[str, Make] = {"bitsandbytes nf4": bitsandbytes, "humming int4": humming}
