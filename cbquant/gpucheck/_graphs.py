"""With out=: no allocation in the call, and calls that a CUDA graph captures. Not yet run on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import cbquant
from cbquant import cuda
from cbquant._formats import Format
from cbquant.gpucheck import _data
from cbquant.gpucheck._ceilings import need_torch
from cbquant.gpucheck._items import Context, Item, Wrong

NAMES = ("q4_0", "q6_k")


def items(context: Context) -> Iterator[Item]:
    for fmt in (f for f in context.blocks if f.name in NAMES):
        for name, make in (("dequant", dequant), ("matmul", matmul), ("moe", moe)):
            yield Item(f"{name} {fmt.name}", partial(check, context, fmt, make))


Make = Callable[[Any, Format], "tuple[Callable[[], Any], Any, Any]"]


def check(context: Context, fmt: Format, make: Make) -> dict[str, Any]:
    """The captured call, replayed after its input has changed, gives what the call gives; and neither allocates."""
    torch = need_torch(context)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call, x, out = make(torch, fmt)
        call()
        stream.synchronize()
        before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
        for _ in range(20):
            call()
        stream.synchronize()
        after = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
        if after != before:
            raise Wrong(
                f"20 calls with out= took memory: torch's and the device's free bytes went from {before} to {after}"
            )
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        if x is not None:
            x.normal_()
        call()
        expected = out.clone()
        out.fill_(float("nan"))
        graph.replay()
        stream.synchronize()
        if not torch.equal(out.view(torch.int16), expected.view(torch.int16)):
            raise Wrong("the replayed graph gave another result than the call")
    return {"kernel": cuda.last_kernel()}


def dequant(torch: Any, fmt: Format) -> tuple[Callable[[], Any], Any, Any]:
    weight = loaded(fmt, 300, 4 * max(fmt.elements, 32))
    out = torch.empty(weight.shape, dtype=torch.bfloat16, device="cuda")
    return lambda: cuda.dequant(weight, out=out), None, out


def matmul(torch: Any, fmt: Format) -> tuple[Callable[[], Any], Any, Any]:
    weight = loaded(fmt, 300, 4 * max(fmt.elements, 32))
    x = torch.randn(33, weight.shape[1], dtype=torch.bfloat16, device="cuda")
    out = torch.empty(33, 300, dtype=torch.bfloat16, device="cuda")
    return lambda: cuda.matmul(x, weight, out=out), x, out


def moe(torch: Any, fmt: Format) -> tuple[Callable[[], Any], Any, Any]:
    weight = loaded(fmt, 6, 70, 4 * max(fmt.elements, 32))
    x = torch.randn(19, weight.shape[2], dtype=torch.bfloat16, device="cuda")
    ids = torch.randint(-1, 6, (19, 3), dtype=torch.int32, device="cuda")
    factors = torch.rand(19, 3, device="cuda")
    out = torch.empty(19, 70, dtype=torch.bfloat16, device="cuda")
    return lambda: cuda.moe_matmul(x, weight, ids, factors, out=out), x, out


def loaded(fmt: Format, *shape: int) -> cuda.Weight:
    rows = _data.finite_rows(fmt, int(np.prod(shape[:-1])), shape[-1])
    return cuda.load(cbquant.QuantTensor(rows.reshape(-1), fmt.name, shape))
