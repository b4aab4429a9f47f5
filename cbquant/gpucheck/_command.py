"""All sections, with a report of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from cbquant.cli.output import note
from cbquant.gpucheck import _report, _sections
from cbquant.gpucheck._items import FAILED, NOT_RUN
from cbquant.gpucheck._probe import Gpu
from cbquant.gpucheck._sections import SECTIONS, Outcome

#: Seconds for the report.
REPORT = 5.0


def check(gpu: Gpu, out: str | None, seconds: float, only: Sequence[str]) -> _report.Report:
    """Run sections (all, where none is named), and write the report to the folder `out`, if there is one."""
    begin = time.time()
    with ExitStack() as stack:
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        prepare(folder)
        outcomes = _sections.run_all(folder, seconds - REPORT - _sections.GRACE, only, tell)
        report = _report.make(gpu, outcomes, time.time() - begin)
        if out:
            for path in _report.write(report, folder):
                note(f"wrote {path}")
    return report


def prepare(folder: Path) -> None:
    """An empty place for results: those of another run would count as done."""
    folder.mkdir(parents=True, exist_ok=True)
    for section in SECTIONS:
        for suffix in (".jsonl", ".log"):
            (folder / f"{section.name}{suffix}").unlink(missing_ok=True)


def tell(outcome: Outcome) -> None:
    """A line on stderr for each section, as soon as it is over."""
    counts = f"{len(outcome.lines)} items, {outcome.count(FAILED)} failed, {outcome.count(NOT_RUN)} not run"
    note(f"{outcome.section.name}: {counts}, {outcome.seconds:.0f} s")
