"""What this GPU gives at most: copies of its memory, products of bf16 through torch (cuBLAS).

Not yet run on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from cbquant import cuda
from cbquant.gpucheck._items import Context, Item, NotRun, need, need_gpu
from cbquant.gpucheck._timing import Timer

COPY_BYTES, SIDE = 1 << 30, 8192


def items(context: Context) -> Iterator[Item]:
    yield Item("device to device copy", partial(copy, context))
    yield Item("bf16 matmul (cuBLAS)", partial(matmul, context))


def need_torch(context: Context) -> Any:
    """torch, with this GPU."""
    need_gpu(context)
    torch = need("torch")
    if not torch.cuda.is_available():
        raise NotRun("this torch has no CUDA, or does not find the GPU")
    torch.cuda.set_device(context.device)
    return torch


def timer(context: Context) -> Timer:
    if "timer" not in context.cache:
        context.cache["timer"] = Timer(need_torch(context))
    found: Timer = context.cache["timer"]
    return found


def copy(context: Context) -> dict[str, Any]:
    """Bytes a second that are read and written."""
    torch = need_torch(context)
    nbytes = min(COPY_BYTES, cuda.device_info(context.device)["free_bytes"] // 4) // 256 * 256
    source = torch.empty(nbytes, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    time = timer(context).measure([lambda: target.copy_(source)])
    return {"bytes": 2 * nbytes, "bytes_per_second": 2 * nbytes / time.seconds, **time.as_dict()}


def matmul(context: Context) -> dict[str, Any]:
    torch = need_torch(context)
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    y = torch.empty_like(a)
    time = timer(context).measure([lambda: torch.matmul(a, b.t(), out=y)])
    return {"m=n=k": SIDE, "flop_per_second": 2 * SIDE**3 / time.seconds, **time.as_dict()}


def copy_rate(context: Context) -> float:
    """Bytes a second, measured once in a process."""
    if "copy rate" not in context.cache:
        context.cache["copy rate"] = copy(context)["bytes_per_second"]
    rate: float = context.cache["copy rate"]
    return rate
