"""Branches, calls and returns; barriers of a CTA."""

from __future__ import annotations

import numpy as np

from .decode import Decoder, Lanes, Machine, Step, op
from .dtypes import TYPES
from .machine import WARP
from .memory import Fault
from .model import Imm, Name, Sym, Vector
from .ops_warp import warp_barrier


@op("bra")
def branch(d: Decoder) -> Step:
    d.flag("uni")
    d.operand_count(1)
    target = d.label(0)
    return lambda machine, at: [(target, at)]


@op("exit")
def leave(d: Decoder) -> Step:
    return _leave


def _leave(machine: Machine, at: Lanes) -> list:
    if any(machine.mask(at)[product.lanes].any() for product in machine.hopper.products):
        raise Fault("a thread ends, and did not wait for its products")
    machine.live[at] = False
    return []


@op("ret")
def give_back(d: Decoder) -> Step:
    """Back to the call, each lane to its own; from the kernel itself, the lane ends."""
    d.flag("uni")
    sites = d.link.returns

    def step(machine: Machine, at: Lanes) -> list:
        lanes = machine.numbers(at)
        depth = machine.depth[lanes]
        _leave(machine, lanes[depth == 0])
        onward = []
        for level in np.unique(depth[depth > 0]):
            mine = lanes[depth == level]
            back = machine.returns[level - 1][mine]
            machine.depth[mine] -= 1
            for pc in np.unique(back):
                group = mine[back == pc]
                for source, target, nbytes in sites[int(pc)]:
                    machine.copy_param(group, source, target, nbytes)
                onward.append((int(pc), group if len(group) < machine.lanes else slice(None)))
        return onward

    return step


@op("call")
def call(d: Decoder) -> Step:
    """call (result), function, (arguments): arguments travel through .param variables."""
    d.flag("uni")
    lists = [x.items for x in d.operands if isinstance(x, Vector)]
    names = [x.name for x in d.operands if isinstance(x, Name)]
    if len(names) != 1:
        raise d.unsupported("call through a pointer")
    if names[0] not in d.link.entries:
        raise d.unsupported(f"call of '{names[0]}', which has no body")
    function, entry = d.link.functions[names[0]], d.link.entries[names[0]]
    results = lists.pop(0) if isinstance(d.operands[0], Vector) else ()
    arguments = lists[0] if lists else ()
    if len(arguments) != len(function.params) or len(results) != len(function.returns):
        raise d.unsupported(f"call of '{names[0]}' with other arguments than it has")
    if not all(isinstance(x, Sym) for x in (*arguments, *results)):
        raise d.unsupported("call with arguments that are no .param variables")
    where = d.link.addresses
    passed = zip(arguments, function.params, strict=True)
    copies = [(where[given.variable], where[taken], taken.size) for given, taken in passed]
    after, given_back = d.pc + 1, zip(function.returns, results, strict=True)
    d.link.returns[after] = [(where[r], where[into.variable], r.size) for r, into in given_back]

    def step(machine: Machine, at: Lanes) -> list:
        lanes = machine.numbers(at)
        for source, target, nbytes in copies:
            machine.copy_param(lanes, source, target, nbytes)
        while len(machine.returns) <= machine.depth[lanes].max():
            machine.returns.append(np.zeros(machine.lanes, np.int64))
        for level in np.unique(machine.depth[lanes]):
            machine.returns[level][lanes[machine.depth[lanes] == level]] = after
        machine.depth[lanes] += 1
        return [(entry, at)]

    return step


@op("trap", "brkpt")
def trap(d: Decoder) -> Step:
    def step(machine: Machine, at: Lanes) -> None:
        raise Fault("trap")

    return step


@op("bar", "barrier")
def barrier(d: Decoder) -> Step:
    """bar.sync and bar.red of the CTA; bar.warp.sync is in ops_warp.

    A barrier completes when every warp of the CTA that has a live thread (or as many warps as a thread count
    says) waits at this very instruction with all its live threads.
    """
    if d.flag("warp"):
        return warp_barrier(d)
    d.flag("cta")
    kind = d.need("sync", "red")
    d.flag("aligned")
    first = 0 if kind == "sync" else 1
    numbers = [x.value for x in d.operands[first:] if isinstance(x, Imm)]
    if len(numbers) != len(d.operands) - (0 if kind == "sync" else 2) or not numbers:
        raise d.unsupported("a barrier whose number or thread count is not a literal")
    if len(numbers) > 1 and numbers[1] % WARP:
        raise d.unsupported(f"thread count {numbers[1]}, which is no multiple of {WARP}")
    wanted = numbers[1] // WARP if len(numbers) > 1 else None
    step = _reduction(d) if kind == "red" else lambda machine, at: None

    def ready(machine: Machine, waiting: np.ndarray) -> np.ndarray:
        here, live = machine.warp_bits(waiting), machine.warp_bits(machine.live)
        arrived = ((here == live) & (live != 0)).reshape(machine.ctas, -1)
        needed = (live != 0).reshape(machine.ctas, -1).sum(axis=1) if wanted is None else wanted
        complete = arrived & (arrived.sum(axis=1) >= needed)[:, None]
        return np.repeat(complete.reshape(-1), WARP) & waiting

    step.ready = ready
    return step


def _reduction(d: Decoder) -> Step:
    how = d.need("popc", "and", "or")
    result = d.type()
    read, put = d.predicate(len(d.operands) - 1), d.target(0, result)

    def step(machine: Machine, at: Lanes) -> None:
        cta = machine.cta[at]
        true = np.bincount(cta, np.broadcast_to(read(machine, at), len(cta)), machine.ctas).astype(np.uint32)
        all_of = np.bincount(cta, minlength=machine.ctas)
        found = {"popc": true, "and": true == all_of, "or": true > 0}[how]
        put(machine, at, found[cta].astype(result.dtype))

    if (how == "popc") != (result is TYPES["u32"]):
        raise d.unsupported(f"'{d.instruction.opcode}'")
    return step
