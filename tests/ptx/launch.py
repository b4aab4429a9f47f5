"""Launching a kernel: arguments into parameters, CTAs into batches."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

import numpy as np

from .machine import WARP, Dim3, Machine
from .memory import Allocation, Buffer, make_spaces
from .model import Variable
from .program import Loaded, Program
from .schedule import Scheduler

Argument = np.ndarray | Buffer | int | float | np.generic | bytes

# How much runs in one lane vector: enough lanes to make NumPy's cost per call small, in bounds of memory.
_LANES_AT_ONCE = 1 << 14
_BYTES_AT_ONCE = 1 << 28


def run(
    module: Loaded,
    kernel: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    args: Sequence[Argument],
    smem: int = 0,
    stats: MutableMapping[str, int] | None = None,
    *,
    seed: int | None = None,
    ctas_at_once: int | None = None,
    buffers: Sequence[Buffer] = (),
    max_steps: int = 10_000_000,
) -> None:
    """Run a kernel on the CPU; stores land in the arrays that were passed.

    Args:
        module: what `load` gave.
        kernel: its name, as in the PTX or as in C++ if there is one of that name.
        grid, block: CTAs and threads, up to three dimensions.
        args: one for each parameter. A pointer takes an ndarray (C-contiguous; a read-only one must not be
            stored to), a Buffer, or an address; a struct takes its bytes.
        smem: bytes of dynamic shared memory.
        stats: executed lane-instructions are added by opcode, here.
        seed: let warps drift apart at random, and async copies land early or late. None: in lockstep, copies
            land when waited for.
        ctas_at_once: how many CTAs share a lane vector; None chooses.
        buffers: more memory, which the kernel reaches through addresses in other data.
        max_steps: instructions issued for one batch of CTAs, after which it counts as hanging.

    Raises:
        PtxError: out of bounds, misaligned, divergent barrier, ...
        NotImplementedError: an instruction that the interpreter does not know, with its line.
        ValueError, TypeError: arguments that do not fit.
    """
    grid, block = _dim3(grid, "grid"), _dim3(block, "block")
    if block.count > 1024:
        raise ValueError(f"block={tuple(block)}: expected at most 1024 threads, got {block.count}")
    program = module.program(kernel)
    memory = _Memory(module, program, args, buffers)
    batch = ctas_at_once or _batch(program, block, smem)
    rng = None if seed is None else np.random.default_rng(seed)
    for first in range(0, grid.count, batch):
        ctas = min(batch, grid.count - first)
        spaces = make_spaces()
        machine = Machine(program.registers, spaces, grid, block, first, ctas)
        machine.rng = rng
        program.fill(spaces, ctas, machine.lanes, smem)
        memory.fill(spaces)
        Scheduler(machine, program, stats, max_steps, rng).run()


def _dim3(value: int | tuple[int, ...], name: str) -> Dim3:
    parts = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(parts) <= 3 or not all(isinstance(p, (int, np.integer)) and p > 0 for p in parts):
        raise ValueError(f"{name}={value!r}: expected one to three positive integers")
    return Dim3(*(int(p) for p in parts))


def _batch(program: Program, block: Dim3, smem: int) -> int:
    threads = -(-block.count // WARP) * WARP
    registers = 8 * len(program.instructions)  # an upper bound: each instruction writes about one
    each = threads * (program.bytes_per("lane") + registers) + program.bytes_per("cta") + smem
    return max(1, min(_LANES_AT_ONCE // threads, _BYTES_AT_ONCE // max(each, 1)))


class _Memory:
    """The global memory and the parameter values of one launch."""

    def __init__(self, module: Loaded, program: Program, args: Sequence[Argument], buffers: Sequence[Buffer]) -> None:
        self.module = module
        self.buffers = {b.address: b for b in buffers}
        self.program = program
        params = program.kernel.params
        if len(args) != len(params):
            raise TypeError(f"args: {program.kernel.name} has {len(params)} parameters, got {len(args)}")
        self.values = [self._value(p, a, i) for i, (p, a) in enumerate(zip(params, args, strict=True))]

    def _value(self, param: Variable, arg: Argument, number: int) -> bytes:
        """The bytes of a parameter."""
        what, t = f"args[{number}]", param.type
        if param.is_array:
            if not isinstance(arg, bytes) or len(arg) != param.size:
                raise TypeError(f"{what}: expected {param.size} bytes, got {_describe(arg)}")
            return arg
        if isinstance(arg, np.ndarray):
            arg = Buffer(arg, what)
        if isinstance(arg, Buffer):
            if t.bits != 64:
                raise TypeError(f"{what}: expected a .{t.name} value, got an array")
            self.buffers[arg.address] = arg
            arg = arg.address
        if t.kind == "f" or isinstance(arg, (float, np.floating)):
            if t.kind not in "fb" or not isinstance(arg, (float, int, np.floating)):
                raise TypeError(f"{what}: expected a .{t.name} value, got {_describe(arg)}")
            return np.array(arg, f"f{t.bytes}").tobytes()
        if not isinstance(arg, (int, np.integer)):
            raise TypeError(f"{what}: expected a .{t.name} value, got {_describe(arg)}")
        if not -(1 << t.bits - 1) <= int(arg) < 1 << t.bits:
            raise ValueError(f"{what}: {arg} does not fit .{t.name}")
        return (int(arg) % (1 << t.bits)).to_bytes(t.bytes, "little")

    def fill(self, spaces: dict) -> None:
        for variable in self.module.module.variables:
            if variable.space in ("global", "const"):
                spaces[variable.space].add(self.module.allocations[variable.name])
        for buffer in self.buffers.values():
            spaces["global"].add(buffer.allocation())
        for param, value in zip(self.program.kernel.params, self.values, strict=True):
            made: Allocation = spaces["param"].find(self.program.addresses[param])
            made.data[0, : param.size] = np.frombuffer(value, np.uint8)


def _describe(arg: object) -> str:
    return f"{len(arg)} bytes" if isinstance(arg, bytes) else type(arg).__name__
