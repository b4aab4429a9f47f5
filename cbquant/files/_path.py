"""Paths as arguments, and in errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def as_path(name: str, value: Any) -> Path:
    """The argument `name` as a path."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise TypeError(f"{name}: expected a path, str or os.PathLike, got {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{name}: expected a path, got one with a NUL character: {text!r}")
    if not text:  # to Path this is the current folder
        raise ValueError(f"{name}: expected a path, got an empty string")
    return Path(text)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of calls on an open file (a full disk, a file that may not grow) tell its name."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise
