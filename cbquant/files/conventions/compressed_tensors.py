"""compressed-tensors, which llm-compressor writes: codes of four bits in ``X.weight_packed`` are ``X.weight``.

nvfp4-pack-quantized: uint8 [N, K/2], ``X.weight_scale`` E4M3 [N, K/16], ``X.weight_global_scale`` float32 [1], which
**divides** (src/compressed_tensors/compressors/nvfp4/base.py of https://github.com/vllm-project/compressed-tensors;
https://github.com/modular/modular/issues/6600). mxfp4-pack-quantized: the same codes, ``X.weight_scale`` uint8 [N,
K/32], E8M0, and no scale of the whole tensor (compressors/mxfp4/base.py). Its FP8 goes by ``X.weight_scale``: see
modelopt.py.
"""

from __future__ import annotations

from cbquant.files.conventions import mx4, nvfp4
from cbquant.files.conventions._parts import Convention, Parts, described
from cbquant.files.conventions._recipe import Misfit, Note, Recipe, dtype_of


def _weight_packed(parts: Parts, stem: str) -> Recipe | Note | None:
    codes = parts.find(f"{stem}.weight_packed")
    if codes is None:
        return None
    whole, name = parts.find(f"{stem}.weight_global_scale"), f"{stem}.weight"
    if dtype_of(codes) != "U8":
        return Note(codes.name, "packed integers of compressed-tensors, which are not known")
    scales = parts.need(f"{stem}.weight_scale", codes.name)
    if parts.find(f"{stem}.weight_zero_point") is not None:
        return Note(codes.name, "codes of compressed-tensors with a zero point, which are not known")
    if dtype_of(scales) == "F8_E4M3":
        whole = parts.need(f"{stem}.weight_global_scale", codes.name)
        return nvfp4.recipe(name, codes, scales, whole, "divisor")
    if dtype_of(scales) in ("U8", "F8_E8M0") and whole is None:
        if mx4.fits(codes, scales):
            return mx4.recipe(name, codes, scales)
        return Note(codes.name, f"{described(codes)} beside {described(scales)}: a packing that is not known")
    raise Misfit(codes.name, f"{described(scales)}: expected F8_E4M3, or U8 without a scale of the whole tensor")


CONVENTIONS = (Convention(".weight_packed", _weight_packed),)
