"""What goes on by itself on Hopper: barriers in shared memory that count bytes, copies in bulk, products of wgmma.

Nothing of it happens before it must: a copy lands when nobody can go on without, a product is worked out at its wait.
With a seed, some happen earlier, copies in any order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .memory import Fault
from .rounding import bf16_to_f32

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Machine

_WARP = 32
_LANE = np.arange(_WARP)
_GROUP, _QUAD = _LANE // 4, _LANE % 4


@dataclass
class Barrier:
    """One mbarrier object. A phase ends when no arrival is missing and no byte is on its way."""

    arrivals: int
    missing: int
    bytes: int = 0
    phase: int = 0  # those before have ended
    fenced: bool = False

    def end_phase(self) -> None:
        if self.missing == 0 and self.bytes == 0:
            self.phase += 1
            self.missing = self.arrivals


class Flight(NamedTuple):
    """A copy in bulk that has not landed."""

    lane: int
    target: int
    source: int
    nbytes: int
    barrier: Barrier


class Product(NamedTuple):
    """A wgmma of some warps, not worked out: how to read and to write its registers, and the second matrix."""

    lanes: np.ndarray
    group: np.ndarray  # the lane's commit group it belongs to
    a: list[Callable]
    sums: list[tuple[Callable, Callable]]
    matrix: np.ndarray  # a descriptor to a warp

    def part(self, warps: np.ndarray) -> Product:
        mask = np.repeat(warps, _WARP)
        return self._replace(lanes=self.lanes[mask], group=self.group[mask], matrix=self.matrix[warps])


class Hopper:
    """The state of one batch of CTAs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.barriers: dict[tuple[int, int], Barrier] = {}  # by CTA and address
        self.flights: list[Flight] = []
        self.products: list[Product] = []
        self.group = np.zeros(machine.lanes, np.int64)  # the open wgmma group
        self.fenced = np.zeros(machine.lanes, np.bool_)
        self.issued: dict[int, list[int]] = defaultdict(list)  # descriptors of each four warps
        self.registers = np.zeros(machine.warps, np.int64)  # of a thread, where its warp has asked for a number
        self.of_warp = np.zeros(machine.warps, np.int64)  # how many of those a warp has issued

    # -- barriers -------------------------------------------------------------------------------------------

    def make(self, lanes: np.ndarray, addresses: np.ndarray, counts: np.ndarray) -> None:
        for _ in self.machine._elements("shared", lanes, addresses, 8, 1):
            pass
        for position, (lane, address, count) in enumerate(zip(lanes, addresses, counts, strict=True)):
            key = (int(self.machine.cta[lane]), int(address))
            if key in self.barriers or not 0 < count < 1 << 20:
                raise Fault(f"no barrier of {count} arrivals can be made at 0x{address:x}", position, int(address))
            self.barriers[key] = Barrier(int(count), int(count))

    def find(self, lane: int, address: int, position: int) -> Barrier:
        found = self.barriers.get((int(self.machine.cta[lane]), int(address)))
        if found is None:
            raise Fault(f"there is no barrier at 0x{address:x} (yet)", position, int(address))
        return found

    def arrive(self, lanes: np.ndarray, addresses: np.ndarray, nbytes: np.ndarray) -> None:
        for position, lane in enumerate(lanes):
            barrier = self.find(lane, addresses[position], position)
            if barrier.missing == 0:
                raise Fault("more arrivals than the barrier has", position, int(addresses[position]))
            barrier.bytes += int(nbytes[position])
            barrier.missing -= 1
            barrier.end_phase()

    def ended(self, lanes: np.ndarray, addresses: np.ndarray, parities: np.ndarray) -> np.ndarray:
        """bool [lanes]: whether the last phase of that parity has ended."""
        found = [self.find(lane, addresses[i], i).phase % 2 != parities[i] for i, lane in enumerate(lanes)]
        return np.array(found, np.bool_)

    def fence(self, lanes: np.ndarray) -> None:
        ctas = {int(cta) for cta in self.machine.cta[lanes]}
        for (cta, _), barrier in self.barriers.items():
            barrier.fenced |= cta in ctas

    # -- copies ---------------------------------------------------------------------------------------------

    def start(self, flight: Flight, position: int) -> None:
        lane = np.array([flight.lane])
        if flight.nbytes <= 0 or flight.nbytes % 16 or (flight.target | flight.source) % 16:
            raise Fault("a copy in bulk of no multiple of 16 bytes, or at none", position)
        if not flight.barrier.fenced:
            raise Fault("a copy in bulk before a fence.proxy.async after its barrier was made", position)
        for space, address in (("shared", flight.target), ("global", flight.source)):
            for at in (address, address + flight.nbytes - 4):
                for _ in self.machine._elements(space, lane, np.array([at]), 4, 1):
                    pass
        self.flights.append(flight)

    def land_one(self) -> None:
        rng = self.machine.rng
        flight = self.flights.pop(0 if rng is None else int(rng.integers(len(self.flights))))
        offsets = np.arange(0, flight.nbytes, 4)
        lanes = np.full(len(offsets), flight.lane)
        values = self.machine.load("global", lanes, flight.source + offsets, 4)
        self.machine.store("shared", lanes, flight.target + offsets, values, 4)
        flight.barrier.bytes -= flight.nbytes
        flight.barrier.end_phase()

    # -- registers ------------------------------------------------------------------------------------------

    def set_registers(self, lanes: np.ndarray, count: int) -> None:
        """A CTA has what it got at its launch; that is looked at when all of its warps have asked."""
        self.registers[lanes // _WARP] = count
        warps = self.machine.warps // self.machine.ctas
        most = 65536 // (_WARP * warps) // 8 * 8 * warps
        for asked in self.registers.reshape(-1, warps):
            if asked.all() and asked.sum() > most:
                raise Fault(f"warps ask for {_WARP * asked.sum()} registers, the CTA has {_WARP * most}")

    # -- products -------------------------------------------------------------------------------------------

    def begin(self, product: Product) -> None:
        lanes = product.lanes
        if not self.fenced[lanes].all():
            raise Fault("no wgmma.fence since the last commit", int(np.argmin(self.fenced[lanes])))
        for position, warp in enumerate(lanes[::_WARP] // _WARP):
            log, matrix = self.issued[int(warp) // 4], int(product.matrix[position])
            if self.of_warp[warp] == len(log):
                log.append(matrix)
            if log[self.of_warp[warp]] != matrix:
                raise Fault("the four warps do not have the same matrix", _WARP * position)
            self.of_warp[warp] += 1
        self.products.append(product)

    def finish(self, at: np.ndarray, pending: int) -> None:
        """Work out the products of these lanes, all but those of the latest `pending` committed groups."""
        waits, left = self.machine.mask(at), []
        for product in self.products:
            done = (waits[product.lanes] & (product.group < self.group[product.lanes] - pending))[::_WARP]
            self.work_out(product.part(done))
            if not done.all():
                left.append(product.part(~done))
        self.products = left

    def work_out(self, product: Product) -> None:
        """In f64, rounded once: the hardware's order and width of the sum are not specified."""
        if not len(product.lanes):
            return
        machine, lanes, warps = self.machine, product.lanes, len(product.matrix)
        left = np.zeros((warps, 16, 16))
        for r, read in enumerate(product.a):
            bits = np.broadcast_to(read(machine, lanes), len(lanes)).reshape(warps, _WARP)
            for half in (0, 1):
                values = bf16_to_f32((bits >> np.uint32(16 * half)).astype(np.uint16))
                left[:, _GROUP + 8 * (r & 1), 2 * _QUAD + half + 8 * (r >> 1)] = values
        result = left @ self.second(product).swapaxes(1, 2)
        for i, (read, put) in enumerate(product.sums):
            before = np.broadcast_to(read(machine, lanes), len(lanes)).astype(np.float64)
            part = result[:, _GROUP + 8 * (i % 4 // 2), 8 * (i // 4) + 2 * _QUAD + i % 2]
            put(machine, lanes, (before + part.reshape(-1)).astype(np.float32))

    def second(self, product: Product) -> np.ndarray:
        """[warps, columns, 16]: from shared memory, by the descriptors (PTX ISA, "Matrix Descriptor Format")."""
        columns = len(product.sums) * 2
        found = np.zeros((len(product.matrix), columns, 16))
        n, k = np.arange(columns)[:, None], np.arange(0, 16, 2)[None]
        for i, matrix in enumerate(product.matrix.tolist()):
            address, stride = (matrix & 0x3FFF) << 4, (matrix >> 32 & 0x3FFF) << 4
            at = (address + n // 8 * stride + n % 8 * 128 + 2 * k).reshape(-1)
            lanes = np.full(len(at), product.lanes[_WARP * i])
            (pairs,) = self.machine.load("shared", lanes, at ^ (at >> 7 & 7) << 4, 4)
            found[i] = bf16_to_f32(pairs.reshape(columns, 8).view(np.uint16).reshape(-1)).reshape(columns, 16)
        return found

    # -- by itself ------------------------------------------------------------------------------------------

    def go_on(self) -> bool:
        """Nobody can run: does something land?"""
        count = len(self.flights) if self.machine.rng is None else min(1, len(self.flights))
        for _ in range(count):
            self.land_one()
        return count > 0

    def drift(self, rng: np.random.Generator) -> None:
        """With a seed, before each turn."""
        if self.flights and rng.random() < 0.25:
            self.land_one()
        if self.products and rng.random() < 0.125:
            self.work_out(self.products.pop(0))
