"""What ptxas made of kernels: the resources that they take, and counts of instructions."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Usage(NamedTuple):
    """Of one kernel. Bytes are those of a thread (stack) and of a CTA (shared); the others count instructions."""

    registers: int
    stack: int  # spilled registers are in there
    shared: int  # without what the launch adds
    local: int  # loads and stores of the stack
    loads: int  # of 16 bytes from global memory
    stores: int  # of 16 bytes to global memory
    copies: int  # of 16 bytes, or in bulk, from global to shared memory
    tensor: int  # products on tensor cores
    instructions: int
    loop: int  # those of the loop with the fewest of them for each product on tensor cores
    loop_tensor: int  # and such products in there


#: Patterns of mnemonics.
COUNTED = {
    "local": r"(LDL|STL)\b",
    "loads": r"LDG\..*\b128\b",
    "stores": r"STG\..*\b128\b",
    "copies": r"LDGSTS\..*\b128\b|UBLKCP\b",
    "tensor": r"[A-Z]*MMA\b",
}


def find_tool(name: str) -> str | None:
    """A program of the CUDA toolkit: on PATH, below CUDA_HOME, or of PyPI's nvidia-cuda-NAME."""
    folders = [Path(os.environ["CUDA_HOME"]) / "bin"] if "CUDA_HOME" in os.environ else []
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels and wheels.submodule_search_locations) or []:
        folders += sorted(Path(folder).glob("cu*/bin"), reverse=True)
    found = shutil.which(name)
    return found or next(filter(None, (shutil.which(name, path=str(folder)) for folder in folders)), None)


def why_not() -> str | None:
    """Why machine code cannot be looked at; None where it can."""
    missing = [name for name in ("cuobjdump", "nvdisasm") if find_tool(name) is None]
    return f"{' and '.join(missing)} not found: machine code is not looked at" if missing else None


def usage(cubin: Path) -> dict[str, Usage]:
    """All kernels of a file."""
    resources = dict(_resources(_run("cuobjdump", "-res-usage", str(cubin))))
    bodies = dict(_bodies(_run("nvdisasm", "-c", str(cubin))))
    if resources.keys() != bodies.keys():
        raise ValueError(f"{cubin}: cuobjdump and nvdisasm list different kernels: {resources.keys() ^ bodies.keys()}")
    return {name: Usage(*resources[name], *_count(bodies[name])) for name in sorted(resources)}


def _resources(text: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for name, line in re.findall(r"Function (\w+):\s*\n(.*)", text):
        numbers = {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", line)}
        yield name, (numbers["REG"], numbers["STACK"], numbers["SHARED"])


class Body(NamedTuple):
    """A kernel's instructions, and the places of its labels."""

    instructions: list[str]
    labels: dict[str, int]


def _bodies(text: str) -> Iterator[tuple[str, Body]]:
    for part in re.split(r"\.section\s+\.text\.", text)[1:]:
        body = Body([], {})
        for line in part.splitlines():
            if label := re.match(r"(\.L_x_\d+):", line):
                body.labels[label[1]] = len(body.instructions)
            if instruction := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line):
                body.instructions.append(instruction[1])
        yield part.partition(",")[0], body


def _mnemonic(instruction: str) -> str:
    return re.sub(r"^@\S+\s+", "", instruction).split()[0]


def _count(body: Body) -> list[int]:
    words = [_mnemonic(instruction) for instruction in body.instructions]
    counts = [sum(bool(re.match(pattern, word)) for word in words) for pattern in COUNTED.values()]
    loops = [_products(words[begin : end + 1]) for begin, end in _loops(body)]
    size, tensor = min((loop for loop in loops if loop[1]), key=lambda loop: loop[0] / loop[1], default=(0, 0))
    length = sum(word != "NOP" for word in words)
    return [*counts, length, size, tensor]


def _products(words: list[str]) -> tuple[int, int]:
    return len(words), sum(bool(re.match(COUNTED["tensor"], word)) for word in words)


def _loops(body: Body) -> list[tuple[int, int]]:
    """From a label that a branch goes back to, to that branch."""
    branches = [(i, re.search(r"\bBRA\b.*`\((\.L_x_\d+)\)", text)) for i, text in enumerate(body.instructions)]
    return [(body.labels[m[1]], i) for i, m in branches if m and body.labels.get(m[1], i) < i]


def _run(tool: str, *arguments: str) -> str:
    path = find_tool(tool)
    if path is None:
        raise FileNotFoundError(f"{tool} not found")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{tool} {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout
