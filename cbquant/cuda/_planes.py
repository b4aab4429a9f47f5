"""Weights in planes as blocks of the device: `load` makes them, `Weight.to_host` takes them apart again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant import planes
from cbquant._formats import Format, get
from cbquant.cuda._native import Native
from cbquant.planes._layout import NO_GLOBAL_SCALE, Layout
from cbquant.planes._tensor import PlanesTensor

Bytes = NDArray[np.uint8]

#: The blocks of cuda/device/plane_blocks.h that a format of planes becomes; mxfp4 and nvfp4 become GGUF's.
_BLOCKS = {
    "fp8_e4m3": "e4m3_codes",
    "fp8_e5m2": "e5m2_codes",
    "mxfp8_e4m3": "e4m3_codes",
    "mxfp8_e5m2": "e5m2_codes",
    "mxfp6_e2m3": "e4m3_codes",
    "mxfp6_e3m2": "e5m2_codes",
    "mxint8": "int8_codes",
}
_GGUF = {"mxfp4_planes": "mxfp4", "nvfp4_planes": "nvfp4"}


def to_blocks(native: Native, tensor: PlanesTensor) -> tuple[Bytes, Format, Layout]:
    """Blocks for the device, their format, and the layout without its codes.

    Raises
    ------
    ValueError
        A format without kernels on GPUs (nf4, fp4); rows that are no whole blocks; what GGUF's blocks cannot hold.
    """
    layout = tensor._layout
    name = layout.format.name
    kept = replace(layout, codes=np.empty(0, np.uint8))
    if name in _GGUF:
        scale = layout.global_scale if layout.global_op != NO_GLOBAL_SCALE else None
        return (
            planes.to_blocks(name, layout.codes, layout.scales, global_scale=scale).reshape(-1),
            get(_GGUF[name]),
            kept,
        )
    if name not in _BLOCKS:
        known = ", ".join([*_GGUF, *_BLOCKS])
        raise ValueError(f"tensor: planes of {name} have no kernels on GPUs, only those of {known}")
    info = _format(native, _BLOCKS[name])
    if layout.k % info.elements:
        raise ValueError(f"tensor: k={layout.k} is not a multiple of {info.elements} (planes on GPUs)")
    scales = _scales(layout, info.elements)
    blocks = np.empty(scales.shape, _record(info))
    blocks["codes"] = _bytes_of(layout).reshape(blocks["codes"].shape)
    blocks["scale"] = scales
    return blocks.reshape(-1).view(np.uint8), info, kept


def from_blocks(raw: Bytes, info: Format, kept: Layout) -> PlanesTensor:
    """The planes that these blocks were made of."""
    name = kept.format.name
    if name in _GGUF:
        codes = planes.from_blocks(raw, _GGUF[name], kept.shape).codes
    else:
        codes = _codes_of(raw.view(_record(info))["codes"].reshape(kept.shape), kept)
    return PlanesTensor(replace(kept, codes=np.asarray(codes)))


def _format(native: Native, name: str) -> Format:
    tag, elements, size = next(row[1:] for row in native.plane_blocks() if row[0] == name)
    return Format(name, tag, elements, size, 8 * size / elements, "signed", elements, False, False, "on the device")


def _record(info: Format) -> np.dtype[Any]:
    return np.dtype([("codes", np.uint8, info.elements), ("scale", "<f4")])


def _scales(layout: Layout, group: int) -> NDArray[np.float32]:
    """float32 ``[..., N, K / group]``: that of each group of a row."""
    rows, columns = layout.tile
    if columns % group and columns < layout.k:
        raise ValueError(f"tensor: tiles of {columns} columns are no multiple of {group} (planes on GPUs)")
    values = _as_float32(layout)
    if layout.format.name == "mxint8":
        values = values / np.float32(64)  # its codes are 64 times their values
    values = np.repeat(values, -(-columns // group), axis=-1)[..., : layout.k // group]
    if len(layout.shape) > 1:
        values = np.repeat(values, rows, axis=-2)[..., : layout.shape[-2], :]
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
