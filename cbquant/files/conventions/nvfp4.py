"""What conventions of NVFP4 share: two codes a byte, the first in the low nibble, an E4M3 byte for each 16 of a row,
and one float32."""

from __future__ import annotations

from cbquant.files._info import TensorInfo
from cbquant.files.conventions._parts import described, is_grouped, nibble_shape
from cbquant.files.conventions._recipe import Misfit, Recipe, dtype_of

_GROUP_BYTES = 8


def recipe(name: str, codes: TensorInfo, scales: TensorInfo, whole: TensorInfo, whole_is: str) -> Recipe:
    """The weight `name` of codes [..., K/2], scales [..., K/16] and one of the whole tensor."""
    shape = nibble_shape(codes)
    if shape is None or not is_grouped(scales.shape, shape, _GROUP_BYTES):
        expected = "[..., K/2] and [..., K/16], two codes a byte and a scale for each 16"
        raise Misfit(codes.name, f"{described(codes)} and {described(scales)}: expected {expected}")
    if dtype_of(whole) != "F32" or whole.shape not in ((), (1,)):
        raise Misfit(codes.name, f"{described(whole)}: expected one float32, the scale of the whole tensor")
    return Recipe(
        name,
        "nvfp4_planes",
        (*shape[:-1], 2 * shape[-1]),
        codes,
        shape,
        scales,
        scales.shape,
        global_scale=whole,
        global_scale_is=whole_is,
    )
