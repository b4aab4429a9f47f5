"""The long checks, each in a build of its own under build/check; the installed build stays as it is.

    python tools/check.py [STEP ...] [--python PATH ...] [--fuzz-seconds N]
    python tools/check.py --list

Without STEP all of them run. Each writes build/check/STEP.log; the end of it is printed where the step fails. A program
that is missing fails its step, with the name of the Debian package that has it. The exit status is the number of
steps that failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import arm

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "check"
PYTEST = ["-X", "dev", "-W", "error", "-m", "pytest", "-q"]
C_FLAGS = ["-std=gnu11", "-ffp-contract=off", "-pthread", "-Wall", "-Wextra", "-Werror"]  # as setup.py
NOT_COPIED = shutil.ignore_patterns(".git", "build", "dist", ".venv", ".*_cache", "__pycache__", ".hypothesis", "*.so")
PYTHONS = [f"python3.{minor}{t}" for minor in range(10, 15) for t in ("", "t") if minor > 12 or not t]
NUMPY_1_PYTHONS = [f"python3.{minor}" for minor in range(9, 13)]  # what NumPy 1.26 has wheels for


class Failed(Exception):
    """A step that did not go well; the text says what to do."""


class Step:
    """A folder of its own, a log, and the commands that write to it."""

    def __init__(self, name: str, options: argparse.Namespace, log: TextIO) -> None:
        self.folder, self.options, self.log = BUILD / name, options, log

    def run(self, command: Sequence[str | Path], cwd: Path = ROOT, expect: int = 0, **env: str) -> str:
        """Run to the end and return what it printed; another exit status than expected fails the step."""
        words = [str(word) for word in command]
        print(f"$ {shlex.join([*(f'{k}={v}' for k, v in env.items()), *words])}", file=self.log, flush=True)
        begin = self.log.tell()
        done = subprocess.run(words, cwd=cwd, env={**os.environ, **env}, stdout=self.log, stderr=subprocess.STDOUT)
        self.log.seek(begin)
        printed = self.log.read()
        if done.returncode != expect:
            raise Failed(f"exit status {done.returncode}, expected {expect}: {shlex.join(words)[:300]}")
        return printed

    def pytest(self, *arguments: str | Path, root: Path = ROOT, python: str | Path = sys.executable, **env: str) -> str:
        """Run pytest on the tree at `root` and return its last line: how many passed."""
        command = [python, *PYTEST, *arguments]
        printed = self.run(command, cwd=root, PYTHONPATH=str(root), **env)
        return printed.rstrip().rpartition("\n")[2]

    def copy_of_the_tree(self, name: str = "tree") -> Path:
        tree = self.folder / name
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(ROOT, tree, ignore=NOT_COPIED)
        return tree

    def tree_with_extension(self, **env: str) -> Path:
        """A copy of the tree with the extension built in place, as `env` tells setup.py."""
        tree = self.copy_of_the_tree()
        self.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree, CBQUANT_CUDA="0", **env)
        return tree

    def compile_c(self, compiler: Sequence[str], main: str, output: str) -> Path:
        """The C sources but for the binding, with a main program of tests/c."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run([sys.executable, ROOT / "csrc" / "format_list.py", self.folder])
        sources = sorted(path for path in (ROOT / "csrc").rglob("*.c") if path.parent.name != "bind")
        includes = ["-I", self.folder, "-I", ROOT / "csrc"]
        program = self.folder / output
        self.run([*compiler, *C_FLAGS, *includes, *sources, ROOT / "tests" / "c" / main, "-o", program, "-lm"])
        return program


STEPS: dict[str, Callable[[Step], str]] = {}


def step(name: str) -> Callable[[Callable[[Step], str]], Callable[[Step], str]]:
    """Register a step; what it returns is printed before its time."""

    def register(function: Callable[[Step], str]) -> Callable[[Step], str]:
        STEPS[name] = function
        return function

    return register


def need(program: str, package: str) -> str:
    found = shutil.which(program)
    if not found:
        raise Failed(f"{program} is missing: apt-get install {package}")
    return found


def library_of_gcc(name: str, package: str) -> str:
    """The file that the linker of gcc takes for a library; gcc gives the bare name back where it has none."""
    path = subprocess.check_output([need("gcc", "gcc"), f"-print-file-name={name}"], text=True).strip()
    if not os.path.isabs(path):
        raise Failed(f"{name} is missing: apt-get install {package}")
    return str(Path(path).resolve())


# ---- the steps, quick ones first ----


@step("lint")
def lint(step: Step) -> str:
    """Style of Python and C, types, spelling."""
    return step.run([sys.executable, "tools/lint.py"]).rstrip().rpartition("\n")[2]


@step("tsan")
def tsan(step: Step) -> str:
    """The thread pool under gcc's thread sanitizer, in C: Python and NumPy are not built for it."""
    library_of_gcc("libtsan.so", "libtsan2")
    program = step.compile_c([need("gcc", "gcc"), "-O1", "-g", "-fsanitize=thread"], "threads_main.c", "threads")
    # The sanitizer wants its memory where address randomization may already have put something.
    command = [need("setarch", "util-linux"), "--addr-no-randomize", program]
    return step.run(command, TSAN_OPTIONS="halt_on_error=1").rstrip()


@step("fork")
def fork(step: Step) -> str:
    """Forks while another thread makes the pool, in C: Python would come to that moment too seldom."""
    return step.run([step.compile_c([need("gcc", "gcc"), "-O2"], "fork_main.c", "fork")]).rstrip()


@step("qemu-neon")
def qemu_neon(step: Step) -> str:
    """NEON as gcc and clang compile it, run by qemu, and the levels of this machine, by the same program in C."""
    qemu, clang = need("qemu-aarch64", "qemu-user"), need("clang", "clang")
    arm_gcc = need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    cases = step.folder / "cases.bin"
    step.folder.mkdir(parents=True, exist_ok=True)
    cases.write_bytes(b"".join(decoding_cases()))
    emulate = [qemu, "-cpu", "max"]
    compilers: dict[str, tuple[list[str], list[str]]] = {
        "native": ([need("gcc", "gcc"), "-O3"], []),
        "arm-gcc": ([arm_gcc, "-O3", "-static"], emulate),
        "arm-clang": ([clang, "--target=aarch64-linux-gnu", "-O3", "-static"], emulate),
    }
    notes = []
    for name, (compiler, runner) in compilers.items():
        program = step.compile_c(compiler, "check_main.c", name)
        printed = step.run([*runner, program, cases], CBQUANT_ISA="")
        notes += [f"{name}: {line}" for line in printed.splitlines()]
    hashes = {line.rpartition("hash ")[2] for line in notes if "encoders" in line}
    if len(hashes) != 1:
        raise Failed(f"expected the same bytes of encoders everywhere, got {sorted(hashes)}")
    arm = step.folder / "arm-gcc"
    for cpu, level in (("cortex-a53", "neon"), ("cortex-a76", "neon_dotprod")):
        in_use = step.run([qemu, "-cpu", cpu, arm, "/dev/null"], CBQUANT_ISA="").partition("\n")[0]
        if in_use != f"level in use: {level}":
            raise Failed(f"{cpu}: expected level {level}, got {in_use!r}")
    refused = step.run([qemu, "-cpu", "cortex-a53", arm, "/dev/null"], expect=2, CBQUANT_ISA="neon_i8mm")
    if refused != "CBQUANT_ISA: this machine cannot run 'neon_i8mm'; it can run scalar, neon\n":
        raise Failed(f"expected cortex-a53 to refuse neon_i8mm, got {refused!r}")
    return "\n".join(notes)


@step("qemu-python")
def qemu_python(step: Step) -> str:
    """The kernels of NEON in Python for AArch64: what qemu-neon knows, and planes, codecs, operators, attention."""
    qemu = need("qemu-aarch64", "qemu-user")
    need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    tree = step.copy_of_the_tree()
    try:
        python = arm.make_python(
            step.folder, tree, ["numpy", "pytest", "hypothesis", "ml_dtypes", "gguf"], qemu, step.run
        )
    except arm.Missing as error:
        raise Failed(str(error)) from None
    patterns = ("codecs*", "deepseek_*", "dequant", "exp", "matmul", "planes*", "products", "quantize*", "tensor")
    files = [path for pattern in patterns for path in sorted((tree / "tests").glob(f"test_{pattern}.py"))]
    return step.pytest(*files, "-k", "not emulated and not ggml", root=tree, python=python)


def decoding_cases() -> Iterator[bytes]:
    """What tests/c/check_main.c reads: the vectors of the package, random blocks, and one case for many threads."""
    sys.path.insert(0, str(ROOT))
    import numpy as np

    from cbquant import formats, reference, testing

    def case(fmt: str, blocks: np.ndarray) -> bytes:
        values = [reference.dequant(blocks.ravel(), fmt, dtype=dtype) for dtype in ("float32", "float16", "bfloat16")]
        head = fmt.encode().ljust(16, b"\0") + len(blocks).to_bytes(8, "little")
        return head + blocks.tobytes() + b"".join(v.tobytes() for v in values)

    for f in formats():
        blocks = np.random.default_rng(f.tag).integers(0, 256, (300, f.bytes), np.uint8)
        yield case(f.name, blocks)
        if f.kind != "plain":
            yield from (case(f.name, vector.blocks) for vector in testing.vectors(f.name))
        if f.name == "q4_k":  # more than 2^19 elements
            yield case(f.name, np.resize(blocks, (2**19 // f.elements + 1, f.bytes)))


@step("clang")
def clang(step: Step) -> str:
    """The extension as clang builds it, without a warning."""
    compiler = need("clang", "clang")
    tree = step.tree_with_extension(CC=compiler, CBQUANT_CFLAGS="-Werror")
    return step.pytest("tests/test_dequant.py", "-k", "not emulated", root=tree)


@step("fuzz")
def fuzz(step: Step) -> str:
    """The tests of hypothesis, again and again with other seeds, for as long as --fuzz-seconds says."""
    end, rounds, last = time.monotonic() + step.options.fuzz_seconds, 0, ""
    while time.monotonic() < end:
        last = step.pytest("-m", "hypothesis", f"--hypothesis-seed={random.getrandbits(32)}")
        rounds += 1
    return f"{rounds} rounds; {last}"


@step("big")
def big(step: Step) -> str:
    """A buffer of more than 2^31 elements; needs 10 GiB of memory."""
    return step.pytest("tests/big/check_big.py", "tests/big/check_big_planes.py")


@step("checkpoints")
def checkpoints(step: Step) -> str:
    """Files that bitsandbytes and compressed-tensors write, and their numbers; these and torch come from PyPI."""
    environment, files = step.folder / "env", step.folder / "files"
    step.run([sys.executable, "-m", "venv", "--clear", environment])
    own = environment / "bin" / "python"
    step.run([own, "-m", "pip", "install", "-q", "torch", "bitsandbytes", "compressed-tensors", "safetensors", "numpy"])
    step.run([own, ROOT / "tests" / "real" / "write_checkpoints.py", files])
    return step.pytest("tests/real/check_checkpoints.py", CBQUANT_CHECKPOINTS=str(files))


@step("bitsandbytes")
def bitsandbytes(step: Step) -> str:
    """NF4 and FP4 against bitsandbytes on the CPU, in an environment of its own: with torch it takes some gigabytes."""
    own = step.folder / "env" / "bin" / "python"
    if not own.exists():
        step.run([sys.executable, "-m", "venv", step.folder / "env"])
    step.run([own, "-m", "pip", "install", "-q", "bitsandbytes", "ml_dtypes"])
    printed = step.run([own, ROOT / "tests" / "peers" / "check_bitsandbytes.py"], PYTHONPATH=str(ROOT))
    return "\n".join(printed.splitlines()[-3:])


@step("numpy-1.26")
def numpy_1_26(step: Step) -> str:
    """The extension built with NumPy 2 runs on NumPy 1.26, the oldest that is allowed."""
    here = sys.executable if sys.version_info < (3, 13) else None
    pythons = [python for python in [*step.options.python, here, *NUMPY_1_PYTHONS] if python]
    found = next((python for python in pythons if version_of(python) in NUMPY_1_PYTHONS), None)
    if not found:
        raise Failed(f"none of {', '.join(NUMPY_1_PYTHONS)} is here; give one with --python PATH")
    return quick_tests_of(step, found, "numpy==1.26.4")


@step("pythons")
def pythons(step: Step) -> str:
    """Every Python that is found: those on PATH and those given with --python."""
    found = {version_of(python): python for python in [*step.options.python, *PYTHONS]}
    found.pop(None, None)
    missing = [name for name in PYTHONS if name not in found]
    if not found:
        raise Failed(f"none of {', '.join(PYTHONS)} is here; give one with --python PATH")
    notes, failed = [], []
    for name in (name for name in PYTHONS if name in found):
        try:
            notes.append(f"{name}: {quick_tests_of(step, found[name], 'numpy')}")
        except Failed as error:
            failed.append(f"{name}: {error}")
    if failed:
        raise Failed("\n".join(failed))
    return "\n".join([*notes, f"not found: {', '.join(missing) or 'none'}"])


def version_of(python: str) -> str | None:
    """python3.13t for what calls itself that, or None where it does not run."""
    free = "'t' * bool(sysconfig.get_config_var('Py_GIL_DISABLED'))"
    code = f"import sys, sysconfig; print('python%d.%d' % sys.version_info[:2] + {free})"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def quick_tests_of(step: Step, python: str, numpy: str) -> str:
    """Install the package in a new environment, as pip builds it, and run the quick tests away from the sources."""
    name = f"{version_of(python)}-{numpy}"
    tree, environment = step.copy_of_the_tree(name), step.folder / f"{name}-env"
    step.run([python, "-m", "venv", "--clear", environment])
    own = environment / "bin" / "python"
    step.run([own, "-m", "pip", "install", "-q", numpy, "pytest", "hypothesis", "ml_dtypes", "gguf"])
    step.run([own, "-m", "pip", "install", "-q", "--no-deps", tree], CBQUANT_CUDA="0")
    shutil.rmtree(tree / "cbquant")
    files = [f"tests/test_{name}.py" for name in ("api", "dequant", "files_hostile", "machine", "tensor", "threads")]
    return step.pytest(*files, "-k", "not emulated and not ggml", root=tree, python=own)


@step("asan-ubsan")
def asan_ubsan(step: Step) -> str:
    """The tests on a build with gcc's address and undefined behaviour sanitizers; not those of device code.

    Those use nothing of the extension, and nvcc ends with a fault where the sanitizer is loaded into it.
    """
    device = [path for pattern in ("*cuda*", "*ptx*") for path in sorted((ROOT / "tests").glob(pattern))]
    # libstdc++ before anything that throws: the sanitizer looks for its throwing function when the process starts.
    libraries = [library_of_gcc("libasan.so", "libasan8"), library_of_gcc("libstdc++.so", "libstdc++-12-dev")]
    tree = step.tree_with_extension(CBQUANT_SANITIZE="address,undefined", CBQUANT_DEBUG="1")
    return step.pytest(
        "--capture=sys",  # the sanitizer ends the process: what it said must be in the log by then
        *(f"--ignore=tests/{path.name}" for path in device),
        root=tree,
        LD_PRELOAD=" ".join(libraries),
        ASAN_OPTIONS="detect_leaks=0",  # CPython keeps much to its end
        UBSAN_OPTIONS="print_stacktrace=1",
        PYTHONMALLOC="malloc",
    )


# ---- the program ----


def run_step(name: str, options: argparse.Namespace) -> bool:
    print(f"{name} ..", flush=True)
    path, begin = BUILD / f"{name}.log", time.monotonic()
    with path.open("w+", errors="replace") as log:
        try:
            note = STEPS[name](Step(name, options, log))
        except (Failed, OSError, subprocess.CalledProcessError) as error:
            failure: Exception | None = error
        else:
            failure = None
    seconds = time.monotonic() - begin
    if failure:
        tail = path.read_text(errors="replace").splitlines()[-40:]
        print("\n".join(f"    | {line}" for line in tail))
        print(f"{name} FAILED after {seconds:.0f} s: {failure} (log: {path.relative_to(ROOT)})", flush=True)
    else:
        print("".join(f"    {line}\n" for line in re.sub(r"\x1b\[[0-9;]*m", "", note).splitlines()), end="")
        print(f"{name} ok, {seconds:.0f} s", flush=True)
    return failure is None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The long checks of cbquant.")
    parser.add_argument("steps", metavar="STEP", nargs="*", help="a step of --list; all of them by default")
    parser.add_argument("--list", action="store_true", help="list the steps and stop")
    parser.add_argument("--python", metavar="PATH", action="append", default=[], help="one more for the step pythons")
    parser.add_argument("--fuzz-seconds", metavar="N", type=float, default=120)
    options = parser.parse_args(argv)
    if options.list:
        print("\n".join(f"{name:12} {(function.__doc__ or name).splitlines()[0]}" for name, function in STEPS.items()))
        return 0
    if unknown := [name for name in options.steps if name not in STEPS]:
        parser.error(f"unknown step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    if platform.system() != "Linux":
        parser.error(f"the checks need Linux, this is {platform.system()}")
    BUILD.mkdir(parents=True, exist_ok=True)
    names = options.steps or list(STEPS)
    failed = [name for name in names if not run_step(name, options)]
    print(f"{len(names) - len(failed)} of {len(names)} steps ok" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
