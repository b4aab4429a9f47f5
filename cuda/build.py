"""Build of cbquant._cuda: kernels by nvcc, the module by the C compiler. setup.py loads this file.

Switches (environment):

CBQUANT_CUDA=auto|0|1
    auto: where nvcc is found. 1: it must be there. 0: never.
CBQUANT_CUDA_ARCHS=80,89,90a,100,120
    Architectures to compile for, and PTX of the last one.
CUDA_HOME
    Where to look for nvcc when it is not on PATH; PyPI's nvidia-cuda-nvcc is found without.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

CUDA = Path(__file__).resolve().parent
CSRC = CUDA.parent / "csrc"
ARCHS = ("80", "89", "90a", "100", "120")
OLDEST = (12, 8)  # the first that knows sm_100 and sm_120

NVCC_FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-Werror=all-warnings", "--no-exceptions", "--threads=0"]
# The lock around a static variable's first use is a function of libstdc++. nvcc's stubs have such variables, but never
# run: kernels are started by their addresses (cuda/device/launch.cuh).
HOST_CXX_FLAGS = ["-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"]
C_FLAGS = ["-std=gnu11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror"]


class BuildError(Exception):
    """What is wrong, and what to do about it."""


# ---- what is asked for ----


def mode(environ: Mapping[str, str]) -> str:
    """The value of CBQUANT_CUDA."""
    value = environ.get("CBQUANT_CUDA") or "auto"
    if value not in ("auto", "0", "1"):
        raise BuildError(f"CBQUANT_CUDA: expected auto, 0 or 1, got {value!r}")
    return value


def architectures(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The value of CBQUANT_CUDA_ARCHS: compute capabilities without the point, perhaps with nvcc's suffix a or f."""
    text = environ.get("CBQUANT_CUDA_ARCHS") or ",".join(ARCHS)
    archs = tuple(word.strip() for word in text.split(","))
    wrong = [word for word in archs if not re.fullmatch(r"[1-9]\d{1,2}[af]?", word) or int(word.rstrip("af")) < 80]
    if wrong:
        raise BuildError(f"CBQUANT_CUDA_ARCHS: expected numbers from 80, as in {','.join(ARCHS)}, got {wrong[0]!r}")
    if len(set(archs)) < len(archs):
        raise BuildError(f"CBQUANT_CUDA_ARCHS: expected each architecture once, got {text!r}")
    return archs


def name_of(archs: Sequence[str]) -> str:
    """The architectures as the module says them."""
    return " ".join([*(f"sm_{arch}" for arch in archs), f"compute_{archs[-1]}"])


# ---- the toolkit ----


class Toolkit(NamedTuple):
    """nvcc, and where the headers and libraries of its release are."""

    nvcc: str
    version: tuple[int, int]
    include: Path
    library: Path

    def check(self, archs: Sequence[str]) -> None:
        known = set(re.findall(r"sm_(\d+)", _output([self.nvcc, "--list-gpu-code"])))
        unknown = [arch for arch in archs if arch.rstrip("af") not in known]
        if unknown:
            numbers = ", ".join(sorted(known, key=int))
            raise BuildError(f"CBQUANT_CUDA_ARCHS: {self.nvcc} knows {numbers}, got {unknown[0]}")


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Each nvcc that there is, the one to prefer first."""
    found = [shutil.which("nvcc", path=environ.get("PATH", ""))]
    if home := environ.get("CUDA_HOME"):
        found.append(shutil.which("nvcc", path=str(Path(home) / "bin")))
    wheels = importlib.util.find_spec("nvidia")  # a package that is nothing but folders, one in each site-packages
    for folder in (wheels and wheels.submodule_search_locations) or []:
        for binaries in sorted(Path(folder).glob("cu*/bin"), reverse=True):
            found.append(shutil.which("nvcc", path=str(binaries)))
    return [path for path in found if path]


def find_toolkit(environ: Mapping[str, str]) -> Toolkit:
    """The toolkit to build with; a BuildError where there is none that can be used."""
    reasons = []
    for nvcc in candidates(environ):
        try:
            return toolkit_of(nvcc)
        except BuildError as error:
            reasons.append(str(error))
    where = "on PATH, below CUDA_HOME or in PyPI's nvidia-cuda-nvcc"
    raise BuildError("; ".join(reasons) or f"no nvcc was found {where}")


@cache
def toolkit_of(nvcc: str) -> Toolkit:
    match = re.search(r"release (\d+)\.(\d+)", _output([nvcc, "--version"]))
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < OLDEST:
        raise BuildError(f"{nvcc} is of CUDA {version[0]}.{version[1]}, {OLDEST[0]}.{OLDEST[1]} or later is needed")
    # nvcc may be a script, or a link: it says itself where its release is.
    match = re.search(r"^#\$ TOP=(.*)$", _output([nvcc, "--dryrun", "-c", "name.cu"]), re.MULTILINE)
    top = Path(match[1]).resolve() if match else Path(nvcc).resolve().parent.parent
    folders = [top, *sorted(top.glob(f"targets/{os.uname().machine}*"))]
    include = _holding([folder / "include" for folder in folders], "cuda_runtime_api.h", nvcc)
    places = [folder / name for folder in folders for name in ("lib64", "lib")]
    return Toolkit(nvcc, version, include, _holding(places, "libcudart_static.a", nvcc))


def _holding(folders: Sequence[Path], name: str, nvcc: str) -> Path:
    for folder in folders:
        if (folder / name).exists():
            return folder
    raise BuildError(f"{nvcc} has no {name} beside it (on PyPI it is in nvidia-cuda-runtime, of the same release)")


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


# ---- compiling ----


def compile_once(command: Sequence[str], source: Path, target: Path) -> None:
    """Compile where the command, the source or a header of it has changed since the last time."""
    state, listed = target.with_suffix(".json"), target.with_suffix(".d")
    words = [*command, "-MMD", "-MF", str(listed), "-c", str(source), "-o", str(target)]
    if target.exists() and _is_current(state, words):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    state.unlink(missing_ok=True)
    _run(words, f"compiling {source.relative_to(CUDA.parent)}")
    files = {name: _digest(Path(name)) for name in read_dependencies(listed.read_text())}
    state.write_text(json.dumps({"command": words, "files": files}))


def _is_current(state: Path, words: Sequence[str]) -> bool:
    try:
        known = json.loads(state.read_text())
        return known["command"] == words and all(_digest(Path(n)) == digest for n, digest in known["files"].items())
    except (OSError, ValueError, KeyError):
        return False


def read_dependencies(text: str) -> list[str]:
    """The files of a rule ``target: file file ..`` as compilers write it."""
    _, _, files = text.replace("\\\n", " ").partition(": ")
    return [name.replace("\\ ", " ") for name in re.findall(r"(?:\\ |\S)+", files)]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(command: Sequence[str], doing: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        hint = "CBQUANT_CUDA=0 builds without CUDA"
        raise BuildError(f"{doing}: {shlex.join(command)}\n{done.stdout.strip()[-4000:]}\n{hint}")


def sources() -> tuple[list[Path], list[Path]]:
    """The CUDA and the C sources."""
    return sorted(CUDA.glob("*/*.cu")), [*sorted((CUDA / "host").glob("*.c")), CSRC / "registry.c"]


def nvcc_command(toolkit: Toolkit, archs: Sequence[str], lists: Path) -> list[str]:
    targets = [f"--generate-code=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    targets.append(f"--generate-code=arch=compute_{archs[-1]},code=compute_{archs[-1]}")
    includes = [f"-I{folder}" for folder in (CUDA / "device", CSRC, lists)]
    return [toolkit.nvcc, *NVCC_FLAGS, "-Xcompiler=" + ",".join(HOST_CXX_FLAGS), *targets, *includes]


def cc_command(toolkit: Toolkit, archs: Sequence[str], lists: Path) -> list[str]:
    """Of the files that Python.h is included in: for this interpreter."""
    includes = [f"-I{folder}" for folder in (CSRC, lists)]
    system = [f"-isystem{folder}" for folder in (toolkit.include, sysconfig.get_path("include"))]
    more = [*sanitizers(), *os.environ.get("CBQUANT_CFLAGS", "").split()]
    return [*c_compiler(), *C_FLAGS, f'-DCBQ_CUDA_ARCHS="{name_of(archs)}"', *includes, *system, *more]


def c_compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def sanitizers() -> list[str]:
    sanitize = os.environ.get("CBQUANT_SANITIZE")
    return [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"] if sanitize else []


def build(toolkit: Toolkit, archs: Sequence[str], objects: Path, lists: Path, target: Path) -> None:
    """Make the module at `target`; `lists` holds cbq_format_list.h, and `objects` is kept from build to build."""
    toolkit.check(archs)
    kernels, host = sources()
    # C files are compiled for one interpreter, kernels for all.
    tag = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
    version = f"-DCBQ_NVCC_VERSION={toolkit.version[0]}{toolkit.version[1]:02}"
    nvcc, cc = [*nvcc_command(toolkit, archs, lists), version], cc_command(toolkit, archs, lists)
    jobs = [(nvcc, source, objects / source.parent.name / f"{source.stem}.o") for source in kernels]
    jobs += [(cc, source, objects / tag / f"{source.stem}.o") for source in host]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda job: compile_once(*job), jobs))
    libraries = [f"-L{toolkit.library}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"]
    # Of the archive nothing is to be seen from outside: another library in the process may bring a runtime of its own.
    libraries += ["-Wl,--exclude-libs,ALL", *sanitizers()]
    target.parent.mkdir(parents=True, exist_ok=True)
    link = [*c_compiler(), "-shared", *(str(job[2]) for job in jobs), "-o", str(target), *libraries]
    _run(link, "linking cbquant._cuda")
