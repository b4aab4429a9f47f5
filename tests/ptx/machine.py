"""The state of the CTAs that run together: registers, memory, calls and asynchronous copies.

Lane `i` is thread `i % padded` of CTA `i // padded`, where `padded` is the block size rounded up to whole
warps: warp `w` is lanes 32 w to 32 w + 31, whatever the CTA. The lanes past the block never live.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .dtypes import Type, unsigned
from .hopper import Hopper
from .memory import POISON, Allocation, Fault, Space

WARP = 32
ALL = slice(None)

# Which lanes an instruction runs for: all of them, or those of a sorted index array.
Lanes = slice | np.ndarray


class Dim3(NamedTuple):
    x: int
    y: int = 1
    z: int = 1

    @property
    def count(self) -> int:
        return self.x * self.y * self.z

    def axes(self, linear: np.ndarray) -> tuple[np.ndarray, ...]:
        """Linear index -> x, y, z as uint32."""
        parts = linear % self.x, linear // self.x % self.y, linear // (self.x * self.y)
        return tuple(p.astype(np.uint32) for p in parts)


class AsyncCopy(NamedTuple):
    """One cp.async of some lanes, not landed yet."""

    lanes: np.ndarray
    group: np.ndarray  # the lane's commit group it belongs to
    target: np.ndarray  # shared addresses
    source: np.ndarray  # global addresses
    nbytes: int
    used: np.ndarray  # bytes that come from the source; the rest is zero

    def part(self, mask: np.ndarray) -> AsyncCopy:
        picked = (x[mask] for x in (self.lanes, self.group, self.target, self.source))
        return AsyncCopy(*picked, self.nbytes, self.used[mask])


class Machine:
    def __init__(
        self, registers: int, spaces: dict[str, Space], grid: Dim3, block: Dim3, first_cta: int, ctas: int
    ) -> None:
        self.grid, self.block = grid, block
        self.spaces = spaces
        padded = -(-block.count // WARP) * WARP
        self.ctas = ctas
        self.lanes = ctas * padded
        self.warps = self.lanes // WARP
        self.index = np.arange(self.lanes)
        self.cta = self.index // padded  # counted within the batch
        self.thread = self.index % padded
        self.first_cta = first_cta
        self.live = self.thread < block.count
        self.registers: list[np.ndarray | None] = [None] * registers
        self.special = self._special_registers(ctas, padded)
        self.depth = np.zeros(self.lanes, np.int64)  # of calls
        self.returns: list[np.ndarray] = []  # [depth][lane] -> pc
        self.group = np.zeros(self.lanes, np.int64)  # the open cp.async group
        self.copies: list[AsyncCopy] = []
        self.hopper = Hopper(self)
        self.rng: np.random.Generator | None = None  # set: each async copy lands at once or at its wait

    def _special_registers(self, ctas: int, padded: int) -> dict[str, np.ndarray]:
        lane = (self.index % WARP).astype(np.uint32)
        one, ones = np.uint64(1), np.uint64(0xFFFFFFFF)
        bit = one << lane.astype(np.uint64)
        below = bit - one
        found = {
            "%laneid": lane,
            "%warpid": (self.thread // WARP).astype(np.uint32),
            "%nwarpid": np.full(self.lanes, padded // WARP, np.uint32),
            "%lanemask_eq": bit,
            "%lanemask_lt": below,
            "%lanemask_le": below | bit,
            "%lanemask_gt": ~(below | bit) & ones,
            "%lanemask_ge": ~below & ones,
        }
        for k, axis in enumerate("xyz"):
            found[f"%tid.{axis}"] = self.block.axes(self.thread)[k]
            found[f"%ctaid.{axis}"] = self.grid.axes(self.first_cta + self.cta)[k]
            found[f"%ntid.{axis}"] = np.full(self.lanes, self.block[k], np.uint32)
            found[f"%nctaid.{axis}"] = np.full(self.lanes, self.grid[k], np.uint32)
        return {name: values.astype(np.uint32) for name, values in found.items()}

    # -- lanes ----------------------------------------------------------------------------------------------

    def count(self, at: Lanes) -> int:
        return self.lanes if at is ALL else len(at)

    def select(self, at: Lanes, mask: np.ndarray) -> Lanes:
        """The lanes of `at` where `mask` holds."""
        return np.flatnonzero(mask) if at is ALL else at[mask]

    def union(self, a: Lanes, b: Lanes) -> Lanes:
        both = np.sort(np.concatenate([a, b]))
        return ALL if len(both) == self.lanes else both

    def numbers(self, at: Lanes) -> np.ndarray:
        return self.index if at is ALL else at

    def mask(self, at: Lanes) -> np.ndarray:
        """bool [lanes]"""
        found = np.zeros(self.lanes, np.bool_)
        found[at] = True
        return found

    def warp_bits(self, mask: np.ndarray) -> np.ndarray:
        """bool [lanes] -> uint32 [warps], bit i for lane i."""
        return np.packbits(mask.reshape(-1, WARP), axis=1, bitorder="little").view("<u4")[:, 0]

    def who(self, lane: int) -> str:
        """A lane's name in messages."""
        cta = tuple(int(a) for a in self.grid.axes(self.first_cta + self.cta[lane]))
        thread = tuple(int(a) for a in self.block.axes(self.thread[lane]))
        return f"block {cta} thread {thread} (lane {lane % WARP} of warp {self.thread[lane] // WARP})"

    # -- registers ------------------------------------------------------------------------------------------

    def read(self, slot: int, bits: int) -> np.ndarray:
        """All lanes' bits of a register; all ones (a predicate: true) where nothing was written."""
        values = self.registers[slot]
        if values is None:
            values = self.registers[slot] = np.zeros(self.lanes, unsigned(bits))
            values.view(np.uint8)[:] = 1 if bits == 1 else POISON
        return values

    def write(self, slot: int, bits: int, at: Lanes, values: np.ndarray) -> None:
        target = self.registers[slot]
        if target is None and at is ALL:
            target = self.registers[slot] = np.empty(self.lanes, unsigned(bits))
        elif target is None:
            target = self.read(slot, bits)
        target[at] = values

    # -- memory ---------------------------------------------------------------------------------------------

    def _bank(self, allocation: Allocation, at: Lanes, positions: np.ndarray | None) -> np.ndarray | int:
        if allocation.owner == "grid":
            return 0
        lanes = (self.cta if allocation.owner == "cta" else self.index)[at]
        return lanes if positions is None else lanes[positions]

    def check_aligned(self, space: str, address: np.ndarray, nbytes: int) -> None:
        bad = np.flatnonzero(address & (nbytes - 1))
        if len(bad):
            where = int(np.atleast_1d(address)[bad[0]]) & (1 << 64) - 1
            raise Fault(f"misaligned: {nbytes} bytes of {space} memory at 0x{where:x}", int(bad[0]), where)

    def _elements(self, space: str, at: Lanes, address: np.ndarray, width: int, count: int):
        """For each allocation touched: allocation, positions, index of the first element of each lane."""
        nbytes = width * count
        self.check_aligned(space, address, nbytes)
        for allocation, positions in self.spaces[space].locate(address, nbytes):
            mine = address if positions is None else np.atleast_1d(address)[positions]
            offset = mine - allocation.start
            bank = self._bank(allocation, at, positions)
            yield allocation, positions, (bank * allocation.data.shape[1] + offset) // width

    def load(self, space: str, at: Lanes, address: np.ndarray, width: int, count: int = 1) -> list[np.ndarray]:
        """`count` neighbouring elements of `width` bytes for each lane, as unsigned bits."""
        if space == "generic":
            return self._load_generic(at, address, width, count)
        found: list[np.ndarray] = []
        for allocation, positions, first in self._elements(space, at, address, width, count):
            elements = allocation.elements(width)
            if positions is None:
                return [elements[first + j] for j in range(count)]
            if not found:
                found = [np.empty(self.count(at), elements.dtype) for _ in range(count)]
            for j in range(count):
                found[j][positions] = elements[first + j]
        return found

    def store(self, space: str, at: Lanes, address: np.ndarray, values: list[np.ndarray], width: int) -> None:
        if space == "generic":
            self._store_generic(at, address, values, width)
            return
        address = np.broadcast_to(address, self.count(at))
        for allocation, positions, first in self._elements(space, at, address, width, len(values)):
            if space == "const" or not allocation.data.flags.writeable:
                raise Fault(f"store into '{allocation.name}', which is read-only")
            elements = allocation.elements(width)
            for j, value in enumerate(values):
                whole = positions is None or np.ndim(value) == 0
                elements[first + j] = value if whole else value[positions]
                allocation.mark(first + j, width)

    def _windows(self, address: np.ndarray):
        """Generic addresses -> (space, positions), for each space that some lane points into."""
        left = np.ones(len(address), np.bool_)
        for space in self.spaces.values():
            low = space.window or space.low
            inside = (address >= low) & (address < low + space.span)
            if inside.any():
                left &= ~inside
                yield space, np.flatnonzero(inside)
        if left.any():
            bad = int(np.argmax(left))
            where = int(address[bad]) & (1 << 64) - 1
            raise Fault(f"out of bounds: the generic address 0x{where:x} is in no state space", bad, where)

    def _load_generic(self, at: Lanes, address: np.ndarray, width: int, count: int) -> list[np.ndarray]:
        lanes = self.numbers(at)
        address = np.broadcast_to(address, len(lanes))
        found = [np.empty(len(lanes), f"u{width}") for _ in range(count)]
        for space, positions in self._windows(address):
            with shifted(positions):
                mine = address[positions] - space.window
                parts = self.load(space.name, lanes[positions], mine, width, count)
            for whole, part in zip(found, parts, strict=True):
                whole[positions] = part
        return found

    def _store_generic(self, at: Lanes, address: np.ndarray, values: list[np.ndarray], width: int) -> None:
        lanes = self.numbers(at)
        address = np.broadcast_to(address, len(lanes))
        for space, positions in self._windows(address):
            mine = [v if np.ndim(v) == 0 else v[positions] for v in values]
            with shifted(positions):
                self.store(space.name, lanes[positions], address[positions] - space.window, mine, width)

    def copy_param(self, at: np.ndarray, source: int, target: int, nbytes: int) -> None:
        """A call's argument or result: from one `.param` variable of each lane to another."""
        of, to = self.spaces["param"].find(source), self.spaces["param"].find(target)
        to.data[at, :nbytes] = of.data[at, :nbytes]

    # -- asynchronous copies --------------------------------------------------------------------------------

    def start_copy(self, copy: AsyncCopy) -> None:
        """Queue a cp.async. Addresses are checked now, so that the message names the right line."""
        for _ in self._elements("shared", copy.lanes, copy.target, copy.nbytes, 1):
            pass
        reads = np.flatnonzero(copy.used > 0)  # a source of which nothing is used may point anywhere
        if len(reads):
            with shifted(reads):
                self.check_aligned("global", copy.source[reads], copy.nbytes)
                for last in (0, copy.used[reads] - 1):
                    for _ in self._elements("global", copy.lanes[reads], copy.source[reads] + last, 1, 1):
                        pass
        if self.rng is not None:
            early = self.rng.random(len(copy.lanes)) < 0.5
            self._land(copy.part(early))
            copy = copy.part(~early)
        self.copies.append(copy)

    def commit_copies(self, at: Lanes) -> None:
        self.group[at] += 1

    def finish_copies(self, at: Lanes, pending: int) -> None:
        """Land the copies of these lanes, all but those of the latest `pending` committed groups."""
        waits, left = self.mask(at), []
        for copy in self.copies:
            done = waits[copy.lanes] & (copy.group < self.group[copy.lanes] - pending)
            self._land(copy.part(done))
            rest = copy.part(~done)
            if len(rest.lanes):
                left.append(rest)
        self.copies = left

    def _land(self, copy: AsyncCopy) -> None:
        if not len(copy.lanes):
            return
        unit = 4 if not (copy.used % 4).any() else 1
        for offset in range(0, copy.nbytes, unit):
            value = np.zeros(len(copy.lanes), f"u{unit}")
            reads = copy.used > offset
            if reads.any():
                (value[reads],) = self.load("global", copy.lanes[reads], copy.source[reads] + offset, unit)
            self.store("shared", copy.lanes, copy.target + offset, [value], unit)


class shifted:
    """Positions in a subset of the lanes -> positions in the whole set, in any Fault that comes out."""

    def __init__(self, positions: np.ndarray) -> None:
        self.positions = positions

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, Fault):
            fault.position = int(self.positions[fault.position])


def as_bits(values: np.ndarray, t: Type) -> np.ndarray:
    """Values of a type -> the unsigned bits that a register of this width holds."""
    return np.asarray(values, t.dtype).view(unsigned(t.bits))
