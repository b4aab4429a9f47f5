"""A report as tables of text: one for each group of a section, a row for each format."""

from __future__ import annotations

from benchmarks.groups import Mark, Section, group_tables, plain
from benchmarks.report import Report
from benchmarks.tables import Table

SECTIONS = {
    "A": Section(
        "Planes to float32",
        "Parts of the fastest fill of the same memory with as many threads, where that memory also delivers the codes.",
    ),
    "B": Section("Planes to 16-bit floats", "Likewise."),
    "C": Section(
        "Codecs", "Times the speed of others. (e8m0 encodes by a rule; ml_dtypes only converts: not judged.)", 1
    ),
    "D": Section(
        "Planes next to others",
        "Times the speed of bitsandbytes' dequantize_4bit, and of torch's conversion of the codes without scales. "
        "*fill* is the figure of filling used memory of that size: there is not much more to have.",
        1,
    ),
    "E": Section(
        "Products",
        "Times the speed of the product with GGUF blocks as wide (mxfp4, nvfp4, also for nf4 and fp4; q6_k for packed "
        "codes, q8_0 for bytes) in the same precision, and of NumPy's sgemm with float32 weights.",
    ),
    "F": Section("Encoding", "Times the speed of NumPy with ml_dtypes, one thread.", 1),
    "G": Section("Encoding, speed", "Millions of elements a second.", 0),
}


def all_tables(report: Report, mark: Mark = plain) -> list[Table]:
    """The tables of all sections."""
    return group_tables(report, SECTIONS, mark)
