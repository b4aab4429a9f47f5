"""Items of a section: named pieces of work, each of which ends well, is wrong, or cannot be tried here."""

from __future__ import annotations

import importlib
import json
import time
import traceback
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cbquant
from cbquant import cuda
from cbquant._formats import Format
from cbquant.cuda import _driver

OK, FAILED, NOT_RUN, BEGUN = "ok", "failed", "not run", "begun"
PLAIN_FLOATS = ("f32", "f16", "bf16")
#: What a line of a results file is: item, state, text, seconds, data.
Line = dict[str, Any]


class NotRun(Exception):
    """Why something could not be tried here."""


class Wrong(Exception):
    """A result is wrong."""


@dataclass(frozen=True)
class Item:
    """`work` returns what is to be reported; it raises NotRun, Wrong, or whatever goes wrong."""

    name: str
    work: Callable[[], dict[str, Any]]


@dataclass
class Context:
    """What sections are told."""

    until: float  # of time.time(): no item begins later
    formats: list[Format] = field(default_factory=lambda: list(cbquant.formats()))
    small: bool = False
    device: int = 0
    cache: dict[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> list[Format]:
        return [f for f in self.formats if f.kind != "plain"]

    @property
    def multiplied(self) -> list[Format]:
        """Those that products take: of plain types the floats of up to 32 bits."""
        return [f for f in self.formats if f.kind != "plain" or f.name in PLAIN_FLOATS]

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.time()


def checkout() -> Path | None:
    """The root of the sources, where the package is used in place."""
    root = Path(cbquant.__file__).resolve().parent.parent
    return root if (root / "cuda" / "build.py").exists() and (root / "tests" / "cuda").is_dir() else None


def need(module: str) -> Any:
    """A module of somebody else's; NotRun where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotRun(f"{module} cannot be imported: {error}") from None


def need_gpu(context: Context) -> None:
    """NotRun where cbquant.cuda cannot work."""
    if reason := cuda.why_unavailable():
        raise NotRun(reason)


def run(items: Iterable[Item], context: Context, write: Callable[[Line], None], done: Container[str] = ()) -> bool:
    """Do the items that are not done yet; False where the device cannot be used any more in this process."""
    for item in items:
        if item.name in done:
            continue
        if context.left <= 0:
            write({"item": item.name, "state": NOT_RUN, "text": "no time was left"})
            continue
        write({"item": item.name, "state": BEGUN})
        begin = time.perf_counter()
        line = _result(item)
        write({**line, "seconds": time.perf_counter() - begin})
        if line["state"] == FAILED and is_broken(context):
            return False
    return True


def _result(item: Item) -> Line:
    try:
        return {"item": item.name, "state": OK, "text": "", "data": item.work()}
    except NotRun as error:
        return {"item": item.name, "state": NOT_RUN, "text": str(error)}
    except Wrong as error:
        return {"item": item.name, "state": FAILED, "text": str(error)}
    except Exception as error:
        # An item that cannot go on is no reason to leave the others.
        where = traceback.format_exc(limit=-3)
        return {"item": item.name, "state": FAILED, "text": f"{type(error).__name__}: {error}", "traceback": where}


def is_broken(context: Context) -> bool:
    """Whether a kernel has left CUDA unusable: after an illegal address every call of the process fails."""
    native = _driver.load()
    if native is None:
        return False
    try:
        native.synchronize(context.device, 0)
    except cuda.CudaError:
        return True
    return False


def writer(path: Path) -> Callable[[Line], None]:
    """Appends lines to a file, each at once: what is written stays, whatever becomes of the process."""

    def write(line: Line) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    return write


def read(path: Path) -> list[Line]:
    """The last line of each item, in the order of their first ones."""
    return list({line["item"]: line for line in _lines(path)}.values())


def _lines(path: Path) -> Iterator[Line]:
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(text)
