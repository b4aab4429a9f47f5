"""What conventions of FP8 share, and those of one scale.

``X.qscale_weight``: Mistral's own files (https://github.com/ggml-org/llama.cpp, conversion/base.py).
``X.scale_weight``: ComfyUI before it had ``weight_scale`` (comfy/ops.py of https://github.com/comfyanonymous/ComfyUI).
"""

from __future__ import annotations

from cbquant._unknown import FP8_DTYPES
from cbquant.files._info import TensorInfo
from cbquant.files.conventions._parts import Convention, Parts, described, is_grouped
from cbquant.files.conventions._recipe import Misfit, Note, Recipe, Tile, dtype_of

#: dtype of codes -> format under scales of tiles, and under one E8M0 scale for each 32 of a row.
FORMATS = dict(zip(FP8_DTYPES, (("fp8_e4m3", "mxfp8_e4m3"), ("fp8_e5m2", "mxfp8_e5m2")), strict=True))

MX_GROUP = 32

_FLOATS = ("F32", "F16", "BF16")


def scaled(parts: Parts, codes: TensorInfo, scales: TensorInfo) -> Recipe:
    """FP8 codes under scales: one, one a matrix, one a row, tiles of the size that the caller said, or MXFP8's groups.

    Which of them it is the scales' shape tells, and it can tell it only once: where two of these readings fit, they
    mean the same. The size of the tiles is never taken from the shapes.
    """
    tiled, grouped = FORMATS[dtype_of(codes)]
    kind, shape, tile = dtype_of(scales), codes.shape, parts.options.tile
    if kind in _FLOATS or kind == "F8_E8M0":
        found = _reading(shape, scales.shape, tile)
        if found is not None:
            return Recipe(codes.name, tiled, shape, codes, shape, scales, found[1], found[0])
    if kind in ("F8_E8M0", "U8") and is_grouped(scales.shape, shape, MX_GROUP):
        return Recipe(codes.name, grouped, shape, codes, shape, scales, scales.shape)
    raise Misfit(codes.name, _complaint(codes, scales, tile))


def _reading(shape: tuple[int, ...], found: tuple[int, ...], tile: Tile) -> tuple[Tile | None, tuple[int, ...]] | None:
    """The tile of scales of the shape `found`, and the shape to give them; None where none fits."""
    if found in ((), (1,)):
        return None, ()
    if len(shape) < 2:
        return None
    rows = (*shape[:-1], 1)
    # Without the 1, [E, N] beside [E, N, N] might be scales of columns.
    if found == rows or (found == shape[:-1] and (len(shape) == 2 or shape[-1] != shape[-2])):
        return (1, None), rows
    if found == (*shape[:-2], 1, 1):
        return (None, None), found
    n, k = (-(-length // (part or max(length, 1))) for length, part in zip(shape[-2:], tile, strict=True))
    return (tile, found) if found == (*shape[:-2], n, k) else None


def _complaint(codes: TensorInfo, scales: TensorInfo, tile: Tile) -> str:
    size = " x ".join("all" if part is None else str(part) for part in tile)
    return (
        f"{described(scales)}, which is neither one scale, nor one a matrix or a row, nor tiles of {size} of "
        f"{dtype_of(codes)} {codes.shape}, nor groups of {MX_GROUP}; cbquant.open(path, tile=(rows, columns)) "
        "takes other tiles"
    )


def _beside(suffix: str) -> Convention:
    """``X.weight`` beside ``X`` with the suffix."""

    def read(parts: Parts, stem: str) -> Recipe | Note | None:
        codes, scales = parts.find(f"{stem}.weight"), parts.find(stem + suffix)
        if codes is None or scales is None or dtype_of(codes) not in FORMATS:
            return None
        return scaled(parts, codes, scales)

    return Convention(suffix, read)


CONVENTIONS = (_beside(".qscale_weight"), _beside(".scale_weight"))
