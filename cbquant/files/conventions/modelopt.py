"""``X.weight`` beside ``X.weight_scale``: ModelOpt, and the FP8 of compressed-tensors, Quark and ComfyUI.

NVFP4 of ModelOpt: uint8 [N, K/2], E4M3 [N, K/16] and ``X.weight_scale_2``, one float32, which **multiplies**
(modelopt/torch/export/quant_utils.py and quantization/qtensor/nvfp4_tensor.py of
https://github.com/NVIDIA/Model-Optimizer). MXFP4 of ModelOpt and Quark: uint8 [N, K/2] and E8M0 [N, K/32] in uint8
(qtensor/mxfp4_tensor.py). FP8: one scale, one a row ([N] or [N, 1]) or tiles, whose size the file does not tell
(compressors/naive_quantized/base.py of https://github.com/vllm-project/compressed-tensors). MXFP8: E8M0 [N, K/32] in
uint8 (compressors/mxfp8/base.py).

ComfyUI's NVFP4 and MXFP8 have the same names, but the first code in the high nibble and the scales in the order of
cuBLAS (comfy_kitchen/tensor/nvfp4.py of https://github.com/Comfy-Org/comfy-kitchen). A tensor ``X.comfy_quant`` or the
key ``_quantization_metadata`` tells them; they are not decoded. ModelOpt's experts in one tensor, ``X_weight_scale``,
are transposed in some models, so neither are they.
"""

from __future__ import annotations

from cbquant.files._info import TensorInfo
from cbquant.files._text import quoted
from cbquant.files.conventions import fp8, mx4, nvfp4
from cbquant.files.conventions._parts import Convention, Parts, described, nibble_shape
from cbquant.files.conventions._recipe import Misfit, Note, Recipe, dtype_of

_COMFY_KEY = "_quantization_metadata"


def _weight_scale(parts: Parts, stem: str) -> Recipe | Note | None:
    codes, scales = parts.find(f"{stem}.weight"), parts.find(f"{stem}.weight_scale")
    if codes is None or scales is None:
        return None
    found = _known(parts, stem, codes, scales)
    if isinstance(found, Recipe) and found.format not in ("fp8_e4m3", "fp8_e5m2") and _is_of_comfy(parts, stem):
        return Note(codes.name, f"{found.format.removesuffix('_planes')} as ComfyUI lays it out, which is not known")
    return found


def _known(parts: Parts, stem: str, codes: TensorInfo, scales: TensorInfo) -> Recipe | Note | None:
    kind = dtype_of(codes)
    if parts.find(f"{stem}.weight_zero_point") is not None and kind in (*fp8.FORMATS, "U8", "I8"):
        return Note(codes.name, "codes with a zero point, which are not known")
    if kind in fp8.FORMATS:
        return fp8.scaled(parts, codes, scales)
    if nibble_shape(codes) is None:
        return None
    if parts.find(f"{stem}.weight_scale_2") is not None or dtype_of(scales) == "F8_E4M3":
        return _nvfp4(parts, stem, codes, scales)
    if dtype_of(scales) in ("U8", "F8_E8M0") and mx4.fits(codes, scales):
        return mx4.recipe(codes.name, codes, scales)
    return Note(codes.name, f"{described(codes)} beside {described(scales)}: a scheme that is not known")


def _nvfp4(parts: Parts, stem: str, codes: TensorInfo, scales: TensorInfo) -> Recipe:
    if dtype_of(scales) not in ("F8_E4M3", "U8"):
        raise Misfit(codes.name, f"{described(scales)}: expected F8_E4M3, a scale for each 16")
    whole = parts.need(f"{stem}.weight_scale_2", codes.name)
    return nvfp4.recipe(codes.name, codes, scales, whole, "multiplier")


def _is_of_comfy(parts: Parts, stem: str) -> bool:
    return parts.find(f"{stem}.comfy_quant") is not None or _COMFY_KEY in parts.keys


def _weight_scale_2(parts: Parts, stem: str) -> Recipe | Note | None:
    """Only what `_weight_scale` does not see: the scales of the groups are missing."""
    codes = parts.find(f"{stem}.weight")
    if codes is not None and nibble_shape(codes) is not None:
        parts.need(f"{stem}.weight_scale", codes.name)
    return None


def _experts(parts: Parts, stem: str) -> Recipe | Note | None:
    codes = parts.find(stem)
    if codes is None or dtype_of(codes) not in (*fp8.FORMATS, "U8"):
        return None
    return Note(
        codes.name, f"beside {quoted(stem + '_weight_scale')}: experts in one tensor, an order that is not known"
    )


def _pre_quant_scale(parts: Parts, stem: str) -> Recipe | Note | None:
    """The weight is decoded all the same: it is the layer's inputs that these numbers multiply."""
    if parts.find(f"{stem}.weight_scale") is None or parts.find(f"{stem}.weight") is None:
        return None
    return Note(f"{stem}.weight", f"{quoted(stem + '.pre_quant_scale')} multiplies the inputs of this weight")


CONVENTIONS = (
    Convention(".weight_scale", _weight_scale),
    Convention(".weight_scale_2", _weight_scale_2),
    Convention("_weight_scale", _experts),
    Convention(".pre_quant_scale", _pre_quant_scale),
)
