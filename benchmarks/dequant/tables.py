"""A report as tables of text: a row for each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.report import Report, Row, by_format, held, promised, variants
from benchmarks.tables import FORMAT, HELD, Table, numbers
from benchmarks.words import size_word, threads_word
from cbquant.cli.output import Column


def all_tables(report: Report) -> list[Table]:
    """The tables of the sections that have rows."""
    return [_BUILDERS[letter](report, rows) for letter, rows in report["sections"].items() if rows]


def _speed(row: Row, seconds: float) -> str:
    return f"{row['output_bytes'] / seconds / 1e9:.1f}"


def _ceiling(row: Row) -> list[str]:
    """The speed of the fastest fill, and which it was."""
    return [_speed(row, row["ceiling_seconds"][row["ceiling"]]), row["ceiling"]]


def _into_used_memory(title: str, rows: list[Row]) -> Table:
    columns = [FORMAT]
    for variant in variants(rows):
        columns += [*numbers(f"{variant}: GB/s", "ceiling"), Column("by"), *numbers("of it", "of scaled")]
    body = []
    for name, own in by_format(rows).items():
        cells = []
        for row in own.values():
            fractions = [f"{row['of_ceiling']:.2f}", f"{row['of_scaled_ceiling']:.2f}"]
            cells += [_speed(row, row["seconds"]), *_ceiling(row), *fractions]
        body.append([name, *cells, held(own.values())])
    note = (
        "GB/s of output. The ceiling is the fastest fill of the same memory with as many threads. The scaled one\n"
        "leaves room for reading the blocks; it counts where they come from memory "
        f"(here: {'yes' if rows[0]['blocks_from_memory'] else 'no, the size of the last cache is unknown'}).\n"
        f"Target, with 2 threads or more: {promised(rows) or 'not measured'}."
    )
    return Table(title, note, [*columns, HELD], body)


def _used_memory(report: Report, rows: list[Row]) -> Table:
    size = size_word(rows[0]["output_bytes"])
    return _into_used_memory(f"A. float32 into {size} of memory used before", rows)


def _used_memory_16bit(report: Report, rows: list[Row]) -> Table:
    size, threads = size_word(rows[0]["output_bytes"]), threads_word(rows[0]["threads"])
    return _into_used_memory(f"E. 16-bit floats into {size} of memory used before, {threads}", rows)


def _cache(report: Report, rows: list[Row]) -> Table:
    in_use: str = report["machine"]["kernels"]
    columns = [FORMAT, *numbers("GB/s", "ceiling"), Column("by"), *numbers(*variants(rows), "target")]
    body = []
    for name, own in by_format(rows).items():
        row = own[in_use]
        fractions = [f"{each['figure']:.2f}" for each in own.values()]
        speeds = [_speed(row, row["seconds"]), *_ceiling(row)]
        body.append([name, *speeds, *fractions, promised([row]), held([row])])
    calls = ", ".join(f"{name} {1e9 * seconds:.0f} ns" for name, seconds in report["call_seconds"].items())
    note = (
        "One thread. GB/s of output, and each set of kernels as a part of the ceiling, which is the fastest fill of\n"
        f"the same memory. The target is for the kernels in use: {in_use}. Times include the calls; one with next\n"
        f"to nothing to do takes: {calls}."
    )
    return Table(f"B. float32 in cache, {size_word(rows[0]['output_bytes'])}", note, [*columns, HELD], body)


def _peers(report: Report, rows: list[Row]) -> Table:
    order = variants(rows)

    def cells(own: Mapping[str, Row]) -> list[str]:
        return [f"{own[variant]['figure']:.1f}" if variant in own else "" for variant in order]

    means = {row["variant"]: row for row in rows if row["format"] is None}
    body = [[name, *cells(own), held(own.values())] for name, own in by_format(rows).items()]
    total = ["geometric mean", *cells(means), held(means.values())]
    of_means = dict.fromkeys(f"{row['peer']} {promised([row])}" for row in means.values() if row["judged"])
    note = (
        "Times as fast as other decoders (MiB and KiB of output), one thread each, on the same blocks.\n"
        f"Targets of the means: {', '.join(of_means) or 'none'}; no format slower than ggml."
    )
    return Table("C. float32 against other decoders", note, [FORMAT, *numbers(*order), HELD], body, total)


def _new_arrays(report: Report, rows: list[Row]) -> Table:
    columns = [FORMAT]
    for variant in variants(rows):
        columns += numbers(f"{variant}: ms", "empty + fill", "times")
    body = []
    for name, own in by_format(rows).items():
        cells: list[str] = []
        for row in own.values():
            cells += (f"{1e3 * row[key]:.1f}" for key in ("seconds", "fill_seconds"))
            cells.append(f"{row['figure']:.2f}")
        body.append([name, *cells, held(own.values())])
    note = (
        "Each array is freed before the next is allocated. The times are those of numpy.empty and fill with as\n"
        f"many threads. Target: {promised(rows)}."
    )
    title = f"D. float32 into a new array of {size_word(rows[0]['output_bytes'])}"
    return Table(title, note, [*columns, HELD], body)


_BUILDERS: dict[str, Callable[[Report, list[Row]], Table]] = {
    "A": _used_memory,
    "B": _cache,
    "C": _peers,
    "D": _new_arrays,
    "E": _used_memory_16bit,
}
