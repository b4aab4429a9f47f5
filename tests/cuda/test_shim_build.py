"""The shim's build: what is kept, and what is made anew."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cuda.shim import build, why_not
from tests.cuda.shim.build import CACHE

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

NAME = "shim_build_probe"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "probe.h").write_text("#define ANSWER 1\n")
    file = tmp_path / f"{NAME}.c"
    file.write_text('#include "probe.h"\nint answer(void);\nint answer(void) { return ANSWER; }\n')
    yield file
    for made in CACHE.glob(f"{NAME}-*"):
        made.unlink()


def answer(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).answer())


def test_library_is_kept_until_a_header_changes(source: Path) -> None:
    first = build([source])
    made = first.stat().st_mtime_ns
    assert answer(first) == 1
    assert build([source]) == first
    assert first.stat().st_mtime_ns == made
    (source.parent / "probe.h").write_text("#define ANSWER 2\n")
    second = build([source])
    assert second != first
    assert answer(second) == 2
    (source.parent / "probe.h").write_text("#define ANSWER 1\n")
    assert build([source]) == first


def test_flags_and_suffix_count(source: Path) -> None:
    (source.parent / "probe.h").write_text("")
    assert answer(build([source], flags=["-DANSWER=3"])) == 3
    assert build([source], flags=["-DANSWER=3"], suffix=".abi3.so").name.endswith(".abi3.so")


def test_warning_is_an_error_with_the_compilers_words(source: Path) -> None:
    (source.parent / "probe.h").write_text("#define ANSWER missing\n")
    with pytest.raises(RuntimeError, match=r"missing.* undeclared"):
        build([source])
    (source.parent / "probe.h").write_text("#define ANSWER 1; int unused\n")
    with pytest.raises(RuntimeError, match="unused"):
        build([source])
