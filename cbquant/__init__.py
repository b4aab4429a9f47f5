"""Block-quantized weights: decode GGUF's formats bit for bit, at the speed of memory.

>>> import cbquant
>>> blocks = bytes.fromhex("003c") + bytes([0x21] * 16)   # iq4_nl: the scale 1.0, then 16 bytes of two codes
>>> float(cbquant.dequant(blocks, "iq4_nl")[0])
-104.0

`cbquant.formats()` lists the formats, `cbquant.open(path)` maps a GGUF file, `cbquant.reference` is the same decoder
in NumPy, `cbquant.testing` has reference vectors for your own kernels, and ``python -m cbquant`` is the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from cbquant import _core  # noqa: F401
except ImportError as error:
    # "Partially initialized module" helps nobody: as a rule this is a checkout that hides the installed package.
    message = (
        f"the compiled part of cbquant is not in {__path__[0]}: run Python from outside of the sources, "
        "or build it there with: pip install -e ."
    )
    raise ImportError(f"{message} ({error})") from None

from cbquant._api import dequant, info, set_num_threads, validate
from cbquant._formats import Format, formats

if TYPE_CHECKING:
    from cbquant import convert, cuda, deepseek, e2m1, e2m3, e3m2, e8m0, fp8, mxint8, planes, reference, testing
    from cbquant._compare import compare
    from cbquant._products import matmul, moe_matmul
    from cbquant._quantize import quantize
    from cbquant._rope import unpermute_rope
    from cbquant.files import open
    from cbquant.tensor import QuantTensor

__version__ = "0.1.0"

__all__ = [
    "Format",
    "QuantTensor",
    "compare",
    "convert",
    "cuda",
    "deepseek",
    "dequant",
    "e2m1",
    "e2m3",
    "e3m2",
    "e8m0",
    "formats",
    "fp8",
    "info",
    "matmul",
    "moe_matmul",
    "mxint8",
    "open",
    "planes",
    "quantize",
    "reference",
    "set_num_threads",
    "testing",
    "unpermute_rope",
    "validate",
]

# Loaded at their first use, so that importing cbquant stays quick.
_LAZY = {
    "QuantTensor": ("cbquant.tensor", "QuantTensor"),
    "compare": ("cbquant._compare", "compare"),
    "matmul": ("cbquant._products", "matmul"),
    "moe_matmul": ("cbquant._products", "moe_matmul"),
    "open": ("cbquant.files", "open"),
    "quantize": ("cbquant._quantize", "quantize"),
    "unpermute_rope": ("cbquant._rope", "unpermute_rope"),
    "convert": ("cbquant.convert", None),
    "cuda": ("cbquant.cuda", None),
    "deepseek": ("cbquant.deepseek", None),
    **{name: (f"cbquant.{name}", None) for name in ("e2m1", "e2m3", "e3m2", "e8m0", "fp8", "mxint8", "planes")},
    "reference": ("cbquant.reference", None),
    "testing": ("cbquant.testing", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cbquant' has no attribute {name!r}")
    import importlib

    module, attribute = _LAZY[name]
    loaded = importlib.import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
