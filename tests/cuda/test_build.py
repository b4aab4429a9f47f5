"""How cbquant._cuda is built: what the environment may ask for, which toolkit is found, what is compiled again."""

from __future__ import annotations

import os
import runpy
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.paths import ROOT
from tests.ptx.nvcc import find_nvcc

cuda = SimpleNamespace(**runpy.run_path(str(ROOT / "cuda" / "build.py"), run_name="cuda_build"))


def setup_py(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run setup.py where nothing but the system's own programs is on PATH."""
    wanted = {**os.environ, **env}
    wanted.pop("CUDA_HOME", None)
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *command.split()],
        cwd=ROOT,
        env=wanted,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


# ---- the environment ----


@pytest.mark.parametrize(
    ("environ", "expected"), [({}, "auto"), ({"CBQUANT_CUDA": ""}, "auto"), ({"CBQUANT_CUDA": "0"}, "0")]
)
def test_mode(environ: dict[str, str], expected: str) -> None:
    assert cuda.mode(environ) == expected


@pytest.mark.parametrize("value", ["yes", "2", "AUTO", " 1"])
def test_other_modes_are_refused(value: str) -> None:
    with pytest.raises(cuda.BuildError, match="CBQUANT_CUDA: expected auto, 0 or 1, got "):
        cuda.mode({"CBQUANT_CUDA": value})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ("80", "89", "90a", "100", "120")), ("86", ("86",)), ("90a, 100f,120", ("90a", "100f", "120"))],
)
def test_architectures(text: str, expected: tuple[str, ...]) -> None:
    assert cuda.architectures({"CBQUANT_CUDA_ARCHS": text}) == expected


@pytest.mark.parametrize("text", ["sm_80", "8.0", "75", "80,", "90b", "80;90", "9", "1200", "-80"])
def test_other_architectures_are_refused(text: str) -> None:
    with pytest.raises(cuda.BuildError, match=r"CBQUANT_CUDA_ARCHS: expected numbers from 80, as in 80,89,90a,100,120"):
        cuda.architectures({"CBQUANT_CUDA_ARCHS": text})


def test_each_architecture_once() -> None:
    with pytest.raises(cuda.BuildError, match="each architecture once, got '80,80'"):
        cuda.architectures({"CBQUANT_CUDA_ARCHS": "80,80"})


def test_setup_says_what_is_wrong(tmp_path: Path) -> None:
    """Before anything is compiled."""
    begin = time.monotonic()
    for env, text in [
        ({"CBQUANT_CUDA": "1", "PATH": str(tmp_path)}, "cbquant: CBQUANT_CUDA=1: no nvcc was found on PATH"),
        ({"CBQUANT_CUDA": "on"}, "cbquant: CBQUANT_CUDA: expected auto, 0 or 1, got 'on'"),
        ({"CBQUANT_CUDA_ARCHS": "volta"}, "cbquant: CBQUANT_CUDA_ARCHS: expected numbers from 80"),
    ]:
        done = setup_py(f"build_ext --build-temp={tmp_path} --build-lib={tmp_path}", **env)
        if "no nvcc" in text and cuda.candidates({"PATH": str(tmp_path)}):
            continue  # nvidia-cuda-nvcc is installed beside the tests
        assert done.returncode == 1
        assert text in done.stderr
    assert time.monotonic() - begin < 60


def test_metadata_need_no_nvcc(tmp_path: Path) -> None:
    done = setup_py("--version", CBQUANT_CUDA="1", PATH=str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, "0.1.0")


# ---- the toolkit ----


def fake_toolkit(folder: Path, version: str = "13.0", library: str = "lib64", archs: str = "80 90 100 120") -> Path:
    """A folder as toolkits are, with an nvcc that answers the questions of cuda/build.py."""
    for name in ("bin", "include", library):
        (folder / name).mkdir(parents=True)
    (folder / "include" / "cuda_runtime_api.h").touch()
    (folder / library / "libcudart_static.a").touch()
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(
        "#!/bin/sh\n"
        "case $1 in\n"
        f"--version) echo 'Cuda compilation tools, release {version}, V{version}.88';;\n"
        f"--dryrun) echo '#$ TOP={folder}/bin/..' >&2;;\n"
        f"--list-gpu-code) for a in {archs}; do echo sm_$a; done;;\n"
        "esac\n"
    )
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    return nvcc


@pytest.mark.parametrize("library", ["lib64", "lib", f"targets/{os.uname().machine}-linux/lib"])
def test_toolkit_is_found(tmp_path: Path, library: str) -> None:
    nvcc = fake_toolkit(tmp_path / "cuda", library=library)
    for environ in ({"PATH": str(nvcc.parent)}, {"PATH": "", "CUDA_HOME": str(tmp_path / "cuda")}):
        toolkit = cuda.find_toolkit(environ)
        assert (toolkit.nvcc, toolkit.version) == (str(nvcc), (13, 0))
        assert toolkit.library == tmp_path / "cuda" / library
        assert toolkit.include == tmp_path / "cuda" / "include"


def test_toolkit_behind_a_script_is_found(tmp_path: Path) -> None:
    nvcc = fake_toolkit(tmp_path / "cuda")
    script = tmp_path / "bin" / "nvcc"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {nvcc} "$@"\n')
    script.chmod(0o755)
    toolkit = cuda.find_toolkit({"PATH": str(script.parent)})
    assert (toolkit.nvcc, toolkit.include) == (str(script), tmp_path / "cuda" / "include")


def test_toolkit_of_a_wheel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = fake_toolkit(tmp_path / "nvidia" / "cu13", library="lib")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert str(nvcc) in cuda.candidates({"PATH": ""})


def test_toolkits_that_cannot_be_used(tmp_path: Path) -> None:
    old = fake_toolkit(tmp_path / "old", "12.6")
    bare = fake_toolkit(tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "lib64")
    new = fake_toolkit(tmp_path / "new", "12.8")
    with pytest.raises(cuda.BuildError, match=r"is of CUDA 12\.6, 12\.8 or later is needed"):
        cuda.toolkit_of(str(old))
    with pytest.raises(cuda.BuildError, match=r"has no libcudart_static\.a beside it"):
        cuda.toolkit_of(str(bare))
    found = cuda.find_toolkit({"PATH": str(old.parent), "CUDA_HOME": str(tmp_path / "new")})
    assert found.nvcc == str(new)
    found.check(("80", "90a"))
    with pytest.raises(cuda.BuildError, match=r"knows 80, 90, 100, 120, got 103a"):
        found.check(("80", "103a"))


# ---- compiling ----


def test_dependencies_are_read() -> None:
    text = "a.o: /x/a.cu \\\n /x/with\\ blank.h \\\n  /x/b.h\n"
    assert cuda.read_dependencies(text) == ["/x/a.cu", "/x/with blank.h", "/x/b.h"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc not found")
def test_only_what_changed_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cuda.compile_once.__globals__, "CUDA", tmp_path / "cuda")
    source, header, target = tmp_path / "a.c", tmp_path / "a.h", tmp_path / "out" / "a.o"
    source.write_text('#include "a.h"\nint a = A;\n')
    header.write_text("#define A 1\n")

    def compiled(*flags: str) -> bool:
        before = target.stat().st_mtime_ns if target.exists() else 0
        cuda.compile_once(["gcc", *flags], source, target)
        return target.stat().st_mtime_ns != before

    assert compiled()
    assert not compiled()
    header.touch()  # a date is no change
    assert not compiled()
    header.write_text("#define A 2\n")
    assert compiled()
    assert compiled("-O2")
    assert not compiled("-O2")
    source.write_text("int a = 3;\n")
    assert compiled("-O2")
    header.unlink()  # no longer included
    assert not compiled("-O2")
    target.unlink()
    assert compiled("-O2")
    source.write_text("int a = ;\n")
    with pytest.raises(cuda.BuildError, match=r"compiling a\.c: gcc -O2(.|\n)*error(.|\n)*CBQUANT_CUDA=0 builds"):
        compiled("-O2")
    source.write_text("int a = 3;\n")
    assert compiled("-O2")  # nothing of the failure is kept


# ---- the real thing ----

KERNELS = [ROOT / "cuda" / "kernels" / "dequant.cu", ROOT / "cuda" / "kernels" / "list.cu"]


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc not found: the module is not built")
def test_module_loads_and_finds_no_driver_by_itself(tmp_path: Path) -> None:
    """Built for one architecture, as `pip install` does; its import looks for no libcuda."""
    env = {"CBQUANT_CUDA": "1", "CBQUANT_CUDA_ARCHS": "80"}
    kept = ROOT / "build" / "cuda-test"
    lists = runpy.run_path(str(ROOT / "csrc" / "format_list.py"))["write_format_list"](kept).parent
    target = tmp_path / "_cuda.so"
    cuda.build(cuda.find_toolkit(os.environ), cuda.architectures(env), kept, lists, target)
    code = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("cbquant._cuda", {str(target)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.ARCHITECTURES, module.MARGIN)
import sys; print("import is over", file=sys.stderr, flush=True)
print(module.versions()[1] >= 12080)
"""
    env = {**os.environ, "LD_DEBUG": "libs", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines() == ["sm_80 compute_80 16", "True"]
    importing, _, using = done.stderr.partition("import is over")
    assert "libcuda.so" not in importing
    assert "libcuda.so" in using  # or this test would see nothing
    symbols = subprocess.run(["nm", "-D", "--defined-only", target], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["PyInit__cuda"]
