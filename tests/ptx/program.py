"""A loaded module, and a kernel linked with the functions it calls into one list of instructions."""

from __future__ import annotations

import numpy as np

from . import ops_bits, ops_control, ops_convert, ops_float, ops_hopper, ops_integer, ops_memory, ops_warp  # noqa: F401
from .decode import Link, Operation, decode
from .memory import Allocation, Placer, Space, make_spaces
from .model import AddressOf, Function, Instruction, Module, Name, Variable
from .parse import element_bytes, parse


class Loaded:
    """A module with its `.global` and `.const` variables in memory, where they stay from launch to launch."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.addresses: dict[Variable, int] = {}
        self.allocations: dict[str, Allocation] = {}
        self.programs: dict[str, Program] = {}
        placers = {name: Placer(space) for name, space in make_spaces().items()}
        data = [v for v in module.variables if v.space in ("global", "const")]
        for variable in data:
            self.addresses[variable] = placers[variable.space].place(variable.size, variable.align)
        by_name = {v.name: self.addresses[v] for v in data}
        for variable in data:
            image = self._image(variable, by_name)
            made = Allocation(variable.name, self.addresses[variable], image.reshape(1, -1))
            self.allocations[variable.name] = made

    @staticmethod
    def _image(variable: Variable, addresses: dict[str, int]) -> np.ndarray:
        """The initial bytes; what the initialiser leaves out is zero, as in C."""
        image = bytearray()
        for value in variable.initial:
            if isinstance(value, AddressOf):
                value = addresses[value.name] + value.offset
            image += element_bytes(variable.type, value)
        if len(image) > variable.size:
            raise ValueError(f"{variable.name}: {len(image)} bytes of initialisers for {variable.size} bytes")
        return np.frombuffer(image.ljust(variable.size, b"\0"), np.uint8)

    @property
    def kernels(self) -> list[str]:
        return self.module.kernels

    def array(self, name: str, dtype: np.dtype | type) -> np.ndarray:
        """A `.global` or `.const` variable as an array: to look at, or to set before a launch."""
        if name not in self.allocations:
            raise ValueError(f"name={name!r}: expected one of {sorted(self.allocations)}")
        return self.allocations[name].data.reshape(-1).view(dtype)

    def function(self, kernel: str) -> Function:
        """A kernel by its name: as in the PTX, or a C++ function's if it is the only one of that name."""
        found = [k for k in self.kernels if k == kernel or k.startswith(f"_Z{len(kernel)}{kernel}")]
        if len(found) != 1:
            raise ValueError(f"kernel={kernel!r}: expected one of {self.kernels}")
        return self.module.functions[found[0]]

    def program(self, kernel: str) -> Program:
        function = self.function(kernel)
        if function.name not in self.programs:
            self.programs[function.name] = Program(self, function)
        return self.programs[function.name]


def load(text: str) -> Loaded:
    """Parse PTX and place its global and constant variables.

    Raises ptx.PtxSyntaxError (a ValueError) for text that is not PTX.
    """
    return Loaded(parse(text))


class Program:
    """The instructions of a kernel and of what it calls, in one space of pcs; decoded when first executed."""

    def __init__(self, loaded: Loaded, kernel: Function) -> None:
        self.kernel = kernel
        self.registers = loaded.module.registers
        self.instructions: list[Instruction] = []
        self.addresses = dict(loaded.addresses)
        self.placed: list[tuple[Variable, str]] = []  # with whose index picks the copy
        functions = _reachable(loaded.module, kernel)
        self._lay_out(loaded.module, functions)
        entries, returns = {}, {}
        self.links: list[Link] = []
        for function in functions:
            base = entries[function.name] = len(self.instructions)
            labels = {name: base + place for name, place in function.labels.items()}
            link = Link(self.addresses, entries, returns, loaded.module.functions, labels)
            self.instructions += function.instructions
            self.links += [link] * len(function.instructions)
        self.operations: list[Operation | None] = [None] * len(self.instructions)

    def _lay_out(self, module: Module, functions: list[Function]) -> None:
        placers = {name: Placer(space) for name, space in make_spaces().items()}
        shared = [v for v in module.variables if v.space == "shared"]
        for function in functions:
            whose = "grid" if function.is_kernel else "lane"
            self.placed += [(v, whose) for v in (*function.params, *function.returns)]
            shared += [v for v in function.variables if v.space == "shared"]
            self.placed += [(v, "lane") for v in function.variables if v.space in ("local", "param")]
        self.dynamic = [v for v in shared if v.external]
        self.placed += [(v, "cta") for v in shared if not v.external]
        for variable, _ in self.placed:
            self.addresses[variable] = placers[variable.space].place(variable.size, variable.align)
        # All `extern __shared__` arrays are one: the dynamic shared memory, behind the static one.
        align = max((v.align for v in self.dynamic), default=16)
        self.dynamic_start = placers["shared"].place(0, align)
        self.addresses.update((v, self.dynamic_start) for v in self.dynamic)

    def bytes_per(self, owner: str) -> int:
        """Memory that each CTA or each lane has of its own, dynamic shared memory left out."""
        return sum(v.size for v, whose in self.placed if whose == owner)

    def operation(self, pc: int) -> Operation:
        found = self.operations[pc]
        if found is None:
            found = self.operations[pc] = decode(self.instructions[pc], self.links[pc], pc)
        return found

    def fill(self, spaces: dict[str, Space], ctas: int, lanes: int, smem: int) -> None:
        """Give each variable its memory, poisoned."""
        banks = {"grid": 1, "cta": ctas, "lane": lanes}
        for v, owner in self.placed:
            spaces[v.space].add(Allocation.banked(v.name, self.addresses[v], v.size, owner, banks[owner]))
        name = "dynamic shared memory"
        spaces["shared"].add(Allocation.banked(name, self.dynamic_start, smem, "cta", ctas))


def _reachable(module: Module, kernel: Function) -> list[Function]:
    """The kernel and the functions that it calls, callers first. Recursion has no registers here."""
    order: list[Function] = []

    def visit(function: Function, callers: tuple[str, ...]) -> None:
        if function.name in callers:
            raise NotImplementedError(f"{kernel.name}: recursion in '{function.name}'")
        if function not in order:
            order.append(function)
        for instruction in function.instructions:
            if instruction.name == "call":
                for operand in instruction.operands:
                    callee = module.functions.get(operand.name) if isinstance(operand, Name) else None
                    if callee is not None and callee.has_body:
                        visit(callee, (*callers, function.name))

    visit(kernel, ())
    return order
