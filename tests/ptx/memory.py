"""The memory of the machine: one flat space of addresses, named allocations with guard gaps between them."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import numpy as np

# What memory holds before anything is stored: NaN in every float format, -1 as an integer, an index that is
# out of bounds of any table.
POISON = 0xFF

_ALIGN = 256  # as cudaMalloc promises
_GAP = 4096  # between neighbours, so that a wrong stride lands in no-man's-land and not in the next buffer


class Fault(Exception):
    """An access or an operation that hardware would refuse or leave undefined.

    `position` is the place of the offending lane among the lanes that execute; the launcher adds the kernel,
    the line, and which thread that is.
    """

    def __init__(self, message: str, position: int = 0, address: int | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.address = address


class Allocation:
    """`size` bytes at `start`, in `banks` copies: one for the grid, or one each CTA or each lane."""

    def __init__(self, name: str, start: int, data: np.ndarray, owner: str = "grid") -> None:
        self.name = name
        self.start = start
        self.data = data  # uint8 [banks, stride]
        self.owner = owner  # "grid", "cta" or "lane": whose index picks the bank
        self.size = data.shape[1]
        self.written: np.ndarray | None = None  # uint8, like data, 0xFF where a store went

    @property
    def end(self) -> int:
        return self.start + self.size

    @classmethod
    def banked(cls, name: str, start: int, size: int, owner: str, banks: int) -> Allocation:
        stride = -(-size // 32) * 32  # whole elements of the widest access fit a bank
        made = cls(name, start, np.full((banks, stride), POISON, np.uint8), owner)
        made.size = size
        return made

    def elements(self, nbytes: int) -> np.ndarray:
        """The bytes as unsigned elements, all banks in one row."""
        flat = self.data.reshape(-1)
        return flat[: flat.size // nbytes * nbytes].view(f"u{nbytes}")

    def mark(self, index: np.ndarray, nbytes: int) -> None:
        if self.written is not None:
            flat = self.written.reshape(-1)
            flat[: flat.size // nbytes * nbytes].view(f"u{nbytes}")[index] = (1 << 8 * nbytes) - 1


class Buffer:
    """A NumPy array as the device's global memory: stores land in the array itself.

    `written` tells, byte by byte, what the kernel stored; `unwritten()` gives the elements that it left out.
    `address` may be put into other data for kernels that follow pointers (see `run(buffers=...)`).
    """

    _next = 1 << 33  # no address fits 32 bits: a pointer that lost its upper half faults

    def __init__(self, array: np.ndarray, name: str = "buffer") -> None:
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise ValueError(f"{name}: expected a C-contiguous ndarray, got {type(array).__name__}")
        self.array = array
        self.name = name
        self.address = Buffer._next
        Buffer._next += -(-(array.nbytes + _GAP) // _ALIGN) * _ALIGN
        self.written = np.zeros((1, array.nbytes), np.uint8)

    @classmethod
    def poison(cls, shape: int | tuple[int, ...], dtype: np.dtype | type, name: str = "out") -> Buffer:
        """An output that nobody has written: every byte 0xFF.

        >>> out = Buffer.poison(3, np.float32)
        >>> out.array
        array([nan, nan, nan], dtype=float32)
        >>> out.unwritten()
        array([0, 1, 2])
        """
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = POISON
        return cls(array, name)

    def unwritten(self) -> np.ndarray:
        """Flat indices (int64) of the elements of which some byte was never stored."""
        return np.flatnonzero((self.written.reshape(-1, self.array.itemsize) == 0).any(axis=1))

    def allocation(self) -> Allocation:
        data = self.array.reshape(-1).view(np.uint8).reshape(1, -1)
        made = Allocation(self.name, self.address, data)
        made.written = self.written
        return made


class Space:
    """One state space: addresses of its own; `window` more than them are its generic addresses."""

    def __init__(self, name: str, low: int, window: int = 0, span: int = 1 << 32) -> None:
        self.name = name
        self.low = low  # where the first allocation goes
        self.window = window
        self.span = span
        self.allocations: list[Allocation] = []
        self.starts: list[int] = []

    def add(self, allocation: Allocation) -> None:
        place = bisect.bisect(self.starts, allocation.start)
        self.starts.insert(place, allocation.start)
        self.allocations.insert(place, allocation)

    def find(self, address: int) -> Allocation | None:
        place = bisect.bisect(self.starts, address) - 1
        return self.allocations[place] if place >= 0 else None

    def locate(self, address: np.ndarray, nbytes: int) -> Iterator[tuple[Allocation, np.ndarray | None]]:
        """The allocations that the addresses lie in, with the positions of the lanes (None: all of them)."""
        low, high = int(address.min()), int(address.max())
        first = self.find(low)
        if first is not None and low >= first.start and high + nbytes <= first.end:
            yield first, None
            return
        address = np.atleast_1d(address)
        which = np.searchsorted(np.array(self.starts, np.int64), address, side="right") - 1
        for place in np.unique(which):
            positions = np.flatnonzero(which == place)
            if place < 0:
                raise self.out_of_bounds(None, address, positions[0], nbytes)
            found = self.allocations[place]
            outside = address[positions] + nbytes > found.end
            if outside.any():
                raise self.out_of_bounds(found, address, positions[np.argmax(outside)], nbytes)
            yield found, positions

    def out_of_bounds(self, near: Allocation | None, address: np.ndarray, position: int, nbytes: int) -> Fault:
        bad = int(address[position]) & (1 << 64) - 1
        if near is None:
            where = "before everything in this space"
        elif bad - near.end > _GAP:
            where = "far from any allocation"
        else:
            where = f"byte {bad - near.start} of '{near.name}', which has {near.size}"
        return Fault(f"out of bounds: {nbytes} bytes of {self.name} memory at 0x{bad:x}, {where}", int(position), bad)


def make_spaces() -> dict[str, Space]:
    """The five state spaces, empty. Global and const addresses are generic as they are.

    Shared, local and param addresses start above 0, so that a null pointer is out of bounds there too.
    """
    return {
        "global": Space("global", 1 << 32, 0, (1 << 46) - (1 << 32)),
        "const": Space("const", 1 << 46, 0, 1 << 32),
        "shared": Space("shared", 1024, 0x7F10 << 32),
        "local": Space("local", 1024, 0x7F20 << 32),
        "param": Space("param", 1024, 0x7F30 << 32),
    }


class Placer:
    """Hands out addresses of one space, one after the other with gaps."""

    def __init__(self, space: Space) -> None:
        self.next = space.low

    def place(self, size: int, align: int) -> int:
        start = -(-self.next // max(align, 16)) * max(align, 16)
        self.next = start + size + _GAP
        return start
