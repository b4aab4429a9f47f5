"""From a parsed instruction to a function that runs it: decoded once, executed many times.

A family of instructions is a function that takes a Decoder, picks modifiers and operands off it, and returns
a `step(machine, lanes)`. It registers itself with `@op("add", "sub")`. What a family does not take is an
error: a modifier that nobody looked at could change the meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .dtypes import TYPES, Type, unsigned
from .machine import Lanes, Machine
from .model import (
    Address,
    Function,
    Imm,
    Instruction,
    Name,
    Not,
    Operand,
    Reg,
    Sink,
    Special,
    Sym,
    Variable,
    Vector,
)

# Reads one operand of the lanes: an array, or one NumPy scalar for all.
Reader = Callable[[Machine, Lanes], np.ndarray]
Writer = Callable[[Machine, Lanes, np.ndarray], None]
# Runs an instruction. None: go on with the next one; else where the lanes go: [(pc, lanes), ...].
Step = Callable[[Machine, Lanes], "list[tuple[int, Lanes]] | None"]

OPS: dict[str, Callable[[Decoder], Step]] = {}


def op(*names: str) -> Callable:
    """Register the decoder of some opcodes."""

    def register(function: Callable[[Decoder], Step]) -> Callable[[Decoder], Step]:
        for name in names:
            OPS[name] = function
        return function

    return register


class Operation:
    """A decoded instruction."""

    def __init__(self, instruction: Instruction, step: Step) -> None:
        self.instruction = instruction
        self.step = step
        # Set for an instruction that lanes execute together: given the lanes that wait at it (bool [lanes]),
        # which of them have all their partners here (bool [lanes]).
        self.ready: Callable[[Machine, np.ndarray], np.ndarray] | None = getattr(step, "ready", None)


@dataclass
class Link:
    """What an instruction needs to know of the program around it."""

    addresses: dict[Variable, int]
    entries: dict[str, int]  # function -> pc
    # Call sites by the pc that follows: (from, to, bytes) of the return values
    returns: dict[int, list[tuple[int, int, int]]]
    functions: dict[str, Function]
    labels: dict[str, int]  # of the function that the instruction is in


class Decoder:
    def __init__(self, instruction: Instruction, link: Link, pc: int) -> None:
        self.instruction = instruction
        self.link = link
        self.pc = pc
        self.name = instruction.name
        self.operands = instruction.operands
        self.left = instruction.modifiers  # not taken yet

    # -- errors ---------------------------------------------------------------------------------------------

    def unsupported(self, what: str) -> NotImplementedError:
        line, text = self.instruction.line, self.instruction.text
        return NotImplementedError(f"{what}: line {line}: {text}")

    def done(self) -> None:
        if self.left:
            raise self.unsupported(f"'{self.instruction.opcode}': modifier .{self.left[0]} is not supported")

    # -- modifiers ------------------------------------------------------------------------------------------

    def flag(self, name: str) -> bool:
        if name in self.left:
            self.left.remove(name)
            return True
        return False

    def choice(self, *names: str) -> str | None:
        """Take the one modifier of these that is there."""
        for name in names:
            if self.flag(name):
                return name
        return None

    def need(self, *names: str) -> str:
        found = self.choice(*names)
        if found is None:
            raise self.unsupported(f"'{self.instruction.opcode}': expected one of .{', .'.join(names)}")
        return found

    def type(self) -> Type:
        """Take the last modifier as a type."""
        if not self.left or self.left[-1] not in TYPES:
            last = f".{self.left[-1]}" if self.left else "nothing"
            raise self.unsupported(f"'{self.instruction.opcode}': expected a type, got {last}")
        return TYPES[self.left.pop()]

    def operand_count(self, *allowed: int) -> int:
        if len(self.operands) not in allowed:
            raise self.unsupported(f"'{self.instruction.opcode}' with {len(self.operands)} operands")
        return len(self.operands)

    # -- operands -------------------------------------------------------------------------------------------

    def source(self, operand: int | Operand, t: Type, relaxed: bool = False) -> Reader:
        """Read an operand as a type. `relaxed`: the register may be wider (st, cvt), the low bits count."""
        operand = self.operands[operand] if isinstance(operand, int) else operand
        if isinstance(operand, Reg):
            return self._read_register(operand, t, relaxed)
        if isinstance(operand, Not) and t.bits == 1:
            slot = operand.operand.slot
            return lambda machine, at: ~machine.read(slot, 1)[at]
        if isinstance(operand, Imm):
            value = self._constant(operand, t)
            return lambda machine, at: value
        if isinstance(operand, Special):
            if t.bits != 32:
                raise self.unsupported(f"{operand.name} as .{t.name}")
            name = operand.name
            return lambda machine, at: machine.special[name][at].view(t.dtype)
        if isinstance(operand, Sym):
            value = self._constant(Imm(self.link.addresses[operand.variable] + operand.offset, "int"), t)
            return lambda machine, at: value
        raise self.unsupported(f"operand {operand} as .{t.name}")

    def _read_register(self, reg: Reg, t: Type, relaxed: bool) -> Reader:
        slot, bits, dtype = reg.slot, reg.bits, t.dtype
        if bits == t.bits:
            return lambda machine, at: machine.read(slot, bits)[at].view(dtype)
        if relaxed and bits > t.bits > 1:
            narrow = unsigned(t.bits)
            return lambda machine, at: machine.read(slot, bits)[at].astype(narrow).view(dtype)
        raise self.unsupported(f"{reg.name} has {bits} bits where .{t.name} is read")

    def _constant(self, imm: Imm, t: Type) -> np.ndarray:
        if imm.kind == "int":
            if t.bits == 1:
                return np.bool_(imm.value)
            if t.kind == "f" and imm.value != 0:
                raise self.unsupported(f"the integer {imm.value} as .{t.name}")
            return unsigned(t.bits).type(imm.value % (1 << t.bits)).view(t.dtype)
        bits = 32 if imm.kind == "f32" else 64
        if bits == t.bits:
            return unsigned(bits).type(imm.value).view(t.dtype)
        if t.kind != "f" or t.bits < 32:
            raise self.unsupported(f"a {bits}-bit float literal as .{t.name}")
        return t.dtype.type(unsigned(bits).type(imm.value).view(f"f{bits // 8}"))

    def target(self, operand: int | Operand, t: Type, relaxed: bool = False) -> Writer:
        """Write an operand as a type. `relaxed`: a wider register is sign- or zero-extended (ld, cvt)."""
        operand = self.operands[operand] if isinstance(operand, int) else operand
        if isinstance(operand, Sink):
            return lambda machine, at, values: None
        if not isinstance(operand, Reg):
            raise self.unsupported(f"destination {operand}")
        slot, bits = operand.slot, operand.bits
        if bits == t.bits:
            to = unsigned(bits)
            return lambda machine, at, values: machine.write(slot, bits, at, values.view(to))
        if relaxed and bits > t.bits > 1:
            to, of = unsigned(bits), t.dtype if t.kind == "s" else unsigned(t.bits)
            return lambda machine, at, values: machine.write(slot, bits, at, values.view(of).astype(to))
        raise self.unsupported(f"{operand.name} has {bits} bits where .{t.name} is written")

    def predicate(self, operand: int | Operand) -> Reader:
        return self.source(operand, TYPES["pred"])

    def items(self, operand: int) -> list[Operand]:
        """The elements of `{a, b}`; a single operand is a list of one."""
        found = self.operands[operand]
        return list(found.items) if isinstance(found, Vector) else [found]

    def address(self, operand: int) -> Reader:
        """int64 addresses of `[base + offset]`. 32-bit bases wrap at 32 bits, as shared addresses do."""
        found = self.operands[operand]
        if not isinstance(found, Address):
            raise self.unsupported(f"expected an address, got {found}")
        base, offset = found
        if isinstance(base, Reg) and base.bits in (32, 64):
            slot, bits = base.slot, base.bits
            if bits == 64:
                return lambda machine, at: machine.read(slot, bits)[at].view(np.int64) + offset
            return lambda machine, at: machine.read(slot, bits)[at].astype(np.int64) + offset & 0xFFFFFFFF
        if isinstance(base, Sym):
            fixed = np.array(self.link.addresses[base.variable] + base.offset + offset)
        elif isinstance(base, Imm):
            fixed = np.array(base.value + offset)
        else:
            raise self.unsupported(f"address {base}")
        return lambda machine, at: fixed

    def label(self, operand: int) -> int:
        found = self.operands[operand]
        if not isinstance(found, Name) or found.name not in self.link.labels:
            raise self.unsupported(f"unknown label {found}")
        return self.link.labels[found.name]


def decode(instruction: Instruction, link: Link, pc: int) -> Operation:
    """Raises NotImplementedError that names the instruction and its line."""
    decoder = Decoder(instruction, link, pc)
    family = OPS.get(instruction.name)
    if family is None:
        raise decoder.unsupported(f"unknown instruction '{instruction.opcode}'")
    step = family(decoder)
    decoder.done()
    return Operation(instruction, step)
