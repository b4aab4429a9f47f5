"""Moves, loads, stores, address conversions, asynchronous copies and fences."""

from __future__ import annotations

import numpy as np

from .decode import Decoder, Lanes, Machine, Reader, Step, op
from .dtypes import TYPES, Type, unsigned
from .machine import AsyncCopy
from .memory import Fault
from .model import Imm, Operand, Reg, Vector
from .ops_hopper import copy_in_bulk, proxy_fence

_SPACES = ("global", "shared", "shared::cta", "local", "const", "param", "param::entry", "param::func")
# Caching and eviction hints change no value. Nor do memory orders and scopes here, where each access is
# performed before the next instruction.
_HINTS = (
    *("nc", "weak", "volatile", "relaxed", "acquire", "release", "cta", "gpu", "sys"),
    *("ca", "cg", "cs", "lu", "cv", "wb", "wt"),
    *(f"L1::{e}" for e in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")),
    *(f"L2::{e}" for e in ("64B", "128B", "256B", "evict_normal", "evict_first", "evict_last")),
)


def _drop_hints(d: Decoder) -> None:
    d.left[:] = [m for m in d.left if m not in _HINTS]


def _vector(d: Decoder) -> int:
    found = d.choice("v2", "v4", "v8")
    return int(found[1:]) if found else 1


def _space(d: Decoder) -> str:
    return (d.choice(*_SPACES) or "generic").split("::")[0]


@op("ld")
def load(d: Decoder) -> Step:
    t, count, space = d.type(), _vector(d), _space(d)
    _drop_hints(d)
    d.operand_count(2)
    puts = [d.target(item, t, relaxed=True) for item in d.items(0)]
    if len(puts) != count:
        raise d.unsupported(f"'{d.instruction.opcode}' into {len(puts)} registers")
    address = d.address(1)

    def step(machine: Machine, at: Lanes) -> None:
        values = machine.load(space, at, address(machine, at), t.bytes, count)
        for put, value in zip(puts, values, strict=True):
            put(machine, at, value.view(t.dtype))

    return step


@op("st")
def store(d: Decoder) -> Step:
    t, count, space = d.type(), _vector(d), _space(d)
    _drop_hints(d)
    d.operand_count(2)
    reads = [d.source(item, t, relaxed=True) for item in d.items(1)]
    if len(reads) != count:
        raise d.unsupported(f"'{d.instruction.opcode}' of {len(reads)} registers")
    address, bits = d.address(0), unsigned(t.bits)

    def step(machine: Machine, at: Lanes) -> None:
        values = [read(machine, at).view(bits) for read in reads]
        machine.store(space, at, address(machine, at), values, t.bytes)

    return step


@op("mov")
def move(d: Decoder) -> Step:
    t = d.type()
    d.operand_count(2)
    if isinstance(d.operands[1], Vector):
        return _pack(d, t)
    if isinstance(d.operands[0], Vector):
        return _unpack(d, t)
    a, put = d.source(1, t), d.target(0, t)
    return lambda machine, at: put(machine, at, a(machine, at))


def _element(d: Decoder, t: Type, count: int) -> Type:
    if t.bits % count or f"b{t.bits // count}" not in TYPES:
        raise d.unsupported(f"{count} elements of .{t.name}")
    return TYPES[f"b{t.bits // count}"]


def _pack(d: Decoder, t: Type) -> Step:
    """mov.b64 %rd, {%r1, %r2}: the first element is the low one."""
    items = d.items(1)
    element, whole = _element(d, t, len(items)), TYPES[f"b{t.bits}"]
    reads, put = [d.source(item, element) for item in items], d.target(0, whole)

    def step(machine: Machine, at: Lanes) -> None:
        value = whole.dtype.type(0)
        for k, read in enumerate(reads):
            part = read(machine, at).astype(whole.dtype)
            value = value | part << whole.dtype.type(k * element.bits)
        put(machine, at, value)

    return step


def _unpack(d: Decoder, t: Type) -> Step:
    items = d.items(0)
    element, whole = _element(d, t, len(items)), TYPES[f"b{t.bits}"]
    read, puts = d.source(1, whole), [d.target(item, element) for item in items]

    def step(machine: Machine, at: Lanes) -> None:
        value = read(machine, at)
        for k, put in enumerate(puts):
            shift = whole.dtype.type(k * element.bits)
            put(machine, at, (value >> shift).astype(element.dtype))

    return step


@op("cvta")
def convert_address(d: Decoder) -> Step:
    """Between a state space's addresses and generic ones: the space's window is added or taken off."""
    t, to, space = d.type(), d.flag("to"), _space(d)
    if t.bits != 64 or space == "generic":
        raise d.unsupported(f"'{d.instruction.opcode}'")
    a, put = d.source(1, t), d.target(0, t)

    def step(machine: Machine, at: Lanes) -> None:
        window, address = np.uint64(machine.spaces[space].window), a(machine, at)
        put(machine, at, address - window if to else address + window)

    return step


@op("cp")
def async_copy(d: Decoder) -> Step:
    d.need("async")
    if d.flag("bulk"):
        return copy_in_bulk(d)
    if d.flag("commit_group"):
        d.operand_count(0)
        return lambda machine, at: machine.commit_copies(at)
    if d.flag("wait_group"):
        pending = d.operands[0]
        if not isinstance(pending, Imm):
            raise d.unsupported("cp.async.wait_group of a register")
        return lambda machine, at: machine.finish_copies(at, pending.value)
    if d.flag("wait_all"):  # those not committed too: group < group + 1
        return lambda machine, at: machine.finish_copies(at, -1)
    return _start_async_copy(d)


def _start_async_copy(d: Decoder) -> Step:
    """cp.async.cg.shared.global [to], [from], bytes{, bytes used | ignore the source}"""
    kind = d.need("ca", "cg")
    d.need("shared", "shared::cta")
    d.need("global")
    _drop_hints(d)
    optional, size = d.operand_count(3, 4) == 4, d.operands[2]
    if not isinstance(size, Imm) or size.value not in ((16,) if kind == "cg" else (4, 8, 16)):
        raise d.unsupported("cp.async of this size")
    target, source, nbytes = d.address(0), d.address(1), size.value
    used = _bytes_used(d, d.operands[3], nbytes) if optional else None

    def step(machine: Machine, at: Lanes) -> None:
        lanes = machine.numbers(at)
        taken = np.uint32(nbytes) if used is None else used(machine, at)
        to, of, counts = (
            np.array(np.broadcast_to(x, len(lanes)), np.int64)
            for x in (target(machine, at), source(machine, at), taken)
        )
        if (counts > nbytes).any():
            raise Fault("the source size exceeds the copy size", int(np.argmax(counts > nbytes)))
        machine.start_copy(AsyncCopy(lanes, machine.group[lanes], to, of, nbytes, counts))

    return step


def _bytes_used(d: Decoder, operand: Operand, nbytes: int) -> Reader:
    """The fourth operand: a number of bytes, or a predicate that says to ignore the source."""
    if isinstance(operand, Reg) and operand.bits == 1:
        ignore = d.predicate(operand)
        return lambda machine, at: np.where(ignore(machine, at), np.uint32(0), np.uint32(nbytes))
    return d.source(operand, TYPES["u32"])


@op("membar", "fence")
def fence(d: Decoder) -> Step:
    """Nothing to do: every access is performed before the next instruction. (But for what goes on by itself.)"""
    if d.flag("proxy"):
        return proxy_fence(d)
    _drop_hints(d)
    d.choice("sc", "acq_rel", "gl")
    d.operand_count(0)
    return lambda machine, at: None
