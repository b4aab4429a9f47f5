"""Planes next to bitsandbytes and torch on a CPU: section D, one thread each. All return new arrays, of a size that
malloc takes from memory used before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ceilings import cache_fills
from benchmarks.machine import touched_memory
from benchmarks.matmul.plan import shape_word
from benchmarks.plan import Done
from benchmarks.planes import optional, targets
from benchmarks.planes.cases import Case, Stored, cases
from benchmarks.planes.plan import Plan
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure, ratio
from cbquant import planes

#: Gives a peer's call that decodes the first copy to a dtype and returns a tensor of torch.
Prepare = Callable[[Stored, str], Call]

DTYPES = ("float32", "bfloat16")
_OWN, _FILL = "cbquant", "fill"
_TILE, _RUN = 128, 64


def bitsandbytes_call(stored: Stored, dtype: str) -> Call:
    """``dequantize_4bit``; on a CPU it does not take an `out`."""
    torch = optional.torch_with_one_thread()
    import bitsandbytes.functional as bnb  # type: ignore[import-not-found,unused-ignore]

    optional.one_thread_of_openmp()
    codes, scales = map(torch.from_numpy, stored.copies[0])
    shape, kind = torch.Size((stored.n, stored.k)), getattr(torch, dtype)
    state = bnb.QuantState(scales, shape=shape, dtype=kind, blocksize=_RUN, quant_type=stored.case.fmt.name)
    return partial(bnb.dequantize_4bit, codes.reshape(-1, 1), state)


def torch_call(stored: Stored, dtype: str) -> Call:
    """``.to``: the codes alone, without their scales."""
    torch = optional.torch_with_one_thread()
    codes = torch.from_numpy(stored.copies[0][0]).view(getattr(torch, f"float8_{stored.case.fmt.code}"))
    return partial(codes.to, getattr(torch, dtype))


#: Who decodes what.
PEERS: dict[str, tuple[Prepare, tuple[str, ...]]] = {
    "bitsandbytes": (bitsandbytes_call, ("nf4", "fp4")),
    "torch": (torch_call, ("fp8_e4m3", "fp8_e5m2")),
}


def next_to_peers(plan: Plan, done: Done) -> list[Row]:
    """Rows for each format that a peer has, size and type: times its speed, and how much a fill of such an array is."""
    present = optional.versions()
    rows: list[Row] = []
    for case in cases(plan.formats):
        for name, (prepare, formats) in PEERS.items():
            if case.fmt.name in formats:
                found = prepare if name in present else None
                for shape in plan.peer_shapes:
                    for dtype in DTYPES:
                        rows += _one(case, shape, dtype, name, found, plan)
        done(case.name)
    return rows


def _one(case: Case, shape: tuple[int, int], dtype: str, peer: str, prepare: Prepare | None, plan: Plan) -> list[Row]:
    n, k = shape
    base: Row = {"format": case.name, "group": f"{peer}, {shape_word(n, k)}, 1 thread", "variant": dtype, "threads": 1}
    if prepare is None:
        return [base | optional.missing(peer)]
    stored = Stored(case, n, k)
    own = own_call(stored, dtype)
    call = prepare(stored, dtype)
    check_same(stored, own(), call(), peer)
    fill = cache_fills(touched_memory(n * k * (4 if dtype == "float32" else 2)))["fill"]
    candidates: dict[str, list[Call]] = {_OWN: [own], peer: [call], _FILL: fill}
    timings = measure(candidates, plan.rounds, plan.sample_seconds, quiet=True)
    times = ratio(timings[peer], timings[_OWN])
    base |= {
        "peer": peer,
        "elements": n * k,
        "seconds": timings[_OWN].seconds,
        "spread": timings[_OWN].spread,
        "peer_seconds": timings[peer].seconds,
        "fill_seconds": timings[_FILL].seconds,
    }
    of_fill = {"variant": f"fill, {dtype}", "figure": ratio(timings[peer], timings[_FILL]), "judged": None}
    return [base | {"figure": times, "judged": judge(times, ">=", targets.PEERS[peer])}, base | of_fill]


def own_call(stored: Stored, dtype: str) -> Callable[[], NDArray[Any]]:
    """cbquant's, on the same copy."""
    name = stored.case.fmt.name
    return partial(planes.dequant, name, *stored.copies[0], dtype=dtype, threads=1, **stored.options)


def check_same(stored: Stored, own: NDArray[Any], tensor: Any, name: str) -> None:
    """Both have to do the same work, but that torch leaves scales out: a RuntimeError where it is not near."""
    found = np.array(tensor.float().numpy()).reshape(own.shape)
    if stored.case.fmt.scales == "tile":
        tiles = stored.copies[0][1].repeat(_TILE, axis=0).repeat(_TILE, axis=1)
        found *= tiles[: stored.n, : stored.k]
    if not np.allclose(found, own.astype(np.float32), rtol=1e-2, atol=0):
        raise RuntimeError(f"{stored.case.name}: {name} and cbquant decode the same codes to different values")
