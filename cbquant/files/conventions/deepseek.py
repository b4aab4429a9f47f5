"""DeepSeek's checkpoints, and what transformers makes of them. A scale multiplies, whatever its name says.

V3: ``X`` FP8 [N, K] beside ``X_scale_inv`` [ceil(N/128), ceil(K/128)], float32, in some files bfloat16
(README_WEIGHTS.md and inference/kernel.py of https://huggingface.co/deepseek-ai/DeepSeek-V3). transformers takes the
names over, for experts in one tensor [E, N, K] too, with one scale where ``weight_block_size`` is null, and for FP4
(src/transformers/integrations/finegrained_fp8.py of https://github.com/huggingface/transformers).

V4: ``X.weight`` beside ``X.scale``. FP8 [N, K] has tiles, E8M0 in DeepSeek-V4-Flash and -Pro, float32 in their Base
files. Routed experts are MXFP4: int8 [N, K/2], two codes a byte, the first in the low nibble, and E8M0 [N, K/32]
(inference/convert.py, cast_e2m1fn_to_e4m3fn, of https://huggingface.co/deepseek-ai/DeepSeek-V4-Flash;
https://github.com/radixark/miles/pull/2717). V4.1 has tiles of 32 x 32, so ``tile=(32, 32)``, and tables
``engram.embed`` with an E8M0 scale for each 32 of a row, which is MXFP8
(https://github.com/ggml-org/llama.cpp/pull/28696, https://github.com/vllm-project/vllm-ascend/pull/16423).
"""

from __future__ import annotations

from cbquant.files._info import TensorInfo
from cbquant.files._text import quoted
from cbquant.files.conventions import fp8, mx4
from cbquant.files.conventions._parts import Convention, Parts, nibble_shape
from cbquant.files.conventions._recipe import Note, Recipe, dtype_of


def _scale_inv(parts: Parts, stem: str) -> Recipe | Note | None:
    codes, scales = parts.find(stem), parts.find(f"{stem}_scale_inv")
    if scales is None:
        return None
    if codes is None:  # no other tensor has such a name
        return Note(scales.name, f"these are scales, but there is no {quoted(stem)}")
    return _weight(parts, codes, scales)


def _scale(parts: Parts, stem: str) -> Recipe | Note | None:
    codes, scales = parts.find(f"{stem}.weight"), parts.find(f"{stem}.scale")
    if codes is None or scales is None:  # many layers have a scale that is a parameter
        return None
    return _weight(parts, codes, scales)


def _weight(parts: Parts, codes: TensorInfo, scales: TensorInfo) -> Recipe | None:
    if dtype_of(codes) in fp8.FORMATS:
        return fp8.scaled(parts, codes, scales)
    if dtype_of(scales) == "F8_E8M0" and nibble_shape(codes) is not None:
        return mx4.recipe(codes.name, codes, scales)
    return None


CONVENTIONS = (Convention("_scale_inv", _scale_inv), Convention(".scale", _scale))
