"""List the tensors of a model file: name, shape, format, bits a weight and bytes.

Shapes are NumPy's: the reverse of GGUF's dimensions. Any shard of a sharded
model, or its index, stands for all of it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cbquant._unknown import is_unknown
from cbquant.cli.arguments import add_scales, opened
from cbquant.cli.output import Column, print_json, print_table, printable
from cbquant.cli.tensors import choose, tell_notes
from cbquant.files import File, TensorInfo
from cbquant.files._plain import format_of

_COLUMNS = (
    Column("name"),
    Column("shape"),
    Column("format"),
    Column("bits/weight", right=True),
    Column("bytes", right=True),
)

#: Of a long metadata value this many characters, or items of an array, are shown.
_SHOWN_CHARACTERS = 100
_SHOWN_ITEMS = 6

#: Room for the value as it is shown, count included; arrays in arrays are cut.
_VALUE_WIDTH = 300


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a GGUF or safetensors file")
    parser.add_argument(
        "--tensors", metavar="GLOB", help="only tensors of this name or shell pattern, such as '*.attn_q.*'"
    )
    parser.add_argument(
        "--metadata", action="store_true", help="print the metadata too (--json gives long values in full)"
    )
    add_scales(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table, or all of it as JSON."""
    with opened(args.file, args) as file:
        tensors = choose(file, [args.tensors] if args.tensors is not None else [])
        if args.json:
            print_json(_report(file, tensors, args.metadata))
        else:
            _print(file, tensors, args.metadata)
            tell_notes(file, tensors)
    return 0


def _elements(tensors: Sequence[TensorInfo]) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors)


def _bits_per_weight(tensors: Sequence[TensorInfo]) -> float | None:
    """The mean over the tensors of known formats, the one format's own for one tensor; None without any."""
    known = [tensor for tensor in tensors if not is_unknown(tensor.format)]
    if len(known) == 1 and not known[0].parts:
        return format_of(known[0].format).bits_per_weight
    elements = _elements(known)
    return 8 * sum(tensor.nbytes for tensor in known) / elements if elements else None


def _report(file: File, tensors: Sequence[TensorInfo], with_metadata: bool) -> dict[str, Any]:
    report: dict[str, Any] = {
        "path": file.path,
        "paths": file.paths,
        "tensors": [
            {
                "name": tensor.name,
                "shape": tensor.shape,
                "format": tensor.format,
                "tag": tensor.tag,
                "bits_per_weight": _bits_per_weight([tensor]),
                "elements": _elements([tensor]),
                "bytes": tensor.nbytes,
                "offset": tensor.offset,
                "path": tensor.path,
                "parts": tensor.parts,
                "note": file.notes.get(tensor.name),
            }
            for tensor in tensors
        ],
        "total": {
            "tensors": len(tensors),
            "elements": _elements(tensors),
            "bits_per_weight": _bits_per_weight(tensors),
            "bytes": sum(tensor.nbytes for tensor in tensors),
        },
    }
    if with_metadata:
        report["metadata"] = dict(file.metadata)
    return report


def _print(file: File, tensors: Sequence[TensorInfo], with_metadata: bool) -> None:
    if with_metadata:
        pairs = [(name, _short(value)) for name, value in file.metadata.items()]
        print_table([Column("key"), Column("value", width=_VALUE_WIDTH)], pairs)
        print()

    def cells(tensors: Sequence[TensorInfo]) -> tuple[str, str]:
        bits = _bits_per_weight(tensors)
        return "" if bits is None else f"{bits:.4g}", f"{sum(tensor.nbytes for tensor in tensors):,}"

    rows = [(t.name, " x ".join(map(str, t.shape)) or "()", t.format, *cells([t])) for t in tensors]
    shards = f" in {len(file.paths)} shards" if len(file.paths) > 1 else ""
    count = f"{len(tensors):,}" if len(tensors) == len(file) else f"{len(tensors):,} of {len(file):,}"
    weights = f"{_elements(tensors):,} weights"
    print(printable(f"{file.path}: {count} tensors{shards}"))
    print_table(_COLUMNS, rows, ("total", weights, "", *cells(tensors)))


def _short(value: Any) -> str:
    """A metadata value in one line."""
    if isinstance(value, np.ndarray):
        items, total = value[:_SHOWN_ITEMS].tolist(), value.size
    elif isinstance(value, list):
        items, total = value[:_SHOWN_ITEMS], len(value)
    else:
        text = value if isinstance(value, str) else repr(value)
        shown = text[:_SHOWN_CHARACTERS]
        return text if text == shown else f"{shown}... ({len(text):,} characters)"
    shown = ", ".join(_short(i) if isinstance(i, (list, np.ndarray)) else repr(i)[:40] for i in items)
    return f"[{shown}]" if total <= _SHOWN_ITEMS else f"[{shown}, ...] ({total:,} items)"
