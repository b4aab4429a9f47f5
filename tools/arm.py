"""Python, NumPy and cbquant for AArch64 in a folder, run by qemu-user: tools/check.py tests the NEON kernels in it.

Debian's own Python is unpacked, not installed, and the wheels are PyPI's; only the extension is compiled here.
"""

from __future__ import annotations

import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PLATFORMS = [f"--platform=manylinux{name}_aarch64" for name in ("_2_28", "_2_17", "2014")]
LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libbz2-1.0", "liblzma5")

Run = Callable[..., str]


class Missing(Exception):
    """Something that has to be installed first; the text says how."""


def version_of_debian() -> str:
    """3.11 for the Debian whose python3 is that."""
    if "arm64" not in subprocess.check_output(["dpkg", "--print-foreign-architectures"], text=True).split():
        raise Missing("no packages of arm64: dpkg --add-architecture arm64 && apt-get update")
    shown = subprocess.run(["apt-cache", "show", "python3-minimal:arm64"], capture_output=True, text=True).stdout
    found = re.search(r"python(3\.\d+)-minimal", shown)
    if not found:
        raise Missing("apt knows no python3-minimal:arm64: apt-get update")
    return found[1]


def unpack_python(folder: Path, version: str, run: Run) -> Path:
    """Debian's Python and the libraries that it wants; its headers too. Returns the root of that system."""
    python = [
        f"python{version}-minimal",
        *(f"libpython{version}{part}" for part in ("", "-minimal", "-stdlib", "-dev")),
    ]
    packages, root = folder / "packages", folder / "root"
    for part in (packages, root):
        shutil.rmtree(part, ignore_errors=True)
    packages.mkdir(parents=True)
    run(["apt-get", "download", *(f"{name}:arm64" for name in (*python, *LIBRARIES))], cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        run(["dpkg", "-x", package, root])
    return root


def install_wheels(site: Path, version: str, names: Sequence[str], run: Run) -> None:
    shutil.rmtree(site, ignore_errors=True)
    target = ["--target", site, "--only-binary", ":all:", "--python-version", version, "--implementation", "cp"]
    run([sys.executable, "-m", "pip", "install", "-q", *target, *PLATFORMS, *names])


def build_extension(tree: Path, root: Path, version: str, run: Run) -> None:
    """Compiled by the Python at hand with the headers of the other, and then named as that one wants it."""
    headers = f"-I{root}/usr/include/python{version} -I{root}/usr/include"
    compiler = "aarch64-linux-gnu-gcc"
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    run(command, cwd=tree, CBQUANT_CUDA="0", CC=f"{compiler} {headers}", LDSHARED=f"{compiler} -shared")
    (built,) = (tree / "cbquant").glob("_core*.so")
    built.rename(built.with_name(f"_core.cpython-{version.replace('.', '')}-aarch64-linux-gnu.so"))


def make_python(folder: Path, tree: Path, wheels: Sequence[str], qemu: str, run: Run) -> Path:
    """A program that is Python for AArch64, with `tree` and the wheels on its path; it may start itself again."""
    version = version_of_debian()
    root, site, program = unpack_python(folder, version, run), folder / "site", folder / "python"
    install_wheels(site, version, wheels, run)
    build_extension(tree, root, version, run)
    path, interpreter = shlex.quote(f"{tree}:{site}"), shlex.quote(f"{root}/usr/bin/python{version}")
    # Python takes what it was called (-0) for itself, sys.executable: the kernel can run this file, but not AArch64's.
    start = f'exec {qemu} -L {shlex.quote(str(root))} -cpu max -0 "$0" {interpreter} "$@"'
    program.write_text(f"#!/bin/sh\nexport PYTHONPATH={path}\n{start}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program
