"""mbarrier, cp.async.bulk, fence.proxy, setmaxnreg, wgmma: what sm_90a has (hopper.py does it)."""

from __future__ import annotations

import numpy as np

from .decode import Decoder, Lanes, Machine, Reader, Step, op
from .dtypes import TYPES
from .hopper import Flight, Product
from .machine import WARP
from .memory import Fault
from .model import Imm
from .ops_warp import whole_warps

_U32, _F32, _B64 = TYPES["u32"], TYPES["f32"], TYPES["b64"]


def _each(reader: Reader, machine: Machine, at: Lanes) -> np.ndarray:
    """A value to a lane, as int64."""
    return np.broadcast_to(reader(machine, at), machine.count(at)).astype(np.int64)


@op("mbarrier")
def barrier_of_bytes(d: Decoder) -> Step:
    kind = d.need("init", "arrive", "try_wait")
    d.need("shared::cta", "shared")
    if d.type() is not _B64:
        raise d.unsupported(f"'{d.instruction.opcode}'")
    return {"init": _make, "arrive": _arrive, "try_wait": _wait}[kind](d)


def _make(d: Decoder) -> Step:
    d.operand_count(2)
    address, count = d.address(0), d.source(1, _U32)

    def step(machine: Machine, at: Lanes) -> None:
        machine.hopper.make(machine.numbers(at), _each(address, machine, at), _each(count, machine, at))

    return step


def _arrive(d: Decoder) -> Step:
    """mbarrier.arrive{.expect_tx} _, [barrier]{, bytes}: the state that it returns is not modelled."""
    expects = d.flag("expect_tx")
    d.operand_count(3 if expects else 2)
    d.target(0, _B64)
    address, nbytes = d.address(1), d.source(2, _U32) if expects else None

    def step(machine: Machine, at: Lanes) -> None:
        lanes = machine.numbers(at)
        expected = np.zeros(len(lanes), np.int64) if nbytes is None else _each(nbytes, machine, at)
        machine.hopper.arrive(lanes, _each(address, machine, at), expected)

    return step


def _wait(d: Decoder) -> Step:
    """try_wait.parity d, [barrier], parity: lanes are held until the phase has ended, and get true."""
    d.need("parity")
    d.operand_count(3)
    put, address, parity = d.target(0, TYPES["pred"]), d.address(1), d.source(2, _U32)

    def step(machine: Machine, at: Lanes) -> None:
        put(machine, at, np.ones(machine.count(at), np.bool_))

    def ready(machine: Machine, waiting: np.ndarray) -> np.ndarray:
        lanes = np.flatnonzero(waiting)
        ended = machine.hopper.ended(lanes, _each(address, machine, lanes), _each(parity, machine, lanes))
        found = np.zeros(machine.lanes, np.bool_)
        found[lanes[ended]] = True
        return found

    step.ready = ready
    return step


def copy_in_bulk(d: Decoder) -> Step:
    """cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from], bytes, [barrier]"""
    for fixed in ("shared::cluster", "global", "mbarrier::complete_tx::bytes"):
        d.need(fixed)
    d.operand_count(4)
    target, source, nbytes, barrier = d.address(0), d.address(1), d.source(2, _U32), d.address(3)

    def step(machine: Machine, at: Lanes) -> None:
        hopper, columns = machine.hopper, (_each(x, machine, at) for x in (target, source, nbytes, barrier))
        for i, (lane, to, of, count, at_barrier) in enumerate(zip(machine.numbers(at), *columns, strict=True)):
            counted = hopper.find(lane, at_barrier, i)
            hopper.start(Flight(int(lane), int(to), int(of), int(count), counted), i)

    return step


def proxy_fence(d: Decoder) -> Step:
    """fence.proxy.async.shared::cta: barriers that were made are seen by copies."""
    d.need("async")
    d.need("shared::cta")
    d.operand_count(0)
    return lambda machine, at: machine.hopper.fence(machine.numbers(at))


@op("setmaxnreg")
def set_registers(d: Decoder) -> Step:
    """All warps together must not ask for more than the CTA has: they would wait for ever."""
    d.need("inc", "dec")
    d.need("sync")
    d.need("aligned")
    count = d.operands[0]
    if d.type() is not _U32 or not isinstance(count, Imm) or count.value % 8 or not 24 <= count.value <= 256:
        raise d.unsupported("setmaxnreg of other numbers than multiples of 8 from 24 to 256")

    def step(machine: Machine, at: Lanes) -> None:
        machine.hopper.set_registers(machine.numbers(at), count.value)

    step.ready = whole_warps
    return step


@op("wgmma")
def warpgroup_product(d: Decoder) -> Step:
    kind = d.need("fence", "commit_group", "wait_group", "mma_async")
    d.need("sync")
    d.need("aligned")
    step = _product(d) if kind == "mma_async" else _order(d, kind)
    step.ready = whole_warps
    return step


def _order(d: Decoder, kind: str) -> Step:
    pending = d.operands[0].value if d.operand_count(1 if kind == "wait_group" else 0) else 0

    def step(machine: Machine, at: Lanes) -> None:
        hopper = machine.hopper
        if kind == "wait_group":
            hopper.finish(machine.numbers(at), pending)
            return
        hopper.fenced[at] = kind == "fence"
        if kind == "commit_group":
            hopper.group[at] += 1

    return step


def _product(d: Decoder) -> Step:
    """m64nNk16, bf16: D[64, N] += A[64, 16] B[16, N], A in registers, B in shared memory with 128-byte swizzling."""
    shape = d.need(*(f"m64n{n}k16" for n in range(8, 257, 8)))
    if [d.type().name for _ in range(3)] != ["bf16", "bf16", "f32"]:
        raise d.unsupported(f"'{d.instruction.opcode}'")
    d.operand_count(7)
    sums = [(d.source(item, _F32), d.target(item, _F32)) for item in d.items(0)]
    a, matrix, adds = [d.source(item, _U32) for item in d.items(1)], d.source(2, _B64), d.predicate(3)
    fixed = [x.value if isinstance(x, Imm) else None for x in d.operands[4:]]
    if len(a) != 4 or 2 * len(sums) != int(shape[4:-3]) or fixed != [1, 1, 0]:
        raise d.unsupported(f"'{d.instruction.opcode}' with these operands")

    def step(machine: Machine, at: Lanes) -> None:
        lanes = machine.numbers(at)
        if not np.all(adds(machine, at)):
            raise Fault("sums that begin with zero are not supported")
        words = np.broadcast_to(matrix(machine, at), len(lanes)).reshape(-1, WARP)
        for position, word in enumerate(words):
            _check(word, WARP * position)
        machine.hopper.begin(Product(lanes, machine.hopper.group[lanes].copy(), a, sums, words[:, 0].copy()))

    return step


def _check(words: np.ndarray, position: int) -> None:
    """A descriptor: address, (unused), stride of eight columns, all in units of 16 bytes, and 1 for the swizzling."""
    word = int(words[0])
    address, stride = (word & 0x3FFF) << 4, (word >> 32 & 0x3FFF) << 4
    wrong = {
        "lanes have other matrices": bool((words != words[0]).any()),
        "another swizzling than that of 128 bytes": word >> 62 != 1,
        "bits that have no meaning": bool(word & 0x3FF1_C000_C000_C000),
        "it begins at no multiple of 1024": bool(word >> 49 & 7 or address % 1024 >= 128 or stride % 1024),
        "sixteen k that are not in one row": address % 128 > 96,
    }
    for what, holds in wrong.items():
        if holds:
            raise Fault(f"wgmma of the matrix 0x{word:016x}: {what}", position)
