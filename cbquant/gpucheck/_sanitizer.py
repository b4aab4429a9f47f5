"""compute-sanitizer on a small run: reads and writes out of bounds, races in shared memory."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cbquant.gpucheck._items import FAILED, OK, Context, Item, NotRun, Wrong, need_gpu, read
from cbquant.gpucheck._process import run

TOOLS = ("memcheck", "racecheck")
FORMATS = ("q4_0", "q4_k", "iq2_xxs")
FINDINGS = 77  # exit code that it is told to give


def items(context: Context) -> Iterator[Item]:
    need_gpu(context)
    for index, tool in enumerate(TOOLS):
        yield Item(tool, partial(check, context, tool, len(TOOLS) - index))


def find() -> str:
    """compute-sanitizer of PATH, of CUDA_HOME or of the usual place."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    places = [None, *(str(Path(home) / "bin") for home in homes if home)]
    for place in places:
        if found := shutil.which("compute-sanitizer", path=place):
            return found
    raise NotRun("compute-sanitizer was found neither on PATH nor below CUDA_HOME")


def check(context: Context, tool: str, parts: int = 1) -> dict[str, Any]:
    """The small checks of correctness under a tool, in one of so many parts of the time that is left."""
    seconds = context.left / parts
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        command = [find(), "--tool", tool, "--error-exitcode", str(FINDINGS), sys.executable]
        command += ["-m", "cbquant.gpucheck._worker", "correctness", str(results), "--small"]
        command += ["--formats", ",".join(FORMATS), f"--until={time.time() + seconds!r}"]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            code = run(command, seconds, output)
            output.seek(0)
            text = output.read()
        if code is None:
            raise NotRun("there was not time enough for it")
        return judge(tool, code, text, read(results))


def judge(tool: str, code: int, output: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Findings are an error; a tool that does not start on this machine is none."""
    if code == FINDINGS:
        told = [line for line in output.splitlines() if line.startswith("=========")]
        raise Wrong(f"{tool}: {' | '.join(line.strip('= ') for line in told[:12])}")
    if wrong := [line for line in lines if line["state"] == FAILED]:
        raise Wrong(f"{tool}: {wrong[0]['item']}: {wrong[0]['text']}")
    done = sum(line["state"] == OK for line in lines)
    if code or not done:
        raise NotRun(f"{tool} does not start here (code {code}): {output.strip()[-300:]}")
    return {"items": done}
