"""`quantize_file`: whole files, a piece of a tensor at a time."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant._arguments import check_threads
from cbquant.convert._destination import check_destination
from cbquant.convert._gguf import Head, check_writable, load_gguf, make_head
from cbquant.convert._partial import Partial
from cbquant.convert._pieces import Options, make_pieces
from cbquant.convert._plan import Plan, as_imatrix, make_plan, warn_of_zeros
from cbquant.convert._report import Report, TensorReport
from cbquant.convert._rules import parse_map, target_format
from cbquant.convert._work import EncodingError, Piece, checked_result, encode, try_encoder
from cbquant.convert.imatrix import Imatrix
from cbquant.files import File, Metadata
from cbquant.files import open as open_file
from cbquant.files._path import as_path
from cbquant.files._text import quoted
from cbquant.files.conventions._recipe import Tile

#: Called with the bytes of the source that are done, those that there are to do, and the name of the tensor.
Progress = Callable[[int, int, str], object]

#: Elements of a piece: 32 MiB of decoded values. It is part of what an unfinished file depends on.
PIECE_ELEMENTS = 1 << 23

#: Pieces at work or waiting, for executors that do not tell how many workers they have.
_DEFAULT_IN_FLIGHT = 32

_DEFAULT_ARCHITECTURE = "unknown"


def quantize_file(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    fmt: str,
    *,
    map: Mapping[str, str] | Iterable[str] | None = None,
    imatrix: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: bool | Progress = True,
    method: str = "reference",
    nonfinite: str = "raise",
    threads: int | None = None,
    architecture: str | None = None,
    overwrite: bool = False,
    in_flight: int | None = None,
    tile: Tile = (128, 128),
    unscaled_fp8: bool = False,
) -> Report:
    """Quantize a model file: GGUF or safetensors to GGUF.

    Tensors are decoded and encoded a piece at a time, so they may be larger than memory. The new file appears under
    its name when it is whole. Where a conversion is stopped, by whatever it is, the same call goes on from there.

    Which tensors: those of real numbers with a name that ends in ``weight`` and two dimensions or more (leading ones
    do not count), but for norms and a list of small ones, llama.cpp's, that `cbquant.convert.KEPT_NAMES` has. The
    others, and those that have the format already, are copied. Rows that are no whole blocks get another format:
    `cbquant.convert.FALLBACKS`, or f16; the report lists them.

    Parameters
    ----------
    src : str or os.PathLike
        A file that `cbquant.open` opens; sharded models become one file. Block formats, and codes beside scales, are
        decoded first.
    dst : str or os.PathLike
        The GGUF file to write.
    fmt : str
        A block format, f32, f16 or bf16.
    map : dict or list of "pattern=format", optional
        Formats for some tensors; ``"keep"`` and ``"drop"`` leave them as they are, or out. The first that matches
        counts. A pattern without ``* ? [`` is a part of a name; with them it is a shell pattern for all of it. Whole
        names and shell patterns also choose tensors that would be kept for their names.
    imatrix : path, dict or "ones", optional
        Importance of the columns: see `cbquant.convert.read_imatrix`. iq2_xxs, iq2_xs and iq1_s need it; "ones"
        makes all columns equal for these formats.
    executor : concurrent.futures.Executor, optional
        Where pieces are encoded: threads, processes, ``dask.distributed.Client.get_executor()``. Its workers read
        `src` themselves, under the same path. The bytes do not depend on it.
    progress : bool or callable
        A bar on stderr where that is a terminal; or called with the bytes done, the bytes to do and a tensor's name.
    method, nonfinite
        As for `cbquant.quantize`.
    threads : int, optional
        Threads for a piece, as for `cbquant.quantize`; the default with an executor is 1.
    architecture : str, optional
        What a file of safetensors gets as ``general.architecture``; "unknown" by default.
    overwrite : bool
        Whether `dst` may exist.
    in_flight : int, optional
        Pieces at work or waiting at a time; the default is twice the executor's workers, else 32.
    tile, unscaled_fp8
        As for `cbquant.open`.

    Returns
    -------
    Report
        Formats and sizes of all tensors, before and after; prints as a table.

    Raises
    ------
    ImportError
        The gguf library is not installed (the extra ``cbquant[convert]``).
    OSError
        A file cannot be read or written; `dst` exists; no room on the disk.
    ValueError
        Before anything is written: an unknown format or one that the gguf library cannot write, a format that needs
        an imatrix without one, a rule that fits no tensor, an imatrix that does not fit, a damaged `src`; a `dst` that
        is no regular file (a device, a FIFO), or that would be written over what is read. Later: NaN
        or infinite weights, with their place; `src` has changed meanwhile.
    TypeError
        An argument of a wrong type.
    RuntimeError
        What `executor` gave for a piece is not its bytes.

    Warns
    -----
    UserWarning
        `imatrix` is zero over whole blocks: once, with the tensors.

    Examples
    --------
    >>> import pathlib, tempfile, cbquant.convert, gguf, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     src, dst = pathlib.Path(folder, "model.gguf"), pathlib.Path(folder, "model-q8_0.gguf")
    ...     writer = gguf.GGUFWriter(src, "llama")
    ...     writer.add_tensor("output.weight", np.ones((4, 64), np.float32))
    ...     for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
    ...         write()
    ...     writer.close()
    ...     report = cbquant.convert.quantize_file(src, dst, "q8_0")
    ...     cbquant.open(dst)["output.weight"]
    QuantTensor(q8_0, shape=(4, 64), 272 bytes)
    """
    begin = time.perf_counter()
    library = load_gguf()
    src, dst = as_path("src", src), as_path("dst", dst)
    default, rules, matrix = target_format(fmt).name, parse_map(map), as_imatrix(imatrix)
    options = Options(method, nonfinite, _threads(threads, executor))
    limit = _in_flight(in_flight, executor)
    named = matrix if isinstance(matrix, Imatrix) else None
    with open_file(src, tile=tile, unscaled_fp8=unscaled_fp8) as file:
        before = _identity(file)
        check_destination(dst, {src, *file.paths}, named.path if named is not None else None, overwrite)
        plan = make_plan(file, default, rules, matrix)
        check_writable(library, plan.tensors)
        for target in dict.fromkeys(tensor.format for tensor in plan.tensors if not tensor.is_copied):
            try_encoder(target, method, nonfinite)
        head = make_head(library, file, plan.tensors, default, _architecture(file, architecture), named)
        sizes = {Path(path): size for path, _, size, _ in before}
        pieces, spans = make_pieces(plan.tensors, head.offsets, options, sizes, file._weights.recipes, PIECE_ELEMENTS)
        key = _key(before, head, pieces)
        is_warned = warn_of_zeros(plan.tensors)
        partial = Partial(dst, key, head.data, head.size, spans)
        try:
            resumed = sum(spans[number].nbytes for number in partial.finished)
            with _warned(is_warned):
                _encode_all(pieces, partial, executor, limit, progress)
            if _identity(file) != before:
                raise EncodingError(f"src: {src} was changed while it was read")
            partial.commit(overwrite)
        except EncodingError:  # another attempt would end like this one
            partial.discard()
            raise
        finally:
            partial.close()
        totals = sum(sizes.values()), head.size
        return _report(file, dst, default, plan, totals, time.perf_counter() - begin, resumed)


def _threads(threads: int | None, executor: Executor | None) -> int | None:
    check_threads(threads)
    return 1 if threads is None and executor is not None else threads


def _in_flight(in_flight: int | None, executor: Executor | None) -> int:
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError(f"executor: expected a concurrent.futures.Executor, got {type(executor).__name__}")
    if in_flight is None:
        workers = getattr(executor, "_max_workers", None)
        return 2 * workers if isinstance(workers, int) else _DEFAULT_IN_FLIGHT
    if not isinstance(in_flight, int) or isinstance(in_flight, bool):
        raise TypeError(f"in_flight: expected a whole number from 1, got {type(in_flight).__name__}")
    if in_flight < 1:
        raise ValueError(f"in_flight: expected a whole number from 1, got {in_flight}")
    return in_flight


def _architecture(file: File, architecture: str | None) -> str:
    if isinstance(file.metadata, Metadata) and architecture is not None:
        raise ValueError(f"architecture: {file.path} is a GGUF file, which has its own")
    return _DEFAULT_ARCHITECTURE if architecture is None else architecture


def _identity(file: File) -> list[tuple[str, int, int, int]]:
    """The files of the source: path, inode, size, time of the last change."""
    found = []
    for path in file.paths:
        status = path.stat()
        found.append((os.path.abspath(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _key(identity: Sequence[tuple[str, int, int, int]], head: Head, pieces: Sequence[Piece]) -> bytes:
    """A digest of all that decides the bytes of the new file."""
    digest = hashlib.sha256(repr(identity).encode("utf-8", "surrogateescape"))
    digest.update(head.data)
    for piece in pieces:
        if piece.weights is not None:
            digest.update(piece.weights.tobytes())
        decisive = piece._replace(weights=None, threads=None)
        digest.update(repr(decisive).encode("utf-8", "surrogateescape"))
    return digest.hexdigest().encode()


def _encode_all(
    pieces: Sequence[Piece],
    partial: Partial,
    executor: Executor | None,
    in_flight: int,
    progress: bool | Progress,
) -> None:
    todo = [number for number in range(len(pieces)) if number not in partial.finished]
    with _shown(progress, sum(pieces[number].nbytes for number in todo)) as advance:

        def finish(number: int, data: NDArray[np.uint8]) -> None:
            partial.write(number, data)
            advance(pieces[number].nbytes, pieces[number].name)

        if executor is None:
            for number in todo:
                finish(number, encode(pieces[number]))
        else:
            _encode_elsewhere(pieces, todo, executor, in_flight, finish)


def _encode_elsewhere(
    pieces: Sequence[Piece],
    todo: Iterable[int],
    executor: Executor,
    in_flight: int,
    finish: Callable[[int, NDArray[np.uint8]], None],
) -> None:
    pending: dict[Future[NDArray[np.uint8]], int] = {}

    def take(future: Future[NDArray[np.uint8]], number: int) -> None:
        finish(number, checked_result(pieces[number], future.result()))

    def collect() -> None:
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            take(future, pending.pop(future))

    try:
        for number in todo:
            if pieces[number].source == pieces[number].target:  # bytes need not travel to be copied
                finish(number, encode(pieces[number]))
                continue
            while len(pending) >= in_flight:
                collect()
            pending[executor.submit(encode, pieces[number])] = number
        while pending:
            collect()
    except BaseException:
        for future in pending:
            future.cancel()
        # What others have finished meanwhile is not lost: the next attempt finds it.
        for future, number in pending.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                with suppress(RuntimeError):  # no bytes either: the first error is the one to tell
                    take(future, number)
        raise


@contextmanager
def _warned(is_warned: bool) -> Iterator[None]:
    """Where it was said already that blocks have no importance, the encoder does not say it for every piece."""
    if not is_warned:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="imatrix: all weights are zero over block")
        yield


@contextmanager
def _shown(progress: bool | Progress, total: int) -> Iterator[Callable[[int, str], object]]:
    if callable(progress):
        call, done = progress, 0

        def advance(more: int, name: str) -> None:
            nonlocal done
            done += more
            call(done, total, name)

        yield advance
    elif progress:
        from cbquant.cli.progress import progress as bar

        with bar("quantizing", total) as advance_bar:
            yield advance_bar
    else:
        yield lambda more, name: None


def _report(
    file: File, dst: Path, fmt: str, plan: Plan, sizes: tuple[int, int], seconds: float, resumed: int
) -> Report:
    tensors = tuple(
        TensorReport(t.info.name, t.info.shape, t.info.format, t.format, t.wanted, t.info.nbytes, t.nbytes)
        for t in plan.tensors
    )
    told = tuple(f"{quoted(t.name)}: {file.notes[t.name]}" for t in tensors if t.name in file.notes)
    return Report(file.path, dst, fmt, tensors, tuple(plan.dropped), *sizes, seconds, resumed, told)
