"""Whole model files to GGUF in another format, with importance matrices, on as many machines as there are.

>>> import cbquant.convert
>>> cbquant.convert.FALLBACKS["q4_k"]
'q5_0'
"""

from __future__ import annotations

from cbquant.convert._quantize import quantize_file
from cbquant.convert._report import FormatReport, Report, TensorReport
from cbquant.convert._rules import FALLBACKS, KEPT_NAMES
from cbquant.convert.imatrix import Imatrix, read_imatrix

__all__ = [
    "FALLBACKS",
    "KEPT_NAMES",
    "FormatReport",
    "Imatrix",
    "Report",
    "TensorReport",
    "quantize_file",
    "read_imatrix",
]
