"""What the lanes of a warp do together: shuffles, votes, ldmatrix, mma.

A lane at such an instruction waits until the lanes that its member mask names are there too (exited ones are
not waited for). What it needs of a lane that takes no part is undefined in PTX, and a Fault here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .decode import Decoder, Lanes, Machine, Reader, Step, op
from .dtypes import TYPES
from .machine import ALL, WARP, shifted
from .memory import Fault
from .rounding import bf16_to_f32

_U32, _PRED, _F32 = TYPES["u32"], TYPES["pred"], TYPES["f32"]
_LANE = np.arange(WARP)
# The fragments of ldmatrix and mma: lane l serves row (or column) l / 4 and the pair of elements l % 4.
_GROUP, _QUAD = _LANE // 4, _LANE % 4


def _members(mask: Reader) -> Callable[[Machine, np.ndarray], np.ndarray]:
    """`ready` for a member mask."""

    def ready(machine: Machine, waiting: np.ndarray) -> np.ndarray:
        lanes = np.flatnonzero(waiting)
        here, live = machine.warp_bits(waiting), machine.warp_bits(machine.live)
        wanted = np.broadcast_to(mask(machine, lanes), len(lanes))
        own = machine.special["%lanemask_eq"][lanes]
        if (wanted & own == 0).any():
            raise Fault("a lane that its own member mask leaves out", int(np.argmax(wanted & own == 0)))
        missing = wanted & live[lanes // WARP] & ~here[lanes // WARP]
        found = np.zeros(machine.lanes, np.bool_)
        found[lanes[missing == 0]] = True
        return found

    return ready


def whole_warps(machine: Machine, waiting: np.ndarray) -> np.ndarray:
    """`ready` for the `.aligned` instructions: all 32 lanes, of which none may have exited."""
    here = machine.warp_bits(waiting)
    gone = (here != 0) & (machine.warp_bits(machine.live) != 0xFFFFFFFF)
    if gone.any():
        first = np.flatnonzero(waiting & np.repeat(gone, WARP))[0]
        raise Fault("a lane of the warp has exited", int(np.count_nonzero(waiting[:first])))
    return np.repeat(here == 0xFFFFFFFF, WARP)


def warp_barrier(d: Decoder) -> Step:
    """bar.warp.sync: nothing but the meeting."""
    d.need("sync")
    d.operand_count(1)

    def step(machine: Machine, at: Lanes) -> None:
        return None

    step.ready = _members(d.source(0, _U32))
    return step


@op("shfl")
def shuffle(d: Decoder) -> Step:
    """shfl.sync.mode.b32 d|p, a, b, c, mask. c packs the clamp (bits 0-4) and the segment mask (8-12)."""
    d.need("sync")
    mode = d.need("up", "down", "bfly", "idx")
    if d.type().bits != 32:
        raise d.unsupported("shfl of other types than .b32")
    d.operand_count(5)
    results = d.operands[0]
    pair = hasattr(results, "second")
    put = d.target(results.first if pair else results, _U32)
    put_in_range = d.target(results.second, _PRED) if pair else None
    value, other, bounds, mask = (d.source(i, _U32) for i in (1, 2, 3, 4))

    def step(machine: Machine, at: Lanes) -> None:
        lanes = machine.numbers(at)
        lane, b = lanes % WARP, (other(machine, at) & np.uint32(31)).astype(np.int64)
        c = bounds(machine, at).astype(np.int64)
        segment = c >> 8 & 31
        most = lane & segment | c & 31 & ~segment
        if mode == "up":
            j = lane - b
            in_range = j >= most
        else:
            j = {"down": lane + b, "bfly": lane ^ b, "idx": lane & segment | b & ~segment}[mode]
            in_range = j <= most
        source = np.where(in_range, j, lane)
        takes_part = machine.mask(at)[lanes - lane + source]
        named = np.broadcast_to(mask(machine, at), len(lanes)) >> source.astype(np.uint32) & np.uint32(1) != 0
        if not (takes_part & named).all():
            bad = int(np.argmin(takes_part & named))
            raise Fault(f"reads lane {source[bad]}, which takes no part", bad)
        everyone = np.broadcast_to(value(machine, ALL), machine.lanes)
        put(machine, at, everyone[lanes - lane + source])
        if put_in_range is not None:
            put_in_range(machine, at, in_range)

    step.ready = _members(mask)
    return step


@op("vote")
def vote(d: Decoder) -> Step:
    d.need("sync")
    how, result = d.need("ballot", "any", "all"), d.type()
    if (how == "ballot") != (result.bits == 32):
        raise d.unsupported(f"'{d.instruction.opcode}'")
    condition, mask, put = d.predicate(1), d.source(2, _U32), d.target(0, result)

    def step(machine: Machine, at: Lanes) -> None:
        holds, warp = np.zeros(machine.lanes, np.bool_), machine.numbers(at) // WARP
        holds[at] = condition(machine, at)
        members = mask(machine, at)
        votes = machine.warp_bits(holds)[warp] & members
        present = machine.warp_bits(machine.mask(at))[warp] & members
        put(machine, at, {"ballot": votes, "any": votes != 0, "all": votes == present}[how])

    step.ready = _members(mask)
    return step


@op("ldmatrix")
def load_matrix(d: Decoder) -> Step:
    """8 x 8 matrices of 16-bit elements; lanes 8 j to 8 j + 7 give the row addresses of matrix j.

    Lane l gets row l / 4, columns 2 (l % 4) and the next; `.trans`: column l / 4, rows 2 (l % 4) and next.
    """
    for fixed in ("sync", "aligned", "m8n8"):
        d.need(fixed)
    count = int(d.need("x1", "x2", "x4")[1:])
    transposed = d.flag("trans")
    space = "shared" if d.choice("shared", "shared::cta") else "generic"
    if d.type().name != "b16":
        raise d.unsupported(f"'{d.instruction.opcode}'")
    puts, address = [d.target(item, _U32) for item in d.items(0)], d.address(1)
    if len(puts) != count:
        raise d.unsupported(f"'{d.instruction.opcode}' into {len(puts)} registers")

    def step(machine: Machine, at: Lanes) -> None:
        lanes = machine.numbers(at)
        rows = np.broadcast_to(address(machine, at), len(lanes))
        for j, put in enumerate(puts):
            places = np.arange(len(lanes)).reshape(-1, WARP)[:, 8 * j : 8 * j + 8].reshape(-1)
            with shifted(places):
                words = machine.load(space, lanes[places], rows[places], 4, 4)
            matrix = np.stack(words, axis=-1).reshape(-1, 8, 4)
            if transposed:
                halves = matrix.view(np.uint16)
                pair = [halves[:, 2 * _QUAD + k, _GROUP].astype(np.uint32) for k in (0, 1)]
                found = pair[0] | pair[1] << np.uint32(16)
            else:
                found = matrix[:, _GROUP, _QUAD]
            put(machine, at, found.reshape(-1))

    step.ready = whole_warps
    return step


@op("mma")
def multiply_matrices(d: Decoder) -> Step:
    """m16n8k16, f16 or bf16, f32 accumulator: D[16, 8] = A[16, 16] B[16, 8] + C.

    With g = lane / 4 and q = lane % 4, a register of A is the pair (row g + 8 (r & 1), k = 2 q + 8 (r >> 1)),
    one of B the pair (k = 2 q + 8 r, column g), and C and D hold (row g + 8 (r >> 1), column 2 q + (r & 1)).
    The hardware's order and width of the sum are not specified: here products and sum are exact in f64 and
    rounded once, so compare with a tolerance, or with values whose sums are exact.
    """
    for fixed in ("sync", "aligned", "m16n8k16", "row", "col"):
        d.need(fixed)
    kinds = [d.type().name for _ in range(4)][::-1]
    if kinds not in (["f32", half, half, "f32"] for half in ("f16", "bf16")):
        raise d.unsupported(f"'{d.instruction.opcode}'")
    d.operand_count(4)
    puts = [d.target(item, _F32) for item in d.items(0)]
    a, b = ([d.source(item, _U32) for item in d.items(k)] for k in (1, 2))
    c = [d.source(item, _F32) for item in d.items(3)]
    if [len(puts), len(a), len(b), len(c)] != [4, 4, 2, 4]:
        raise d.unsupported("mma with other fragments than 4, 4, 2, 4 registers")
    values = bf16_to_f32 if kinds[1] == "bf16" else lambda bits: bits.view(np.float16)

    def step(machine: Machine, at: Lanes) -> None:
        warps = machine.count(at) // WARP

        def fragment(read: Reader) -> np.ndarray:
            return np.broadcast_to(read(machine, at), warps * WARP).reshape(warps, WARP)

        left, right = np.zeros((warps, 16, 16)), np.zeros((warps, 16, 8))
        for half in (0, 1):
            for r, read in enumerate(a):
                bits = (fragment(read) >> np.uint32(16 * half)).astype(np.uint16)
                left[:, _GROUP + 8 * (r & 1), 2 * _QUAD + half + 8 * (r >> 1)] = values(bits)
            for r, read in enumerate(b):
                bits = (fragment(read) >> np.uint32(16 * half)).astype(np.uint16)
                right[:, 2 * _QUAD + half + 8 * r, _GROUP] = values(bits)
        product = left @ right
        addends = [fragment(read).copy() for read in c]  # C and D may be the same registers
        for r, (put, addend) in enumerate(zip(puts, addends, strict=True)):
            total = product[:, _GROUP + 8 * (r >> 1), 2 * _QUAD + (r & 1)] + addend
            put(machine, at, total.astype(np.float32).reshape(-1))

    step.ready = whole_warps
    return step
