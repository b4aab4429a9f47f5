"""How weights lie in a device's memory: blocks as in a file, or fragments, in the order in which products take them."""

from __future__ import annotations

import math

from cbquant._arguments import check_word

LAYOUTS = ("auto", "blocks", "fragments")

#: Machine instructions for a weight in products of up to eight rows (sm_80, nvcc 13.0, a lane's, counted and not
#: measured): from blocks, and from fragments with what their scales take. "auto" takes the fewer.
INSTRUCTIONS = {
    "q4_0": (4.1, 2.9),
    "q4_1": (4.9, 3.6),
    "q4_k": (7.0, 4.0),
    "q5_0": (5.4, 3.2),
    "q5_1": (5.9, 3.9),
    "q5_k": (8.2, 4.3),
    "q6_k": (6.4, 4.4),
    "iq4_nl": (5.5, 4.0),
    "iq4_xs": (7.8, 4.3),
    "mxfp4": (6.8, 2.7),
    "nvfp4": (8.0, 3.0),
    "q8_0": (4.3, 3.0),
}


def choose(layout: str, fmt: str, shape: tuple[int, ...]) -> str:
    """The layout of a tensor, "blocks" or "fragments".

    Raises
    ------
    ValueError
        Another word; fragments of a format, or of a shape, that has none.
    """
    check_word("layout", layout, LAYOUTS)
    is_product = len(shape) in (2, 3) and math.prod(shape) > 0
    if layout == "auto":
        blocks, fragments = INSTRUCTIONS.get(fmt, (0.0, 0.0))
        return "fragments" if is_product and fragments < blocks else "blocks"
    if layout == "fragments" and fmt not in INSTRUCTIONS:
        raise ValueError(f"layout: there are no fragments of {fmt}, only of {', '.join(INSTRUCTIONS)}")
    if layout == "fragments" and not is_product:
        raise ValueError(f"layout: fragments are of weights [N, K] or [E, N, K], got shape {shape}")
    return layout
