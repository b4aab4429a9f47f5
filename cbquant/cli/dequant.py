"""Decode tensors into .npy files or one .npz file.

OUT decides what is written: OUT.npz is one uncompressed archive, OUT.npy one
array, any other name a folder with a .npy file for each tensor. In the names of
files and arrays, letters, digits and . _ + - of a tensor's name stay and the
rest becomes %XX, as does the dot of a .npy at the end: no name leads out of the
folder. A file appears under its name when it is whole; one that exists is left
alone without --force.

Tensors are decoded a slice at a time, so they may be larger than memory.
Integer tensors keep their own type.
"""

from __future__ import annotations

import argparse
import math
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant import _arguments, _formats
from cbquant._unknown import is_unknown
from cbquant.cli.arguments import CommandError, add_scales, add_threads, block_format, file_path, opened, shape
from cbquant.cli.output import note, print_json, printable
from cbquant.cli.progress import Advance, progress
from cbquant.cli.tensors import choose, decode, decode_planes, obstacle, raw_bytes, slices
from cbquant.cli.writers import (
    MAX_MEMBER_NAME,
    Array,
    check_length,
    key,
    refuse_overwriting,
    write_npy,
    write_npz,
)
from cbquant.files import File, TensorInfo
from cbquant.files._file import map_file
from cbquant.files._plain import format_of, whole_number_dtype
from cbquant.planes._tensor import PlanesTensor

#: Of a name that is too long this many characters are shown.
_SHOWN_NAME = 300


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="a GGUF or safetensors file")
    parser.add_argument("names", metavar="TENSOR", nargs="*", help="names or shell patterns of tensors (default: all)")
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=file_path, required=True, help="OUT.npz, OUT.npy or a folder"
    )
    parser.add_argument(
        "--dtype",
        choices=_arguments.DTYPES,
        default="float32",
        help="type of the values (default: float32). float16: values past its range become infinities. "
        "bfloat16: stored as uint16 bit patterns, for NumPy has no such type; "
        "array.view(ml_dtypes.bfloat16) reads them",
    )
    add_threads(parser)
    parser.add_argument("--force", action="store_true", help="overwrite files")
    parser.add_argument("--skip-unknown", action="store_true", help="leave out tensors that cannot be decoded")
    add_scales(parser)
    raw = parser.add_argument_group("blocks without a GGUF file around them")
    raw.add_argument("--raw", metavar="BLOCKS", type=file_path, help="a file of blocks alone, in place of FILE")
    raw.add_argument("--format", type=block_format, metavar="NAME", help="their format")
    raw.add_argument("--shape", type=shape, metavar="N,K", help="shape of the array (default: one dimension)")


def run(args: argparse.Namespace) -> int:
    """Decode, write, and say what was written."""
    _check_usage(args)
    if args.raw is not None:
        return _write([_raw_array(args)], args)
    with opened(args.file, args) as file:
        return _write(_file_arrays(file, args), args)


def _check_usage(args: argparse.Namespace) -> None:
    if args.raw is not None:
        if args.file is not None:
            raise CommandError(f"--raw takes the place of FILE, got {args.file!r} too")
        if args.format is None:
            raise CommandError("--raw needs --format: the name of the format of the blocks")
    elif args.file is None:
        raise CommandError("expected FILE, or --raw BLOCKS --format NAME")
    elif args.format is not None or args.shape is not None:
        raise CommandError("--format and --shape belong to --raw: a GGUF file states its own")


def _raw_array(args: argparse.Namespace) -> Array:
    # Before it is opened: a pipe's open waits for someone to write to it.
    if not stat.S_ISREG(args.raw.stat().st_mode):
        raise CommandError(f"{args.raw}: expected a regular file; a pipe, a device or a folder cannot be mapped")
    fmt, raw = args.format, map_file(args.raw)
    if raw.size % fmt.bytes:
        size = f"{raw.size} bytes are not a multiple of {fmt.bytes}"
        raise CommandError(f"{args.raw}: {size} (one block of {fmt.name})")
    elements = raw.size // fmt.bytes * fmt.elements
    dims = _arguments.check_shape(fmt, args.shape or (elements,), raw.size, str(args.raw))
    return _array(args.raw.stem, raw, fmt, dims, args)


def _file_arrays(file: File, args: argparse.Namespace) -> list[Array]:
    tensors = choose(file, args.names)
    for tensor in filter(_is_unknown, tensors):
        what = f"tensor {tensor.name!r}{obstacle(file, tensor)}"
        if not args.skip_unknown:
            raise CommandError(f"{file.path}: {what} (--skip-unknown leaves such tensors out)")
        note(f"left out: {what}")
    return [_file_array(file, tensor, args) for tensor in tensors if not _is_unknown(tensor)]


def _is_unknown(tensor: TensorInfo) -> bool:
    return is_unknown(tensor.format)


def _file_array(file: File, tensor: TensorInfo, args: argparse.Namespace) -> Array:
    found = file[tensor.name]
    if isinstance(found, PlanesTensor):
        dtype = np.dtype(np.uint16 if args.dtype == "bfloat16" else args.dtype)
        pieces = partial(decode_planes, found, args.dtype, args.threads)
        return Array(tensor.name, tensor.format, tensor.shape, dtype, pieces)
    raw = raw_bytes(file, tensor.name)
    return _array(tensor.name, raw, format_of(tensor.format), tensor.shape, args)


def _array(
    name: str, raw: NDArray[np.uint8], fmt: _formats.Format, dims: tuple[int, ...], args: argparse.Namespace
) -> Array:
    own = whole_number_dtype(fmt.name)
    if own is not None:
        return Array(name, fmt.name, dims, own, lambda: (piece.view(own) for piece in slices(raw, fmt)))
    dtype = np.dtype(np.uint16 if args.dtype == "bfloat16" else args.dtype)
    return Array(name, fmt.name, dims, dtype, partial(decode, raw, fmt, args.dtype, args.threads))


def _write(arrays: Sequence[Array], args: argparse.Namespace) -> int:
    output: Path = args.output
    paths = _paths(output, arrays)
    refuse_overwriting(paths, args.force)
    nbytes = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
    begin = time.perf_counter()
    with progress("decoding", nbytes) as advance:
        counted = [array._replace(pieces=partial(_counted, array, advance)) for array in arrays]
        if output.suffix == ".npz":
            write_npz(output, counted)
        else:
            for path, array in zip(paths, counted, strict=True):
                write_npy(path, array)
    _print(arrays, paths, nbytes, time.perf_counter() - begin, args)
    return 0


def _paths(output: Path, arrays: Sequence[Array]) -> list[Path]:
    """The file that each array goes to; the folder for them is made."""
    _check_names(output, arrays)
    if output.suffix not in (".npz", ".npy"):
        output.mkdir(parents=True, exist_ok=True)
        return [output / f"{key(array.name)}.npy" for array in arrays]
    if output.suffix == ".npy" and len(arrays) != 1:
        what = f"a .npy file holds one array, not {len(arrays)}"
        raise CommandError(f"{output}: {what}: name OUT.npz or a folder")
    if not output.parent.is_dir():
        raise CommandError(f"{output.parent}: no such folder")
    return [output] * len(arrays)


def _check_names(output: Path, arrays: Sequence[Array]) -> None:
    """Find names that are too long now, not when others are written already."""
    check_length(output.name, str(output))
    for array in arrays:
        member, what = f"{key(array.name)}.npy", f"tensor {array.name[:_SHOWN_NAME]!r}"
        if output.suffix == ".npz":
            check_length(member, f"{what} in {output}", MAX_MEMBER_NAME)
        elif output.suffix != ".npy":
            check_length(member, f"the file of {what}")


def _counted(array: Array, advance: Advance) -> Iterator[NDArray[Any]]:
    pieces: Iterable[NDArray[Any]] = array.pieces()
    for piece in pieces:
        yield piece
        advance(piece.nbytes, array.name)


def _print(
    arrays: Sequence[Array], paths: Sequence[Path], nbytes: int, seconds: float, args: argparse.Namespace
) -> None:
    if args.dtype == "bfloat16":
        note("bfloat16 is stored as uint16 bit patterns: array.view(ml_dtypes.bfloat16) reads them")
    if not args.json:
        tensors = "1 tensor" if len(arrays) == 1 else f"{len(arrays):,} tensors"
        print(printable(f"{args.output}: {tensors}, {nbytes:,} bytes of {args.dtype}, in {seconds:.1f} s"))
        return
    in_archive = args.output.suffix == ".npz"
    written = [
        {
            "name": array.name,
            "format": array.format,
            "shape": array.shape,
            "dtype": array.dtype.name,
            "path": path,
            "key": key(array.name) if in_archive else None,
        }
        for array, path in zip(arrays, paths, strict=True)
    ]
    report = {"output": args.output, "dtype": args.dtype, "bytes": nbytes, "seconds": seconds}
    print_json({**report, "tensors": written})
