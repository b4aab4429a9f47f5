"""What conventions of MXFP4 share: two codes a byte, the first in the low nibble, an E8M0 byte for each 32 of a row."""

from __future__ import annotations

from cbquant.files._info import TensorInfo
from cbquant.files.conventions._parts import described, is_grouped, nibble_shape
from cbquant.files.conventions._recipe import Misfit, Recipe

_GROUP_BYTES = 16


def fits(codes: TensorInfo, scales: TensorInfo) -> bool:
    """Whether these can be codes [..., K/2] and scales [..., K/32]."""
    shape = nibble_shape(codes)
    return shape is not None and is_grouped(scales.shape, shape, _GROUP_BYTES)


def recipe(name: str, codes: TensorInfo, scales: TensorInfo) -> Recipe:
    """The weight `name` of codes [..., K/2] and scales [..., K/32]."""
    shape = nibble_shape(codes)
    if shape is None or not fits(codes, scales):
        expected = "[..., K/2] and [..., K/32], two codes a byte and a scale for each 32"
        raise Misfit(codes.name, f"{described(codes)} and {described(scales)}: expected {expected}")
    return Recipe(name, "mxfp4_planes", (*shape[:-1], 2 * shape[-1]), codes, shape, scales, scales.shape)
