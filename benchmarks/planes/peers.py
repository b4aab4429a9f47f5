"""Planes next to bitsandbytes and torch on a CPU: section D, one thread each, into the same memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import touched_memory
from benchmarks.plan import Done
from benchmarks.planes import optional, targets
from benchmarks.planes.cases import Case, Stored, cases
from benchmarks.planes.plan import Plan
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure, ratio

DTYPES = ("float32", "bfloat16")
_OWN = "cbquant"


def bitsandbytes_call(stored: Stored, out: NDArray[Any], dtype: str) -> Call:
    """``dequantize_4bit`` with an `out`."""
    torch = optional.torch_with_one_thread()
    import bitsandbytes.functional as bnb  # type: ignore[import-not-found,unused-ignore]

    kind = getattr(torch, dtype)
    (codes, scales), target = stored.copies[0], torch.from_numpy(out).view(kind)
    state = bnb.QuantState(
        absmax=torch.from_numpy(scales), shape=torch.Size(out.shape), dtype=kind, blocksize=64,
        quant_type=stored.case.fmt.name,
    )  # fmt: skip
    return partial(bnb.dequantize_4bit, torch.from_numpy(codes.reshape(-1, 1)), state, out=target)


def torch_call(stored: Stored, out: NDArray[Any], dtype: str) -> Call:
    """What ``.to`` does, without its new tensor: the codes alone, without their scales."""
    torch = optional.torch_with_one_thread()
    codes = torch.from_numpy(stored.copies[0][0]).view(getattr(torch, f"float8_{stored.case.fmt.code}"))
    target = torch.from_numpy(out).view(getattr(torch, dtype))
    return lambda: target.copy_(codes)


#: Who decodes what.
PEERS: dict[str, tuple[Callable[[Stored, NDArray[Any], str], Call], tuple[str, ...]]] = {
    "bitsandbytes": (bitsandbytes_call, ("nf4", "fp4")),
    "torch": (torch_call, ("fp8_e4m3", "fp8_e5m2")),
}


def next_to_peers(plan: Plan, done: Done) -> list[Row]:
    """A row for each format that a peer has, and type."""
    present = optional.versions()
    rows: list[Row] = []
    for case in cases(plan.formats):
        for name, (prepare, formats) in PEERS.items():
            if case.fmt.name in formats:
                rows += [_one(case, dtype, name, prepare if name in present else None, plan) for dtype in DTYPES]
        done(case.name)
    return rows


def _one(
    case: Case, dtype: str, peer: str, prepare: Callable[[Stored, NDArray[Any], str], Call] | None, plan: Plan
) -> Row:
    base: Row = {"format": case.name, "group": f"{peer}, 1 thread", "variant": dtype, "threads": 1}
    if prepare is None:
        return base | optional.missing(peer)
    n, k = plan.shape
    stored = Stored(case, n, k)
    item = np.dtype("float32" if dtype == "float32" else "uint16")
    out: NDArray[Any] = touched_memory(item.itemsize * n * k).view(item).reshape(n, k)
    own: Call = partial(stored.decode, out, dtype, 1)
    call = prepare(stored, out, dtype)
    check_same(case, stored, out, own, call, peer)
    timings = measure({_OWN: [own], peer: [call]}, plan.rounds, plan.sample_seconds, quiet=True)
    times = ratio(timings[peer], timings[_OWN])
    return base | {
        "peer": peer,
        "output_bytes": out.nbytes,
        "seconds": timings[_OWN].seconds,
        "spread": timings[_OWN].spread,
        "peer_seconds": timings[peer].seconds,
        "figure": times,
        "judged": judge(times, ">=", targets.PEERS[peer]),
    }


def check_same(case: Case, stored: Stored, out: NDArray[Any], own: Call, peer: Call, name: str) -> None:
    """Both have to do the same work, but that torch leaves scales out: a RuntimeError where it is not near."""
    own()
    wanted = as_float32(out)
    out.fill(0)
    peer()
    found = as_float32(out)
    if case.fmt.scales == "tile":
        scales = stored.copies[0][1]
        found *= scales.repeat(128, axis=0).repeat(128, axis=1)[: stored.n, : stored.k]
    if not np.allclose(found, wanted, rtol=1e-2, atol=0):
        raise RuntimeError(f"{case.name}: {name} and cbquant decode the same codes to different values")


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """A copy; uint16 stands for bfloat16."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)
