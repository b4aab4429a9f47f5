"""Models in several files, ``name-00001-of-00003.suffix``."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cbquant.files._info import TensorInfo
from cbquant.files._text import quoted

_SHARD_NAME = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})(?P<suffix>\.[a-z]+)", re.DOTALL)


def sibling_paths(path: Path, suffix: str) -> list[Path]:
    """The paths of all the shards of the model that `path` belongs to, there or not; its own alone if it is no shard.

    Raises
    ------
    ValueError
        Its number is none of theirs.
    """
    match = _SHARD_NAME.fullmatch(path.name)
    if match is None or match["suffix"] != suffix:
        return [path]
    total = int(match["total"])
    names = [f"{match['stem']}-{number:05d}-of-{match['total']}{suffix}" for number in range(1, total + 1)]
    if path.name not in names:
        raise ValueError(f"{path}: there is no shard {int(match['number'])} of {total}")
    return [path.with_name(name) for name in names]


def require_all(paths: Sequence[Path], opened: Path) -> None:
    """Raise FileNotFoundError for the first of `paths` that is missing; `opened` is what asks for it."""
    for path in paths:
        if not path.exists():
            reason = f"missing, one of the {len(paths)} shards that {opened} belongs to"
            raise FileNotFoundError(errno.ENOENT, reason, str(path))


def merge(parts: Iterable[dict[str, TensorInfo]]) -> dict[str, TensorInfo]:
    """The tensors of all the files; a ValueError where a name stands in two of them."""
    infos: dict[str, TensorInfo] = {}
    for part in parts:
        for name, info in part.items():
            if name in infos:
                raise ValueError(f"{info.path}: tensor {quoted(name)} stands in {infos[name].path} too")
            infos[name] = info
    return infos
