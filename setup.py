"""Build of cbquant. The metadata is in pyproject.toml; here are the C extension and, from cuda/build.py, that for GPUs.

Switches (environment):

CBQUANT_DEBUG=1
    -O1 -g instead of -O3.
CBQUANT_SANITIZE=address,undefined (or thread)
    Build with these sanitizers.
CBQUANT_CFLAGS
    More compiler flags.
CBQUANT_EMULATE=FOLDER
    For tests: every instruction set, in portable C. FOLDER holds the immintrin.h and arm_neon.h that do it.
CBQUANT_CUDA, CBQUANT_CUDA_ARCHS
    Whether to build for GPUs, and for which: see cuda/build.py.
"""

from __future__ import annotations

import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
write_format_list = runpy.run_path(str(ROOT / "csrc" / "format_list.py"))["write_format_list"]
cuda = SimpleNamespace(**runpy.run_path(str(ROOT / "cuda" / "build.py"), run_name="cuda_build"))


def files(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob(pattern))


def flags() -> tuple[list[str], list[str]]:
    """Compiler and linker flags. Products and sums are never fused: results must be the same everywhere."""
    compile_flags = ["-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
    compile_flags += ["-Werror=implicit-function-declaration", "-Werror=implicit-int"]
    compile_flags += ["-isystem", numpy.get_include()]
    compile_flags += ["-O1", "-g"] if os.environ.get("CBQUANT_DEBUG") == "1" else ["-O3", "-g0"]
    link_flags = ["-pthread", "-lm"]
    if sanitize := os.environ.get("CBQUANT_SANITIZE"):
        compile_flags += [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
        link_flags += [f"-fsanitize={sanitize}"]
    return compile_flags + os.environ.get("CBQUANT_CFLAGS", "").split(), link_flags


class CudaExtension(Extension):
    """cbquant._cuda: cuda/build.py knows its files and compilers."""

    def __init__(self, toolkit: object, archs: tuple[str, ...]) -> None:
        super().__init__("cbquant._cuda", [])
        self.toolkit, self.archs = toolkit, archs


def cuda_extensions() -> list[Extension]:
    """The module for GPUs, if it is wanted and can be had."""
    try:
        mode, archs = cuda.mode(os.environ), cuda.architectures(os.environ)
    except cuda.BuildError as error:
        raise SystemExit(f"cbquant: {error}") from None
    if mode == "0":
        return []
    try:
        return [CudaExtension(cuda.find_toolkit(os.environ), archs)]
    except cuda.BuildError as error:
        if mode == "1":
            raise SystemExit(f"cbquant: CBQUANT_CUDA=1: {error}") from None
        print(f"cbquant: built without CUDA: {error}", file=sys.stderr)
        return []


class BuildExt(build_ext):
    """Writes the list of formats first, and compiles files side by side (setuptools does one at a time)."""

    def finalize_options(self) -> None:
        modules = self.distribution.ext_modules
        if not any(isinstance(ext, CudaExtension) for ext in modules):
            modules += cuda_extensions()
        super().finalize_options()

    def build_extension(self, ext: Extension) -> None:
        if isinstance(ext, CudaExtension):
            # In the tree, for pip's editable build throws its own folder away.
            kept = ROOT / "build" / "cuda"
            lists = write_format_list(kept).parent
            cuda.build(ext.toolkit, ext.archs, kept, lists, Path(self.get_ext_fullpath(ext.name)))
            return
        build = Path(self.build_temp)
        ext.include_dirs.insert(0, str(write_format_list(build).parent))
        if emulate := os.environ.get("CBQUANT_EMULATE"):
            ext.include_dirs.insert(0, emulate)
            ext.define_macros.append(("CBQ_EMULATE", "1"))
        self._build_anew_where_something_changed(build, ext)
        self._compile_side_by_side()
        super().build_extension(ext)

    def _build_anew_where_something_changed(self, build: Path, ext: Extension) -> None:
        """setuptools compares dates only: not flags, and no files that are gone."""
        compiler = [os.environ.get("CC"), ext.extra_compile_args, ext.extra_link_args, ext.define_macros]
        state = repr([*compiler, ext.include_dirs, ext.depends, ext.sources])
        kept = build / "state"
        self.force = self.force or not kept.exists() or kept.read_text() != state
        kept.write_text(state)

    def _compile_side_by_side(self) -> None:
        compile_all = self.compiler.compile

        def compile(sources, **kwargs):  # type: ignore[no-untyped-def]
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                done = pool.map(lambda source: compile_all([source], **kwargs), sources)
                return [name for names in done for name in names]

        self.compiler.compile = compile


compile_flags, link_flags = flags()
setup(
    ext_modules=[
        Extension(
            "cbquant._core",
            sources=files("*.c"),
            depends=files("*.h"),
            include_dirs=["csrc"],
            define_macros=[("NPY_TARGET_VERSION", "NPY_1_25_API_VERSION")],
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
        )
    ],
    cmdclass={"build_ext": BuildExt},
)
