"""Sections one after the other, each in a process of its own that may break, hang or end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cbquant.gpucheck._items import BEGUN, FAILED, NOT_RUN, OK, Line, read, writer
from cbquant.gpucheck._process import run
from cbquant.gpucheck._worker import BROKEN

#: Seconds that the process of a section may go on after its time, and how often it is started again.
GRACE, MOST_STARTS = 10.0, 12


class Section(NamedTuple):
    """A name, what it does, the most seconds that it may take, and whether a failure of it is one of correctness."""

    name: str
    title: str
    seconds: float
    counts: bool = True


#: What is left after the others is the last one's.
SECTIONS = (
    Section("build", "the module for this GPU", 150),
    Section("ceilings", "what memory and tensor cores give", 25, counts=False),
    Section("instructions", "wrapped instructions against their formulas", 35),
    Section("correctness", "every kernel for every format", 140),
    Section("operators", "cbquant.cuda.deepseek against float64", 30),
    Section("graphs", "CUDA graphs, no allocation with out=", 25),
    Section("sanitizer", "compute-sanitizer on a small run", 60),
    Section("benchmarks", "speed", 300, counts=False),
)


@dataclass
class Outcome:
    """What became of a section."""

    section: Section
    lines: list[Line] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, state: str) -> int:
        return sum(line["state"] == state for line in self.lines)

    @property
    def state(self) -> str:
        if self.count(FAILED):
            return FAILED
        return OK if self.count(OK) else NOT_RUN

    def as_dict(self) -> dict[str, Any]:
        s = self.section
        return {"section": s.name, "title": s.title, "state": self.state, "seconds": self.seconds, "items": self.lines}


#: Starts a process: section, results file, end of its time; returns its exit code, None where it had to be stopped.
Start = Callable[[str, Path, float], "int | None"]


def run_all(folder: Path, budget: float, only: Sequence[str], tell: Callable[[Outcome], None]) -> list[Outcome]:
    """The sections, within so many seconds; without a module that works, only its build."""
    end, outcomes = time.time() + budget, []
    for section in SECTIONS:
        if only and section.name not in only:
            continue
        until = min(end, time.time() + section.seconds)
        outcome = run_section(section, folder / f"{section.name}.jsonl", until, starter(folder))
        outcomes.append(outcome)
        tell(outcome)
        if section.name == "build" and outcome.state == FAILED:
            break
    return outcomes


def run_section(section: Section, results: Path, until: float, start: Start) -> Outcome:
    """Start the section's process until it has come to its end: where an item breaks it, once more for the others."""
    begin, write = time.time(), writer(results)
    for _ in range(MOST_STARTS):
        code = start(section.name, results, until)
        open_items = [line["item"] for line in read(results) if line["state"] == BEGUN]
        for item in open_items:
            how = "it did not end in time" if code is None else f"its process ended with code {code}"
            write({"item": item, "state": FAILED, "text": how})
        if code == 0 or code is None:
            break
        if code != BROKEN and not open_items:  # it would end in the same way again
            write({"item": section.name, "state": FAILED, "text": f"the process of the section ended with code {code}"})
            break
    return Outcome(section, read(results), time.time() - begin)


def starter(folder: Path) -> Start:
    """Starts `_worker`, with what it prints in a file beside its results."""

    def start(name: str, results: Path, until: float) -> int | None:
        command = [sys.executable, "-m", "cbquant.gpucheck._worker", name, str(results), f"--until={until!r}"]
        with (folder / f"{name}.log").open("ab") as log:
            return run(command, until - time.time() + GRACE, log)

    return start
