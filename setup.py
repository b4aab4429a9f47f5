"""Build of cbquant. The metadata is in pyproject.toml; here is the C extension.

The list of formats is made from the files of csrc/formats, because C cannot include a folder: it goes into the build
folder and is never checked in.

Switches (environment): CBQUANT_DEBUG=1 (-O1 -g), CBQUANT_SANITIZE=address,undefined (or thread), CBQUANT_CFLAGS (more
compiler flags), CBQUANT_EMULATE=DIR (tests: every instruction set in portable C, DIR holds its immintrin.h and
arm_neon.h).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def format_list(folder: Path) -> str:
    """The text of cbq_format_list.h: every header of the folder, and one macro that expands every row."""
    names = sorted(path.stem for path in folder.glob("*.h"))
    includes = "".join(f'#include "formats/{name}.h"\n' for name in names)
    rows = " \\\n".join(f"    CBQ_FORMAT_{name}(BLOCK, PLAIN)" for name in names)
    return f"#pragma once\n{includes}\n#define CBQ_FORMATS(BLOCK, PLAIN) \\\n{rows}\n"


def write_format_list(build: Path) -> None:
    build.mkdir(parents=True, exist_ok=True)
    target, text = build / "cbq_format_list.h", format_list(ROOT / "csrc" / "formats")
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


def sources() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.c"))


def headers() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.h"))


def flags() -> tuple[list[str], list[str]]:
    """Compiler and linker flags. Products and sums are never fused: the results must be the same everywhere."""
    debug = os.environ.get("CBQUANT_DEBUG") == "1"
    compile_flags = ["-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Wno-unused-parameter"]
    compile_flags += ["-O1", "-g", "-UNDEBUG"] if debug else ["-O3", "-g0"]
    link_flags = ["-pthread"]
    if sanitize := os.environ.get("CBQUANT_SANITIZE"):
        compile_flags += [f"-fsanitize={sanitize}", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
        link_flags += [f"-fsanitize={sanitize}"]
    return compile_flags + os.environ.get("CBQUANT_CFLAGS", "").split(), link_flags


class BuildExt(build_ext):
    def build_extension(self, ext: Extension) -> None:
        build = Path(self.build_temp)
        write_format_list(build)
        ext.include_dirs.insert(0, str(build))
        if emulate := os.environ.get("CBQUANT_EMULATE"):
            ext.include_dirs.insert(0, emulate)
            ext.define_macros.append(("CBQ_EMULATE", "1"))
        super().build_extension(ext)


compile_flags, link_flags = flags()
setup(
    ext_modules=[
        Extension(
            "cbquant._core",
            sources=sources(),
            depends=headers(),
            include_dirs=["csrc", numpy.get_include()],
            define_macros=[("NPY_TARGET_VERSION", "NPY_1_25_API_VERSION")],
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
        )
    ],
    cmdclass={"build_ext": BuildExt},
)
