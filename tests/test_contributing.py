"""The documents are true: the recipe for a format builds, examples run, tables and lists are the code's.

`python -m tests.test_contributing` prints README's table of formats.
"""

from __future__ import annotations

import ast
import doctest
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import cbquant
from cbquant import _core, reference
from tests.paths import ROOT, build_core

EXAMPLE = "q4_demo"
HEADER, REFERENCE = f"csrc/formats/{EXAMPLE}.h", f"cbquant/reference/formats/{EXAMPLE}.py"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# A block of code; one under a line "`path`:" is that file.
BLOCK = re.compile(r"(?:^`(?P<path>[^`\n]+)`:\n\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


def blocks(page: Path, language: str | None = None, *, files: bool = False) -> list[tuple[str, str, int]]:
    """Path (of files), code and line of the blocks of a page."""
    text = page.read_text()
    return [
        (match["path"] or "", match["code"], text.count("\n", 0, match.start("code")))
        for match in BLOCK.finditer(text)
        if bool(match["path"]) == files and language in (None, match["language"])
    ]


# --- a format has two halves ---


def missing_halves(headers: Iterable[str], references: Iterable[str]) -> list[str]:
    """What to add, where the C registry and the NumPy reference do not list the same formats."""
    have, expected = set(headers), set(references)
    lacks_reference = [
        f"{name} has no NumPy reference: add cbquant/reference/formats/{name}.py" for name in sorted(have - expected)
    ]
    lacks_header = [f"{name} has no C header: add csrc/formats/{name}.h" for name in sorted(expected - have)]
    return lacks_reference + lacks_header


def test_every_format_has_both_halves() -> None:
    missing = missing_halves((f.name for f in cbquant.formats()), reference.names())
    assert not missing, "\n".join(missing)


def test_missing_halves_name_the_file_to_add() -> None:
    assert missing_halves(["a", "b"], ["b", "a"]) == []
    assert missing_halves(["a", "b", "c"], ["b", "d"]) == [
        "a has no NumPy reference: add cbquant/reference/formats/a.py",
        "c has no NumPy reference: add cbquant/reference/formats/c.py",
        "d has no C header: add csrc/formats/d.h",
    ]


# --- the recipe for a format, followed in a copy of the sources ---


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with the two files of CONTRIBUTING.md, built."""
    root = tmp_path_factory.mktemp("copy")
    leave = shutil.ignore_patterns("*.so", "__pycache__", ".*")
    for folder in ("csrc", "cuda", "cbquant", "tests", "tools"):
        shutil.copytree(ROOT / folder, root / folder, ignore=leave)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    for path, code, _ in blocks(ROOT / "CONTRIBUTING.md", files=True):
        assert not (root / path).exists(), path
        (root / path).write_text(code)
    build_core(root / "build", flags="-O1 -w", root=root)
    (core,) = root.glob("build/lib/cbquant/_core*.so")
    shutil.copy(core, root / "cbquant" / Path(_core.__file__).name)
    return root


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a copy, whose cbquant comes before the installed one."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=root, capture_output=True, text=True, check=False, timeout=300
    )


COMPARE = f"""
import numpy as np, cbquant
print(cbquant.__file__)
rng = np.random.default_rng(1)
blocks = rng.integers(0, 256, (4096, 18), np.uint8)      # infinite and NaN scales among them
for dtype in ("float32", "float16"):
    for threads in (1, 2):
        got = cbquant.dequant(blocks, "{EXAMPLE}", dtype=dtype, threads=threads)
        expected = cbquant.reference.dequant(blocks, "{EXAMPLE}", dtype=dtype)
        cbquant.testing.assert_bits_equal(got, expected, fmt="{EXAMPLE}")
print(next(f for f in cbquant.formats() if f.name == "{EXAMPLE}"))
"""


def test_the_two_files_of_the_recipe_make_a_format(copy: Path) -> None:
    files = [path for path, _, _ in blocks(ROOT / "CONTRIBUTING.md", files=True)]
    assert files == [HEADER, REFERENCE]
    done = run(copy, "-c", COMPARE)
    assert done.returncode == 0, done.stderr
    place, listed = done.stdout.splitlines()
    assert Path(place).is_relative_to(copy)
    assert f"name='{EXAMPLE}', tag=2000, elements=32, bytes=18" in listed


def test_the_suite_takes_the_new_format_as_it_is(copy: Path) -> None:
    """Nothing else has to be touched: what the tests make of the list of formats holds for one more."""
    names = ("dequant", "api", "validate", "reference", "testing", "contributing")
    chosen = f"({EXAMPLE} or formats or validate or registry or both_halves or table)"
    chosen += " and not emulated and not docstrings"
    chosen += (
        " and not equals_ggml"  # draws emulated kernels too, whose build takes minutes; other tests compare these bytes
    )
    done = run(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *(f"tests/test_{n}.py" for n in names)
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 40


def test_a_checkout_that_is_not_built_says_so(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "cbquant", tmp_path / "cbquant", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = run(tmp_path, "-S", "-c", "import cbquant")  # -S: without an editable install, which would step in
    assert "the compiled part of cbquant is not in" in done.stderr
    assert "pip install -e ." in done.stderr


def check_of_halves(root: Path) -> tuple[int, str]:
    """The exit code and the output of the project's own check, in a copy."""
    name = test_every_format_has_both_halves.__name__
    test = f"tests/test_contributing.py::{name}"
    done = run(root, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    assert f"FAILED {test}" in done.stdout or "1 passed" in done.stdout, done.stdout + done.stderr
    return done.returncode, done.stdout


def test_half_a_format_is_found(copy: Path, tmp_path: Path) -> None:
    assert check_of_halves(copy)[0] == 0
    half = tmp_path / "half"
    shutil.copytree(copy, half, ignore=shutil.ignore_patterns("build"))
    (half / REFERENCE).unlink()
    code, output = check_of_halves(half)
    assert code == 1
    assert f"{EXAMPLE} has no NumPy reference: add {REFERENCE}" in output

    shutil.copy(copy / REFERENCE, half / REFERENCE)
    (half / HEADER).unlink()
    shutil.copy(_core.__file__, half / "cbquant")  # built without the header
    code, output = check_of_halves(half)
    assert code == 1
    assert f"{EXAMPLE} has no C header: add {HEADER}" in output


# --- examples ---


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a model file."""
    from tests.cli_files import write_model

    write_model(tmp_path / "model.gguf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_block(code: str, name: str, line: int, names: dict[str, Any]) -> None:
    """A block of statements, or of a session with ``>>>``, whose outputs must be those that are shown."""
    if not code.startswith(">>> "):
        exec(compile("\n" * line + code, name, "exec"), names)
        return
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(code, names, name, name, line)
    doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert not said, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if page.name != "CONTRIBUTING.md":  # its files belong into the sources
        for path, code, _ in blocks(page, files=True):
            (desk / path).write_text(code)
    names: dict[str, Any] = {"__name__": page.stem}
    for _, code, line in blocks(page, "python"):
        run_block(code, page.name, line, names)


def test_run_block_finds_a_wrong_output() -> None:
    names: dict[str, Any] = {}
    run_block(">>> x = 6 * 7\n>>> x\n42\n", "page", 3, names)
    assert names["x"] == 42
    with pytest.raises(AssertionError, match=r"line 4(.|\n)*Expected:\s+43\s+Got:\s+42"):
        run_block(">>> x\n43\n", "page", 3, names)
    with pytest.raises(ZeroDivisionError):
        run_block("1 / 0", "page", 3, names)


def test_commands_of_readme_run(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cbquant.cli import main

    lines = [line for _, code, _ in blocks(ROOT / "README.md", "sh") for line in code.splitlines()]
    commands = [shlex.split(line)[3:] for line in lines if line.startswith("python -m cbquant ")]
    assert {command[0] for command in commands} == {
        "inspect",
        "dequant",
        "quantize",
        "compare",
        "validate",
        "bench",
        "info",
        "formats",
    }
    for command in commands:
        assert main(command) == 0, command
        assert capsys.readouterr().out, command


# --- tables, lists, links ---


def format_table() -> str:
    """README's table of formats."""
    rows = ["| format | GGUF type | elements | bytes | bits a weight | |", "|---|--:|--:|--:|--:|---|"]
    for f in cbquant.formats():
        if f.kind != "plain":
            rows.append(f"| {f.name} | {f.tag} | {f.elements} | {f.bytes} | {f.bits_per_weight:.5g} | {f.doc} |")
    plain = ", ".join(f.name for f in cbquant.formats() if f.kind == "plain")
    rows += ["", f"And the plain types {plain}, so that a whole file opens."]
    return "\n".join(rows) + "\n"


def test_readme_table_is_the_registry() -> None:
    shown = re.search(
        r"^<!-- formats:[^\n]*-->\n(.*?)^<!-- /formats -->$", (ROOT / "README.md").read_text(), re.M | re.S
    )
    assert shown
    expected = {line for line in format_table().splitlines() if not is_young(line)}
    assert {line for line in shown[1].splitlines() if not is_young(line)} == expected


def is_young(line: str) -> bool:
    """A row of a format that has no vectors yet: the table may have it or not."""
    name = line.removeprefix("| ").split(" ")[0]
    return name in {f.name for f in cbquant.formats() if f.kind != "plain"} - set(cbquant.testing.names())


def test_environment_page_names_every_variable_and_instruction_set() -> None:
    sources = [ROOT / "setup.py", *ROOT.glob("csrc/**/*.c"), *ROOT.glob("cbquant/**/*.py")]
    variables = {name for path in sources for name in re.findall(r"\bCBQUANT_[A-Z_]+\b", path.read_text())}
    page = (ROOT / "docs" / "environment.md").read_text()
    assert {"CBQUANT_ISA", "CBQUANT_DEBUG"} <= variables
    assert variables == set(re.findall(r"\bCBQUANT_[A-Z_]+\b", page))
    assert {level for level, _, _ in _core.isa_levels()} <= set(re.findall(r"`(\w+)`", page))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "csrc" / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_stub_has_every_name_of_the_core() -> None:
    stub = ast.parse((ROOT / "cbquant" / "_core.pyi").read_text())
    names = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)} | {"MAX_THREADS"}
    assert names == {name for name in dir(_core) if not name.startswith("_")}


# --- tools/lint.py ---

LINT = runpy.run_path(str(ROOT / "tools" / "lint.py"))


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("csrc/ops/check.h", '\n#include "../bind/bind.h"\n', '2: "../bind/bind.h" belongs to a later'),
        ("csrc/kernels/doors.h", '#include "../dispatch.h"\n', '1: "../dispatch.h" belongs to a later'),
        ("csrc/word/neon.h", '#include "cbq_format_list.h"\n', "belongs to a later layer"),
        ("csrc/threads.c", '#include "../cuda/decode.cuh"\n', "is no file of csrc"),
        ("csrc/new/a.c", "", "1: new is in no layer"),
        ("csrc/threads.c", "#include <Python.h>\n", "only csrc/bind and cuda/host know Python"),
        ("csrc/threads.c", "void f(void) {\n    abort();\n}\n", "2: abort(): errors are a status"),
        ("csrc/threads.c", "/* a\n   b */ printf(x);\n", "2: printf()"),
        ("csrc/threads.c", "\tint x;\n", "1: a tab"),
        ("csrc/threads.c", "int x; \n", "1: blanks"),
        ("csrc/threads.c", "x" * 151, "1: 151 columns"),
        ("csrc/threads.c", "int x;\n" * 401, "401: 401 lines"),
        ("csrc/threads.c", "/* TO" "DO: more */\n", "1: TO" "DO"),
    ],
)  # fmt: skip
def test_lint_of_c_finds(name: str, text: str, finding: str) -> None:
    found = [f"{line}: {what}" for line, what in LINT["c_findings"](name, text)]
    assert len(found) == 1
    assert finding in found[0]


def test_lint_of_c_lets_pass() -> None:
    macro = "#define M(x) \\\n" + "y" * 200 + "\n"
    text = '#include "threads.h"\n/* abort() */\n' + macro + 'int n = snprintf(t, 9, "exit(1)");\n'
    assert list(LINT["c_findings"]("csrc/threads.c", text)) == []
    assert list(LINT["c_findings"]("csrc/tables/new_grid.h", '#include "../base.h"\n' + "0,\n" * 500)) == []
    assert list(LINT["c_findings"]("csrc/bind/bind.h", "#include <Python.h>\n")) == []
    assert list(LINT["c_findings"]("cuda/dequant.cu", '#include "decode.cuh"\n')) == []


if __name__ == "__main__":
    print(format_table(), end="")
