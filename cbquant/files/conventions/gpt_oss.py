"""gpt-oss: ``X_blocks`` [..., K/32, 16] beside ``X_scales`` [..., K/32], both uint8: MXFP4 of ``X`` [..., K].

The files in the folder ``original`` have ``X.blocks`` and ``X.scales``. The first code of a byte is in the low nibble,
scales are E8M0 (gpt_oss/torch/weights.py of https://github.com/openai/gpt-oss). The order is [E, N, K], outputs before
inputs; transformers transposes what it decodes, to [E, K, N] (src/transformers/integrations/mxfp4.py of
https://github.com/huggingface/transformers), and nothing does that here.
"""

from __future__ import annotations

from cbquant.files._text import quoted
from cbquant.files.conventions._parts import Convention, Parts, described
from cbquant.files.conventions._recipe import Misfit, Note, Recipe, dtype_of

_GROUP, _GROUP_BYTES = 32, 16


def _beside(codes_suffix: str, scales_suffix: str) -> Convention:
    def read(parts: Parts, stem: str) -> Recipe | Note | None:
        return _read(parts, stem, stem + codes_suffix, stem + scales_suffix)

    return Convention(codes_suffix, read)


def _read(parts: Parts, stem: str, codes_name: str, scales_name: str) -> Recipe | Note | None:
    codes, scales = parts.find(codes_name), parts.find(scales_name)
    if codes is None or dtype_of(codes) != "U8" or codes.shape[-1:] != (_GROUP_BYTES,) or len(codes.shape) < 2:
        return None
    if scales is None:
        return Note(codes.name, f"it looks like codes of MXFP4, but there is no {quoted(scales_name)}")
    if dtype_of(scales) not in ("U8", "F8_E8M0") or scales.shape != codes.shape[:-1]:
        raise Misfit(codes.name, f"{described(scales)}: expected uint8 {codes.shape[:-1]}, a scale for each block")
    shape = (*codes.shape[:-2], codes.shape[-2] * _GROUP)
    return Recipe(stem, "mxfp4_planes", shape, codes, codes.shape, scales, scales.shape)


CONVENTIONS = (_beside("_blocks", "_scales"), _beside(".blocks", ".scales"))
