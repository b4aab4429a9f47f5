"""Codecs next to ml_dtypes and torch: section C, one thread each, on the same codes and into the same memory."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cbquant
from benchmarks.machine import touched_memory
from benchmarks.plan import Done
from benchmarks.planes import optional, targets
from benchmarks.planes.plan import Plan
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure, ratio
from cbquant._codecs import KINDS, ML_DTYPES

DECODE, ENCODE = "decode", "encode"
_OWN = "cbquant"


class Arrays(NamedTuple):
    """What is converted, and where to."""

    #: Every code, in random order, but for NaN.
    codes: NDArray[np.uint8]
    #: Normally distributed; of e8m0 powers of two.
    floats: NDArray[np.float32]
    decoded: NDArray[np.float32]
    encoded: NDArray[np.uint8]


def arrays(kind: str, elements: int) -> Arrays:
    """Arrays of so many elements, in memory that was used before."""
    rng = np.random.default_rng(elements)
    numbers = np.arange(1 << KINDS[kind].bits, dtype=np.uint8)
    numbers = numbers[~np.isnan(_own_decode(kind, numbers, np.empty(numbers.size, np.float32))())]
    codes, encoded = touched_memory(elements), touched_memory(elements)
    floats, decoded = (touched_memory(4 * elements).view(np.float32) for _ in range(2))
    codes[...] = rng.choice(numbers, elements)
    floats[...] = rng.standard_normal(elements, np.float32)
    if kind == "e8m0":
        floats[...] = np.exp2(np.round(8 * floats))
    return Arrays(codes, floats, decoded, encoded)


def _own_decode(kind: str, codes: NDArray[np.uint8], out: NDArray[np.float32]) -> Call:
    if kind in cbquant.fp8.KINDS:
        return partial(cbquant.fp8.decode, codes, kind, out=out, threads=1)
    return partial(getattr(cbquant, kind).decode, codes, out=out, threads=1)


def _own_encode(kind: str, x: NDArray[np.float32], out: NDArray[np.uint8]) -> Call:
    if kind in cbquant.fp8.KINDS:
        return partial(cbquant.fp8.encode, x, kind, out=out, threads=1)
    options = {"emax": 0} if kind == "e8m0" else {}
    return partial(getattr(cbquant, kind).encode, x, out=out, threads=1, **options)


def own_calls(kind: str, data: Arrays) -> dict[str, Call]:
    """cbquant's."""
    return {
        DECODE: _own_decode(kind, data.codes, data.decoded),
        ENCODE: _own_encode(kind, data.floats, data.encoded),
    }


def ml_dtypes_calls(kind: str, data: Arrays) -> dict[str, Call]:
    """The loops of ``astype``, without its new array; none where this ml_dtypes does not have the kind."""
    import ml_dtypes

    dtype = getattr(ml_dtypes, ML_DTYPES[kind], None)
    if dtype is None:
        return {}
    return {
        DECODE: partial(np.copyto, data.decoded, data.codes.view(dtype)),
        ENCODE: partial(np.copyto, data.encoded.view(dtype), data.floats, casting="unsafe"),
    }


def torch_calls(kind: str, data: Arrays) -> dict[str, Call]:
    """What ``.to`` does, without its new tensor; it has kinds of 8 bits."""
    torch = optional.torch_with_one_thread()
    dtype = getattr(torch, ML_DTYPES[kind])
    codes, encoded = (torch.from_numpy(array).view(dtype) for array in (data.codes, data.encoded))
    decoded, floats = torch.from_numpy(data.decoded), torch.from_numpy(data.floats)
    return {DECODE: lambda: decoded.copy_(codes), ENCODE: lambda: encoded.copy_(floats)}


def numpy_calls(kind: str, data: Arrays) -> dict[str, Call]:
    """mxint8 with NumPy: its codes are integers."""
    scratch = np.empty_like(data.floats)

    def encode() -> None:
        np.multiply(data.floats, np.float32(64), out=scratch)
        np.rint(scratch, out=scratch)
        np.clip(scratch, -127, 127, out=scratch)
        np.copyto(data.encoded.view(np.int8), scratch, casting="unsafe")

    return {
        DECODE: partial(np.multiply, data.codes.view(np.int8), np.float32(1 / 64), out=data.decoded),
        ENCODE: encode,
    }


#: Who has which kinds.
PEERS = {
    "ml_dtypes": (ml_dtypes_calls, tuple(ML_DTYPES)),
    "torch": (torch_calls, cbquant.fp8.KINDS),
    "NumPy": (numpy_calls, ("mxint8",)),
}


def next_to_peers(plan: Plan, done: Done) -> list[Row]:
    """A row for each kind, direction and peer."""
    present = {"NumPy", *optional.versions()}
    rows: list[Row] = []
    for kind in KINDS:
        data = arrays(kind, plan.elements)
        own = own_calls(kind, data)
        having = [name for name, (_, kinds) in PEERS.items() if kind in kinds]
        peers = {name: PEERS[name][0](kind, data) for name in having if name in present}
        peers = {name: calls for name, calls in peers.items() if calls}
        for work in (DECODE, ENCODE):
            base: Row = {"format": kind, "group": f"{work}, 1 thread", "threads": 1, "elements": plan.elements}
            calls = {name: found[work] for name, found in peers.items()}
            rows += [base | row for row in _timed(kind, work, data, own[work], calls, plan)]
            rows += [base | {"variant": name} | optional.missing(name) for name in having if name not in present]
        done(kind)
    return rows


def _timed(kind: str, work: str, data: Arrays, own: Call, peers: dict[str, Call], plan: Plan) -> list[Row]:
    for name, call in peers.items():
        check_same(kind, work, data, own, call, name)
    candidates: dict[str, list[Call]] = {_OWN: [own], **{name: [call] for name, call in peers.items()}}
    timings = measure(candidates, plan.rounds, plan.sample_seconds)
    rows: list[Row] = [
        {"variant": "M elements/s", "figure": plan.elements / timings[_OWN].seconds / 1e6, "judged": None}
    ]
    for name in peers:
        times = ratio(timings[name], timings[_OWN])
        rows.append(
            {
                "variant": name,
                "peer": name,
                "seconds": timings[_OWN].seconds,
                "spread": timings[_OWN].spread,
                "peer_seconds": timings[name].seconds,
                "figure": times,
                "judged": judge(times, ">=", targets.codecs(kind, work, name)),
            }
        )
    return rows


def check_same(kind: str, work: str, data: Arrays, own: Call, peer: Call, name: str) -> None:
    """Both have to do the same work: a RuntimeError where results differ."""
    out: NDArray[Any] = data.decoded if work == DECODE else data.encoded
    own()
    wanted = out.copy()
    out.fill(0)
    peer()
    if not np.array_equal(out, wanted):
        raise RuntimeError(f"{kind}: {name} and cbquant {work} to different values")
