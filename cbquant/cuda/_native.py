"""Types of the C module (cuda/host): low-level functions on memory of a device. Arguments are positional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Memory(Protocol):
    """Memory of a device, freed or given back with the object."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> int: ...


#: A place in memory: the memory and an offset in bytes.
Place = tuple[Memory, int]
#: Rows of floats: a place, float32, float16 or bfloat16, the distance of rows in elements.
Rows = tuple[Memory, int, str, int]
#: An operator's array: memory (None while sizes are asked for), offset, type, shape, strides in elements.
Described = tuple[Memory | None, int, str, tuple[int, ...], tuple[int, ...]]
#: Format's tag, precision (0: bf16, 1: f32), m, n, k, experts, picks (0 and 1 without experts), layout (0: blocks,
#: 1: fragments).
Problem = tuple[int, int, int, int, int, int, int, int]
#: Format's tag, experts (1 without), n, k.
Weights = tuple[int, int, int, int]


class Native(Protocol):
    """The module cbquant._cuda. A stream is the handle of one; 0 is the default stream."""

    ARCHITECTURES: str
    RUNTIME: int
    MARGIN: int
    MOST_LISTED: int
    MOST_SELECTED: int
    MOST_COLUMNS: int
    Event: Any

    # cuda/host/device.c
    def device_count(self) -> int: ...
    def versions(self) -> tuple[int, int]: ...
    def properties(self, device: int, /) -> dict[str, Any]: ...
    def compute_capability(self, device: int, /) -> tuple[int, int]: ...

    # cuda/host/memory.c
    def malloc(self, device: int, nbytes: int, /) -> Memory: ...
    def borrow(self, device: int, address: int, nbytes: int, /) -> Memory: ...
    def pointer_device(self, address: int, /) -> int: ...
    def upload(self, memory: Memory, offset: int, buffer: Any, stream: int, /) -> None: ...
    def download(self, memory: Memory, offset: int, buffer: Any, stream: int, /) -> None: ...
    def fill(self, memory: Memory, offset: int, nbytes: int, byte: int, stream: int, /) -> None: ...

    # cuda/host/stream.c
    def synchronize(self, device: int, stream: int, /) -> None: ...
    def is_capturing(self, device: int, stream: int, /) -> bool: ...
    def order(self, device: int, before: int, after: int, /) -> None: ...

    # cuda/host/decode.c
    def dequant(
        self,
        tag: int,
        dtype: str,
        blocks: Memory,
        offset: int,
        n_blocks: int,
        out: Memory,
        out_offset: int,
        stream: int,
        /,
    ) -> str: ...
    def kernels(self, device: int, /) -> list[dict[str, Any]]: ...
    def plane_blocks(self) -> list[tuple[str, int, int, int, list[tuple[str, str, int, int]]]]: ...

    # cuda/host/products.c
    def has_product(self, tag: int, /) -> bool: ...
    def product_workspace(self, device: int, problem: Problem, /) -> int: ...
    def matmul(
        self, problem: Problem, x: Rows, w: Place, y: Rows, ids: Place | None, workspace: Place, stream: int, /
    ) -> str: ...
    def moe_sum(
        self, tokens: int, picks: int, n: int, z: Place, weights: Place, ids: Place, y: Rows, stream: int, /
    ) -> str: ...

    # cuda/host/fragments.c
    def fragment_bytes(self, weights: Weights, /) -> int: ...
    def pack(
        self, weights: Weights, blocks: Memory, offset: int, fragments: Memory, to: int, stream: int, /
    ) -> str: ...
    def unpack(
        self, weights: Weights, blocks: Memory, offset: int, fragments: Memory, at: int, stream: int, /
    ) -> str: ...
    def dequant_fragments(
        self, weights: Weights, dtype: str, fragments: Memory, offset: int, out: Memory, to: int, stream: int, /
    ) -> str: ...

    # cuda/host/operators.c
    def operator_workspace(
        self, device: int, name: str, arrays: tuple[Described | None, ...], numbers: tuple[float, ...], /
    ) -> int: ...
    def run_operator(
        self,
        device: int,
        name: str,
        arrays: tuple[Described | None, ...],
        numbers: tuple[float, ...],
        workspace: Place | None,
        stream: int,
        /,
    ) -> None: ...

    # cuda/host/dlpack_export.c, dlpack_import.c
    def to_dlpack(
        self, memory: Memory, offset: int, shape: Sequence[int], code: int, bits: int, versioned: bool, /
    ) -> Any: ...
    def from_dlpack(self, capsule: Any, /) -> tuple[Memory, int, int, tuple[int, ...], tuple[int, ...], bool]: ...
