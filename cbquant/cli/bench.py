"""Measure how fast this machine decodes each format and how fast it fills memory.

Random blocks are decoded to float32, again and again into the same memory; the
median of several runs counts. The fill (memset, with as many threads) is
measured in the same way, on the same memory; threads that would have less than
1 MiB to fill are left out. Nothing else should be running.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant._formats import Format
from cbquant.cli.arguments import CommandError, add_threads, block_formats, positive
from cbquant.cli.output import Column, print_json, print_table
from cbquant.cli.progress import progress

_RUNS = 9

#: Handing less than this (bytes) to a thread of Python's takes longer than to fill it.
_FILL_PART = 1 << 20

_COLUMNS = (
    Column("format"),
    Column("bits/weight", right=True),
    Column("G elements/s", right=True),
    Column("GB/s of output", right=True),
    Column("% of fill", right=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--formats",
        nargs="+",
        type=block_formats,
        metavar="NAME",
        help="formats, by name (default: all block formats)",
    )
    parser.add_argument("--mib", type=positive, default=64, metavar="N", help="MiB of output (default: 64)")
    add_threads(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    named = [fmt for word in args.formats or [] for fmt in word]
    chosen = named or [f for f in cbquant.formats() if f.kind != "plain"]
    info = cbquant.info()
    threads = args.threads or info["threads"]
    out = _memory(args.mib)
    fill_threads = max(1, min(threads, out.nbytes // _FILL_PART))
    fill = out.nbytes / _fill_seconds(out, fill_threads)
    results = []
    with progress("measuring", len(chosen)) as advance:
        for fmt in chosen:
            results.append(_measure(fmt, out, threads, fill))
            advance(1, fmt.name)
    report = {"isa": info["isa"], "threads": threads, "runs": _RUNS}
    report |= {"fill_bytes_per_second": fill, "fill_threads": fill_threads}
    if args.json:
        print_json({**report, "results": results})
    else:
        _print(report, results, out.nbytes)
    return 0


def _memory(mib: int) -> NDArray[np.float32]:
    try:
        return np.zeros((mib << 20) // 4, np.float32)
    except (MemoryError, ValueError):  # more than there is, more than NumPy can count
        raise CommandError(f"argument --mib: {mib:,} MiB are more than there is memory for") from None


def _median_seconds(call: Callable[[], object]) -> float:
    call()  # touches the memory and wakes the threads
    times = []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _fill_seconds(out: NDArray[np.float32], threads: int) -> float:
    """memset: the C library's own choice of stores; ctypes lets go of the GIL meanwhile."""
    if threads == 1:
        return _median_seconds(lambda: _set(out))
    parts = np.array_split(out, threads)
    with ThreadPoolExecutor(threads) as pool:
        return _median_seconds(lambda: list(pool.map(_set, parts)))


def _set(part: NDArray[np.float32]) -> None:
    ctypes.memset(part.ctypes.data, 1, part.nbytes)  # some machines have a short cut for zeros


def _measure(fmt: Format, out: NDArray[np.float32], threads: int, fill: float) -> dict[str, Any]:
    blocks = max(1, out.size // fmt.elements)
    raw = np.random.default_rng(0).integers(0, 256, blocks * fmt.bytes, np.uint8)
    values = out[: blocks * fmt.elements]
    seconds = _median_seconds(lambda: cbquant.dequant(raw, fmt.name, out=values, threads=threads))
    return {
        "format": fmt.name,
        "bits_per_weight": fmt.bits_per_weight,
        "elements": values.size,
        "seconds": seconds,
        "elements_per_second": values.size / seconds,
        "output_bytes_per_second": values.nbytes / seconds,
        "of_fill": values.nbytes / seconds / fill,
    }


def _print(report: dict[str, Any], results: list[dict[str, Any]], nbytes: int) -> None:
    how = f"{report['threads']} threads, {report['isa']}, median of {_RUNS} runs"
    fill = f"{report['fill_bytes_per_second'] / 1e9:.1f} GB/s"
    if report["fill_threads"] != report["threads"]:
        fill += f" with {report['fill_threads']} of the threads"
    print(f"{nbytes >> 20} MiB of float32, {how}; fill: {fill}")
    rows = [
        (
            r["format"],
            f"{r['bits_per_weight']:.4g}",
            f"{r['elements_per_second'] / 1e9:.2f}",
            f"{r['output_bytes_per_second'] / 1e9:.1f}",
            f"{100 * r['of_fill']:.0f}",
        )
        for r in results
    ]
    print_table(_COLUMNS, rows)
