"""Where a conversion may write: nothing is replaced but an old model file, and never what is being read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cbquant.convert._partial import check_replaceable, side_paths


def check_destination(dst: Path, sources: Iterable[Path], imatrix: Path | None, overwrite: bool) -> None:
    """Raise where `dst`, or a file that will stand beside it, is one that is read, or is not to be replaced."""
    read = [(path, "a file of the source") for path in sources]
    if imatrix is not None and imatrix.exists():
        read.append((imatrix, "the importance matrix"))
    for path in (dst, *side_paths(dst)):
        for other, what in read:
            if path.exists() and path.samefile(other):
                written = f"{dst}" if path == dst else f"{path}, which is written beside {dst.name},"
                raise ValueError(f"dst: {written} is {what}")
        if path != dst and os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
            raise ValueError(f"dst: {path}, which is written beside {dst.name}, is no regular file")
    check_replaceable(dst, overwrite)
    if not dst.parent.is_dir():
        raise FileNotFoundError(f"dst: {dst.parent} is no folder")
