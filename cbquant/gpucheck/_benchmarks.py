"""Speed: decoding against a copy, products against torch's bf16 (cuBLAS), and peers. Not yet run on a GPU.

What matters most comes first: where time runs out, the end is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

import cbquant
from cbquant import cuda
from cbquant._formats import Format
from cbquant.gpucheck import _ceilings, _data, _operator_speed
from cbquant.gpucheck._ceilings import need_torch, timer
from cbquant.gpucheck._items import Context, Item, NotRun, checkout
from cbquant.gpucheck._peers import PEERS
from cbquant.gpucheck._timing import Timing, copies_past_cache

#: The 4-bit formats that aims are for, and rows of x.
MAIN = ("q4_0", "q4_k", "iq4_xs", "mxfp4")
FEW, MANY = (1, 2, 4, 8), (16, 32, 64, 128, 256, 1024, 4096)
#: 128 MB of 4-bit weights and more; a shape of a model's layer; experts, columns, rows, tokens and their choices.
SIDE, SMALL_SIDE = 16384, 8192
LAYER = (14336, 4096)
EXPERTS, EXPERT_N, EXPERT_K, TOKENS, PICKS = 64, 4096, 4096, 4096, 8
#: Rows that differ; the others repeat them.
ROWS = 64


def items(context: Context) -> Iterator[Item]:
    need_torch(context)
    main = [f for f in context.blocks if f.name in MAIN]
    others = [f for f in context.blocks if f.name not in MAIN]
    for fmt in main:
        yield Item(f"products {fmt.name}", partial(products, context, fmt, (*FEW, *MANY)))
    for fmt in main[:2]:
        yield Item(f"moe {fmt.name}", partial(moe, context, fmt))
    for fmt in [*main, *others]:
        yield Item(f"dequant {fmt.name}", partial(dequant, context, fmt))
    yield from _operator_speed.items(context)
    for fmt in main:
        yield Item(f"layer {fmt.name}", partial(products, context, fmt, (1, 8, 64), LAYER))
    for name in PEERS:
        yield Item(name, partial(peer, context, name))
    for fmt in others:
        yield Item(f"products {fmt.name}", partial(products, context, fmt, (1, 8, 64, 4096)))


def products(
    context: Context, fmt: Format, ms: tuple[int, ...], shape: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Times of x [m, k] . W [n, k]^T for each m."""
    n, k = shape or (side(context), side(context))
    weights = [load_repeated(context, fmt, n, k)]
    for _ in range(ring_size(context, weights[0].nbytes) - 1):
        weights.append(load_repeated(context, fmt, n, k))
    rows = []
    for m in ms:
        if context.left <= 0:
            break
        x, out = operands(context, m, n, k)
        time = timer(context).measure([partial(cuda.matmul, x, w, out=out) for w in weights])
        kernel = str(cuda.last_kernel())
        facts = {"format": fmt.name, "kernel": kernel, "budget": decode_budget(context, kernel, 8 if m <= 8 else 64)}
        rows.append({**facts, **judged(context, "matmul", m, n, k, time, weights[0].nbytes)})
    return {"rows": rows}


def judged(context: Context, what: str, m: int, n: int, k: int, time: Timing, nbytes: int) -> dict[str, Any]:
    """A row: what was measured, and how it stands to the copy and to bf16."""
    of_copy = nbytes / time.seconds / _ceilings.copy_rate(context)
    row = {"what": what, "m": m, "n": n, "k": k, "weight_bytes": nbytes, "of_copy": of_copy, **time.as_dict()}
    return {**row, "times_bf16": bf16(context, m, n, k) / time.seconds, "flop_per_second": 2 * m * n * k / time.seconds}


def bf16(context: Context, m: int, n: int, k: int) -> float:
    """Seconds of torch's product in bf16, measured once in a process."""
    known = context.cache.setdefault("bf16", {})
    if (m, n, k) not in known:
        torch = need_torch(context)
        kept = context.cache.get("bf16 weights")
        if kept is None or tuple(kept[0].shape) != (n, k):
            context.cache["bf16 weights"] = kept = None  # the memory of the last ones first
            torch.cuda.empty_cache()
            count = ring_size(context, 2 * n * k)
            kept = [torch.randn(n, k, dtype=torch.bfloat16, device="cuda") for _ in range(count)]
            context.cache["bf16 weights"] = kept
        x, out = operands(context, m, n, k)
        time = timer(context).measure([partial(torch.mm, x, w.t(), out=out) for w in kept])
        known[m, n, k] = time.seconds
    found: float = known[m, n, k]
    return found


def operands(context: Context, m: int, n: int, k: int) -> tuple[Any, Any]:
    torch = need_torch(context)
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    return torch.randn(m, k, **options), torch.empty(m, n, **options)


def moe(context: Context, fmt: Format) -> dict[str, Any]:
    """Prefill, with ids on the device. torch knows on the host who chose whom, and calls cuBLAS for each expert."""
    torch = need_torch(context)
    need = EXPERTS * EXPERT_N * EXPERT_K * 3 + 4 * TOKENS * PICKS * (EXPERT_N + EXPERT_K)
    if cuda.device_info(context.device)["free_bytes"] < need:
        raise NotRun(f"{need / 1e9:.1f} GB of GPU memory are needed")
    weight = load_repeated(context, fmt, EXPERT_N, EXPERT_K, EXPERTS)
    ids = torch.randint(0, EXPERTS, (TOKENS, PICKS), dtype=torch.int32, device="cuda")
    x = torch.randn(TOKENS, EXPERT_K, dtype=torch.bfloat16, device="cuda")
    out = torch.empty(TOKENS, PICKS, EXPERT_N, dtype=torch.bfloat16, device="cuda")
    time = timer(context).measure([lambda: cuda.moe_matmul(x, weight, ids, out=out)])
    flop = 2 * TOKENS * PICKS * EXPERT_N * EXPERT_K
    row = {"what": "moe", "format": fmt.name, "m": TOKENS, "n": EXPERT_N, "k": EXPERT_K, "experts": EXPERTS}
    row |= {"picks": PICKS, "flop_per_second": flop / time.seconds, "kernel": cuda.last_kernel(), **time.as_dict()}
    return {"rows": [{**row, "times_bf16": _moe_bf16(context, ids) / time.seconds}]}


def _moe_bf16(context: Context, ids: Any) -> float:
    torch = need_torch(context)
    if "moe" not in context.cache:
        counts = torch.bincount(ids.flatten(), minlength=EXPERTS).tolist()
        options = {"dtype": torch.bfloat16, "device": "cuda"}
        w = torch.randn(EXPERTS, EXPERT_N, EXPERT_K, **options)
        parts = [(torch.randn(c, EXPERT_K, **options), torch.empty(c, EXPERT_N, **options)) for c in counts]

        def run() -> None:
            for e, (x, y) in enumerate(parts):
                torch.mm(x, w[e].t(), out=y)

        context.cache["moe"] = timer(context).measure([run]).seconds
    found: float = context.cache["moe"]
    return found


def dequant(context: Context, fmt: Format) -> dict[str, Any]:
    """To bf16: the bytes that are read and written, against those of a copy."""
    n = side(context)
    weight = load_repeated(context, fmt, n, n)
    torch = need_torch(context)
    out = torch.empty(n, n, dtype=torch.bfloat16, device="cuda")
    time = timer(context).measure([lambda: cuda.dequant(weight, out=out)])
    nbytes = weight.nbytes + 2 * n * n
    of_copy = nbytes / time.seconds / _ceilings.copy_rate(context)
    row = {"what": "dequant", "format": fmt.name, "n": n, "k": n, "bytes": nbytes, "of_copy": of_copy}
    return {"rows": [{**row, "kernel": cuda.last_kernel(), **time.as_dict()}]}


def peer(context: Context, name: str) -> dict[str, Any]:
    """The same products by another library."""
    torch = need_torch(context)
    n = k = side(context)
    multiply: Callable[[Any], Any] = PEERS[name](torch, torch.randn(n, k, dtype=torch.bfloat16, device="cuda"))
    rows = []
    for m in (1, 8, 16, 32, 64, 4096):
        if context.left <= 0:
            break
        x, _ = operands(context, m, n, k)
        time = timer(context).measure([partial(multiply, x)])
        rows.append({"format": name, "kernel": name, **judged(context, "peer", m, n, k, time, n * k // 2)})
    return {"rows": rows}


# ---- weights ----


def side(context: Context) -> int:
    """Rows and columns of the big products: smaller ones where memory is."""
    if "side" not in context.cache:
        free = cuda.device_info(context.device)["free_bytes"]
        context.cache["side"] = SIDE if free > 16 * SIDE * SIDE else SMALL_SIDE
    found: int = context.cache["side"]
    return found


def ring_size(context: Context, nbytes: int) -> int:
    info = cuda.device_info(context.device)
    return copies_past_cache(nbytes, info["l2_bytes"], info["free_bytes"] // 4)


def load_repeated(context: Context, fmt: Format, n: int, k: int, experts: int = 0) -> cuda.Weight:
    rows = _data.repeated(_finite_rows(fmt, k), n * max(experts, 1))
    shape = (experts, n, k) if experts else (n, k)
    return cuda.load(cbquant.QuantTensor(rows.reshape(-1), fmt.name, shape), context.device)


@cache
def _finite_rows(fmt: Format, k: int) -> _data.Bytes:
    return _data.finite_rows(fmt, ROWS, k)


def decode_budget(context: Context, kernel: str, tokens: int) -> float | None:
    """Instructions of a lane for each weight, as counted in nvcc's machine code; None outside of a checkout. What hides
    behind tensor cores is rows of x / 16."""
    root = checkout()
    if root is None:
        return None
    table = json.loads((root / "tests" / "cuda" / "ceilings.json").read_text())
    arch = "sm_90a" if cuda.device_info(context.device)["compute_capability"] == "9.0" else "sm_80"
    row = table[arch].get(f"cbq_{kernel}")
    if row is None:
        return None
    usage = dict(zip(table["columns"], row, strict=True))
    return float(np.round(usage["loop"] * tokens / (64 * usage["loop_tensor"]), 2))
