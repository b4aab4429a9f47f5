"""Weights in planes as blocks of the device: `load` makes them, `Weight.to_host` takes them apart again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant import planes
from cbquant._formats import Format, get
from cbquant.cuda._native import Native
from cbquant.planes._blocks import beyond_nvfp4, halves_to_pairs, pairs_to_halves
from cbquant.planes._layout import DIVIDE, MULTIPLY, NO_GLOBAL_SCALE, Layout
from cbquant.planes._tensor import PlanesTensor

Bytes = NDArray[np.uint8]

#: The blocks of cuda/device/plane_blocks.h that a format of planes becomes. mxfp4 becomes GGUF's, as does nvfp4 where
#: they can hold it.
_BLOCKS = {
    "fp8_e4m3": "e4m3_codes",
    "fp8_e5m2": "e5m2_codes",
    "mxfp8_e4m3": "e4m3_codes",
    "mxfp8_e5m2": "e5m2_codes",
    "mxfp6_e2m3": "e4m3_codes",
    "mxfp6_e3m2": "e5m2_codes",
    "mxint8": "int8_codes",
    "nf4": "nf4_codes",
    "fp4": "fp4_codes",
}
_NVFP4 = {NO_GLOBAL_SCALE: "nvfp4_times", MULTIPLY: "nvfp4_times", DIVIDE: "nvfp4_over"}
_GGUF = {"mxfp4_planes": "mxfp4", "nvfp4_planes": "nvfp4"}
# So many blocks at a time stay in the cache.
_STEP = 1 << 13
_HINT = "; load(tensor.dequant()) takes any shape, as plain numbers"


def to_blocks(native: Native, tensor: PlanesTensor) -> tuple[Bytes, Format, Layout]:
    """Blocks for the device, their format, and the layout with the shape of its codes, but without them.

    Raises
    ------
    ValueError
        Rows that are no whole blocks; runs of 32 elements that have more than one scale.
    """
    layout = tensor._layout
    kept = replace(layout, codes=np.broadcast_to(np.uint8(0), layout.codes.shape))
    if _is_gguf(layout):
        info = get(_GGUF[layout.format.name])
        _check_rows(layout, info)
        return planes.to_blocks(layout.format.name, layout.codes, layout.scales).reshape(-1), info, kept
    name = _BLOCKS.get(layout.format.name) or _NVFP4[layout.global_op]
    info, record = _format(native, name)
    _check_rows(layout, info)
    blocks = np.empty(math.prod(layout.shape) // info.elements, record)
    if name in _NVFP4.values():
        blocks["scales"] = np.ascontiguousarray(layout.scales).view(np.uint8).reshape(-1, 4)
        blocks["tensor"] = layout.global_scale
    else:
        scales = _scales_of_runs if layout.format.is_flat else _scales
        blocks["scale"] = scales(layout, info.elements).reshape(-1)
    if layout.format.bits == 4:
        _put_pairs(blocks["codes"], layout)
    else:
        blocks["codes"] = _bytes_of(layout).reshape(blocks["codes"].shape)
    return blocks.view(np.uint8), info, kept


def from_blocks(native: Native, raw: Bytes, info: Format, kept: Layout) -> PlanesTensor:
    """The planes that these blocks were made of."""
    if info.name in _GGUF.values():
        codes = planes.from_blocks(raw, info.name, kept.shape).codes
    else:
        found = raw.view(_format(native, info.name)[1])["codes"]
        codes = _pairs_of(found, kept) if kept.format.bits == 4 else _codes_of(found.reshape(kept.shape), kept)
    return PlanesTensor(replace(kept, codes=np.asarray(codes).reshape(kept.codes.shape)))


def _check_rows(layout: Layout, info: Format) -> None:
    if layout.k % info.elements:
        raise ValueError(f"tensor: k={layout.k} is not a multiple of {info.elements} (planes on GPUs){_HINT}")


def _is_gguf(layout: Layout) -> bool:
    """Whether GGUF's blocks hold the same numbers: of nvfp4 they have no number for the tensor, and no scales that are
    negative or NaN."""
    if layout.format.name != "nvfp4_planes":
        return layout.format.name in _GGUF
    scales = np.ascontiguousarray(layout.scales).view(np.uint8)
    return layout.global_scale == 1 and not beyond_nvfp4(scales).any()


def _format(native: Native, name: str) -> tuple[Format, np.dtype[Any]]:
    """A block of the device, as the C module has it, and as NumPy sees it."""
    tag, elements, size, fields = next(row[1:] for row in native.plane_blocks() if row[0] == name)
    types = [np.dtype(kind) for _, kind, _, _ in fields]
    counts = [nbytes // kind.itemsize for (*_, nbytes), kind in zip(fields, types, strict=True)]
    record = {
        "names": [member for member, *_ in fields],
        "formats": [(kind, (n,)) if n > 1 else kind for kind, n in zip(types, counts, strict=True)],
        "offsets": [offset for _, _, offset, _ in fields],
        "itemsize": size,
    }
    info = Format(name, tag, elements, size, 8 * size / elements, "signed", elements, False, False, "on the device")
    return info, np.dtype(record)  # type: ignore[call-overload]


# ---- codes of four bits: pairs in planes, halves of a group in blocks ----


def _put_pairs(target: Bytes, layout: Layout) -> None:
    pairs = np.ascontiguousarray(layout.codes).reshape(target.shape)
    size = _group_bytes(layout)
    for part in _steps(len(target)):
        groups = pairs[part].reshape(-1, size)
        halves = pairs_to_halves(_swapped(groups) if layout.format.high_first else groups)
        target[part] = halves.reshape(-1, target.shape[1])


def _pairs_of(halves: Bytes, kept: Layout) -> Bytes:
    codes = np.empty(halves.shape, np.uint8)
    size = _group_bytes(kept)
    for part in _steps(len(halves)):
        pairs = halves_to_pairs(np.ascontiguousarray(halves[part]).reshape(-1, size))
        codes[part] = (_swapped(pairs) if kept.format.high_first else pairs).reshape(-1, halves.shape[1])
    return codes


def _group_bytes(layout: Layout) -> int:
    """Bytes of a group that halves are halves of."""
    return (layout.format.group or 32) // 2


def _swapped(pairs: Bytes) -> Bytes:
    """The nibbles of a byte, the other way round."""
    return (pairs >> 4 | pairs << 4).astype(np.uint8, copy=False)


def _steps(n: int) -> Iterator[slice]:
    return (slice(begin, begin + _STEP) for begin in range(0, n, _STEP))


# ---- scales ----


def _scales_of_runs(layout: Layout, group: int) -> NDArray[np.float32]:
    """float32, that of each group in the order of the whole tensor."""
    block, n = layout.tile[1], math.prod(layout.shape)
    if block % group and block < n:
        raise ValueError(
            f"tensor: a scale belongs to {block} elements in order, no multiple of {group} (planes on GPUs){_HINT}"
        )
    values = _as_float32(layout).reshape(-1)
    return np.repeat(values, -(-min(block, n) // group))[: n // group]


def _scales(layout: Layout, group: int) -> NDArray[np.float32]:
    """float32 ``[..., N, K / group]``: that of each group of a row."""
    rows, columns = layout.tile
    if columns % group and columns < layout.k:
        raise ValueError(f"tensor: tiles of {columns} columns are no multiple of {group} (planes on GPUs){_HINT}")
    values = _as_float32(layout)
    if layout.format.name == "mxint8":
        values = values / np.float32(64)  # its codes are 64 times their values
    values = np.repeat(values, -(-min(columns, layout.k) // group), axis=-1)[..., : layout.k // group]
    if len(layout.shape) > 1:
        values = np.repeat(values, min(rows, layout.shape[-2]), axis=-2)[..., : layout.shape[-2], :]
    return np.broadcast_to(values, (*layout.shape[:-1], layout.k // group))


def _as_float32(layout: Layout) -> NDArray[np.float32]:
    from cbquant import e8m0

    scales = layout.scales
    if layout.scale_type == "e8m0":
        return np.asarray(e8m0.decode(np.ascontiguousarray(scales).view(np.uint8)), np.float32).reshape(scales.shape)
    if scales.dtype == np.uint16:  # bits of bfloat16
        scales = (scales.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(scales, np.float32)


def _bytes_of(layout: Layout) -> Bytes:
    """A code in each byte: six-bit ones as the eight-bit code of the same number."""
    if not layout.format.name.startswith("mxfp6"):
        return np.ascontiguousarray(layout.codes)
    from cbquant import fp8

    narrow, wide = _six_bits(layout)
    values = narrow.unpack(layout.codes) if layout.packed else narrow.decode(layout.codes)
    return np.asarray(fp8.encode(values, wide), np.uint8).reshape(layout.shape)


def _codes_of(codes: Bytes, kept: Layout) -> Bytes:
    if not kept.format.name.startswith("mxfp6"):
        return np.ascontiguousarray(codes)
    from cbquant import fp8

    narrow, wide = _six_bits(kept)
    values = fp8.decode(np.ascontiguousarray(codes), wide)
    return np.asarray(narrow.pack(values) if kept.packed else narrow.encode(values), np.uint8)


def _six_bits(layout: Layout) -> tuple[Any, str]:
    """The codec of the format, and FP8 with at least its exponents and its mantissas."""
    from cbquant import e2m3, e3m2

    return (e2m3, "e4m3fn") if layout.format.name == "mxfp6_e2m3" else (e3m2, "e5m2")
