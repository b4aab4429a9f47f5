"""What `make lint` looks at: ruff, mypy, codespell, and a few rules of this project that no tool knows.

    python tools/lint.py [--own]

Prints ``file:line: what`` for each finding and exits with 1 where there is one. Nothing is rewritten. With
--own only the project's rules are looked at, which needs nothing installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

C_FOLDERS = ("csrc", "cuda", "tests")
C_SUFFIXES = (".c", ".h", ".cpp", ".cu", ".cuh")
PYTHON_FOLDERS = ("cbquant", "csrc", "cuda", "tests", "tools", "examples", "benchmarks")
MAX_COLUMNS, MAX_LINES = 150, 400

#: What may include what: a file of csrc only includes files of its own layer and of those before it.
LAYERS = (
    ("base", "status", "view", "array", "threads", "cores", "cpu"),
    ("tables",),
    ("word",),
    ("dot",),
    ("formats", "cbq_format_list"),  # the generated list includes every header of formats
    ("kernels",),
    ("lanes", "encode", "codecs", "operators", "attention", "planes", "cbq_encoder_list", "cbq_improver_list"),
    ("isa", "registry", "dispatch"),
    ("ops",),
    ("bind",),
)
#: The layer of cuda/, which stands beside isa/.
CUDA_LAYER = 7

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
# A library must not end the process of its caller, nor print.
FORBIDDEN_CALL = re.compile(r"\b(assert|abort|_?exit|v?f?printf|puts|fputs|perror)\s*\(")
# In two pieces, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def layer_of(name: str) -> int | None:
    """The layer of a path below csrc: ``kernels/decoder.h`` or ``status.c``."""
    stem = name.partition("/")[0].partition(".")[0]
    return next((layer for layer, members in enumerate(LAYERS) if stem in members), None)


def c_findings(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and findings of one C or CUDA file; `name` is its path below the repository."""
    is_table = name.startswith("csrc/tables/")
    lines = text.splitlines()
    yield from unfinished(text)
    if len(lines) > MAX_LINES and not is_table:
        yield len(lines), f"{len(lines)} lines, at most {MAX_LINES}"
    in_macro = False
    for number, line in enumerate(lines, 1):
        in_macro = in_macro or line.lstrip().startswith("#define")
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
        if len(line) > MAX_COLUMNS and not in_macro and not is_table:
            yield number, f"{len(line)} columns, at most {MAX_COLUMNS}"
        in_macro = in_macro and line.endswith("\\")
    if name.startswith(("csrc/", "cuda/")):
        yield from include_findings(name, text)
        code = STRING.sub('""', COMMENT.sub(lambda match: "\n" * match.group().count("\n"), text))
        for match in FORBIDDEN_CALL.finditer(code):
            yield line_of(code, match.start()), f"{match[1]}(): errors are a status (status.h)"


def include_findings(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Includes that point the wrong way."""
    folder, _, below = name.partition("/")
    own = layer_of(below) if folder == "csrc" else CUDA_LAYER
    if own is None:
        yield 1, f"{below.partition('/')[0]} is in no layer of tools/lint.py"
        return
    for match in INCLUDE.finditer(text):
        number, quoted, system = line_of(text, match.start(1 if match[1] else 2)), match[1], match[2]
        if system:
            if system.startswith(("Python.h", "numpy/")) and not below.startswith(("bind/", "host/")):
                yield number, f"<{system}>: only csrc/bind and cuda/host know Python"
            continue
        target = resolve(name, quoted)
        if folder == "cuda" and target.startswith("cuda/"):
            continue
        layer = layer_of(target.removeprefix("csrc/"))
        if layer is None:
            yield number, f'"{quoted}" is no file of csrc'
        elif layer > own:
            yield number, f'"{quoted}" belongs to a later layer: includes point from bind to base.h'


def resolve(name: str, quoted: str) -> str:
    """The path below the repository of an include; those of the generated list and of csrc need no folder."""
    folders = [(ROOT / name).parent]
    if name.startswith("cuda/"):
        folders.append(ROOT / "cuda" / "device")
    for folder in folders:
        if (folder / quoted).exists():
            return (folder / quoted).resolve().relative_to(ROOT).as_posix()
    return f"csrc/{quoted}"


def python_findings(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and findings of one Python file: what ruff does not look at."""
    yield from unfinished(text)
    count = len(text.splitlines())
    if count > MAX_LINES:
        yield count, f"{count} lines, at most {MAX_LINES}"


def unfinished(text: str) -> Iterator[tuple[int, str]]:
    for match in UNFINISHED.finditer(text):
        yield line_of(text, match.start()), f"{match[1]}: finish it, or open an issue"


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def files(folders: Sequence[str], suffixes: Sequence[str]) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes)


def own_findings() -> list[str]:
    """The findings of this file's own rules."""
    found = []
    for path in files(C_FOLDERS, C_SUFFIXES):
        name = path.relative_to(ROOT).as_posix()
        found += [f"{name}:{line}: {what}" for line, what in c_findings(name, path.read_text())]
    for path in [*files(PYTHON_FOLDERS, (".py", ".pyi")), ROOT / "setup.py"]:
        name = path.relative_to(ROOT).as_posix()
        found += [f"{name}:{line}: {what}" for line, what in python_findings(path.read_text())]
    return found


def tools() -> dict[str, list[str]]:
    """The commands of other people's tools, by the name that is printed."""
    present = [folder for folder in (*PYTHON_FOLDERS, "docs") if (ROOT / folder).is_dir()]
    texts = sorted(path.name for path in (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"))
    python = [folder for folder in PYTHON_FOLDERS if folder in present]
    return {
        "ruff check": ["ruff", "check", "-q", "--output-format=concise", *python, "setup.py"],
        "ruff format": ["ruff", "format", "-q", "--check", *python, "setup.py"],
        "mypy": ["mypy", "cbquant"],
        "codespell": ["codespell_lib", *present, *texts, "setup.py"],
    }


def main(arguments: Sequence[str]) -> int:
    """Run it all, or with ``--own`` the rules of this file; the exit code."""
    failed = []
    for name, command in ({} if "--own" in arguments else tools()).items():
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False)
        if done.returncode:
            failed.append(name)
    findings = own_findings()
    print("\n".join(findings), end="\n" if findings else "")
    if findings:
        failed.append(f"{len(findings)} findings of tools/lint.py")
    print(f"lint: {', '.join(failed)}" if failed else "lint: all well", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
