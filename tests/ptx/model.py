"""What the parser makes of a PTX module: variables, functions, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .dtypes import Type


@dataclass(eq=False)
class Variable:
    """A named piece of memory. Compared by identity: two scopes may each have a `param0`."""

    name: str
    space: str  # "param", "shared", "local", "global" or "const"
    type: Type
    align: int
    size: int  # bytes
    initial: tuple[int | float | AddressOf, ...] = ()  # elements; what they leave out is zero
    external: bool = False  # `.extern .shared x[]`: the dynamic shared memory
    is_array: bool = False


class AddressOf(NamedTuple):
    """`generic(table)+4` in an initialiser."""

    name: str
    offset: int


class Reg(NamedTuple):
    slot: int  # counted over the whole module, so that a linked kernel needs no renumbering
    bits: int  # 1: a predicate
    name: str


class Special(NamedTuple):
    """A read-only register of the machine: `%tid.x`."""

    name: str


class Imm(NamedTuple):
    """A literal: an int as written, or the bit pattern of a float (`0f3F800000`, `0d...`)."""

    value: int
    kind: str  # "int", "f32" or "f64"


class Sym(NamedTuple):
    """The address of a variable in its own state space, plus bytes."""

    variable: Variable
    offset: int


class Name(NamedTuple):
    """A label or a function: resolved when the kernel is linked, as both may come later in the text."""

    name: str


class Address(NamedTuple):
    """`[base + offset]`"""

    base: Reg | Sym | Imm
    offset: int


class Vector(NamedTuple):
    """`{a, b}`, or the parenthesised lists of a call."""

    items: tuple


class Pair(NamedTuple):
    """`d|p`: two destinations."""

    first: Operand
    second: Operand


class Not(NamedTuple):
    """`!%p1`"""

    operand: Reg


class Sink(NamedTuple):
    """`_`: a result nobody wants."""


Operand = Reg | Special | Imm | Sym | Name | Address | Vector | Pair | Not | Sink


class Guard(NamedTuple):
    """`@%p1` or `@!%p1`"""

    reg: Reg
    negated: bool


class Instruction(NamedTuple):
    opcode: str  # as written: "ld.global.v4.u32"
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    text: str  # the source line, for messages

    @property
    def name(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def modifiers(self) -> list[str]:
        return self.opcode.split(".")[1:]


@dataclass(eq=False)
class Function:
    """A kernel (`.entry`) or a device function (`.func`)."""

    name: str
    is_kernel: bool
    params: list[Variable] = field(default_factory=list)
    returns: list[Variable] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)  # local, shared and call-site param variables
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # name -> index into instructions
    has_body: bool = True

    def contractible(self) -> list[Instruction]:
        """The floating-point multiplies, adds and subtracts that ptxas may still fuse.

        Without a rounding modifier `mul` and `add` "may be optimized aggressively", that is, become one fma
        with other bits than this interpreter computes (PTX ISA, `add`). Code that promises bits must be
        compiled with `-fmad=false`, which writes `.rn`; a test asserts that this list is empty.
        """
        rounded = {"rn", "rz", "rm", "rp"}
        return [
            i
            for i in self.instructions
            if i.name in ("add", "sub", "mul")
            and i.modifiers[-1] in ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
            and not rounded & set(i.modifiers)
        ]


@dataclass
class Module:
    """A parsed `.ptx` file: its kernels, device functions and module-level variables."""

    functions: dict[str, Function]
    variables: list[Variable]
    registers: int  # how many slots all functions use together
    target: str  # "sm_80"

    @property
    def kernels(self) -> list[str]:
        return [f.name for f in self.functions.values() if f.is_kernel]
