"""What cbquant takes from the machine: its instruction set, its share of the cores, and what an import costs."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cbquant import _core
from tests.paths import ROOT

LEVELS = [name for name, _, _ in _core.isa_levels()]
AVAILABLE = [name for name, available, _ in _core.isa_levels() if available]
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def run_python(code: str, *argv: str, timeout: float = 120, **env: str) -> str:
    """What `code` prints in a process of its own, which warnings end; fails unless it exits with 0 and is quiet."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code, *argv],
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"exit status {done.returncode}\n{done.stderr}"
    return done.stdout


# ---- CBQUANT_ISA ----

PRINT_INFO = "import cbquant, json; print(json.dumps(cbquant.info()))"

# A block of q8_0 decodes at first use; what is tried twice must fail twice, and work once the variable is mended.
USE_BAD_LEVEL = """
import os, sys, cbquant
level, = sys.argv[1:]
block = bytes.fromhex("0038") + bytes(range(32))
assert len(cbquant.formats()) > 25  # the format list needs no level
for use in (cbquant.info, lambda: cbquant.dequant(block, "q8_0"), cbquant.info):
    try:
        use()
    except ValueError as error:
        print(error)
    else:
        raise SystemExit(f"CBQUANT_ISA={level!r} was accepted")
del os.environ["CBQUANT_ISA"]
assert cbquant.dequant(block, "q8_0")[2] == 1.0
print(cbquant.info()["isa"])
"""


def info_of_process(**env: str) -> dict[str, Any]:
    return json.loads(run_python(PRINT_INFO, **env))


@pytest.mark.parametrize("level", AVAILABLE)
def test_isa_is_the_one_asked_for(level: str) -> None:
    info = info_of_process(CBQUANT_ISA=level)
    assert info["isa"] == level
    assert info["kernels"] == {name: kernels for name, _, kernels in _core.isa_levels()}[level]


def test_isa_is_the_best_by_default() -> None:
    info = info_of_process(CBQUANT_ISA="")
    assert info["isa"] == AVAILABLE[-1]
    assert info["isa_available"] == AVAILABLE
    assert info["isa_built"] == LEVELS


# Names of another architecture, near misses, and what this machine cannot run of what it has.
UNKNOWN = ["neon" if "avx2" in LEVELS else "avx2", "sse9", "AVX2", " scalar", "scalar,avx2", "x" * 1000]


@pytest.mark.parametrize("level", [*UNKNOWN, *(name for name in LEVELS if name not in AVAILABLE)])
def test_impossible_isa_is_an_error_at_each_use(level: str) -> None:
    *messages, mended = run_python(USE_BAD_LEVEL, level, CBQUANT_ISA=level).splitlines()
    if level in LEVELS:
        expected = f"CBQUANT_ISA: this machine cannot run '{level}'; it can run {', '.join(AVAILABLE)}"
    else:
        expected = f"CBQUANT_ISA: expected one of {', '.join(LEVELS)}, got '{level[:60]}'"
    assert messages == [expected] * 3
    assert mended == AVAILABLE[-1]


# ---- cpuid and XCR0 ----

# Register (in the order of the arguments) and bit: Intel SDM volume 2A, CPUID, leaves 1, 7.0 and 7.1.
CPUID = {
    "FMA": (0, 12),
    "OSXSAVE": (0, 27),
    "AVX": (0, 28),
    "F16C": (0, 29),
    "AVX2": (1, 5),
    "BMI2": (1, 8),
    "AVX512F": (1, 16),
    "AVX512DQ": (1, 17),
    "AVX512BW": (1, 30),
    "AVX512VL": (1, 31),
    "AVX512VBMI": (2, 1),
    "AVX512VNNI": (2, 11),
    "AVX_VNNI": (3, 4),
    "AVX512BF16": (3, 5),
}
ALL = set(CPUID)
STATES = {"OSXSAVE", "AVX"}  # they say what may be used; no kernel needs them for themselves

HASWELL = STATES | {"AVX2", "BMI2", "FMA", "F16C"}
ALDER_LAKE = HASWELL | {"AVX_VNNI"}
SKYLAKE_X = HASWELL | {"AVX512F", "AVX512DQ", "AVX512BW", "AVX512VL"}
ICE_LAKE = SKYLAKE_X | {"AVX512VBMI", "AVX512VNNI"}
ZEN4 = ICE_LAKE | {"AVX512BF16"}

# Bits of XCR0 (SDM volume 1, 13.3): what the operating system saves.
X87, SSE, YMM, OPMASK, ZMM_HIGH, ZMM_16_31 = (1 << bit for bit in (0, 1, 2, 5, 6, 7))
XCR0_AVX = X87 | SSE | YMM
XCR0_AVX512 = XCR0_AVX | OPMASK | ZMM_HIGH | ZMM_16_31


def feature_bits() -> dict[str, int]:
    """The names and bits of csrc/cpu.h."""
    text = (ROOT / "csrc" / "cpu.h").read_text()
    return {name: 1 << int(bit) for name, bit in re.findall(r"CBQ_CPU_(\w+) = 1 << (\d+)", text)}


def features(cpu: set[str], xcr0: int) -> set[str]:
    registers = [0, 0, 0, 0]
    for register, bit in (CPUID[name] for name in cpu):
        registers[register] |= 1 << bit
    found = _core.x86_features(*registers, xcr0)
    names = {name for name, bit in feature_bits().items() if found & bit}
    assert sum(feature_bits()[name] for name in names) == found  # no bit without a name
    return names


@pytest.mark.parametrize(
    ("cpu", "xcr0", "expected"),
    [
        pytest.param(HASWELL, XCR0_AVX, HASWELL - STATES, id="haswell"),
        pytest.param(ALDER_LAKE, XCR0_AVX, ALDER_LAKE - STATES, id="alder-lake"),
        pytest.param(SKYLAKE_X, XCR0_AVX512, SKYLAKE_X - STATES, id="skylake-x, which has no VBMI"),
        pytest.param(ICE_LAKE, XCR0_AVX512, ICE_LAKE - STATES, id="ice-lake"),
        pytest.param(ZEN4, XCR0_AVX512, ZEN4 - STATES, id="zen4"),
        pytest.param(ALL, XCR0_AVX512 | 1 << 9 | 3 << 17, ALL - STATES, id="everything"),
        pytest.param(ALL - {"OSXSAVE"}, XCR0_AVX512, set(), id="no OSXSAVE"),
        pytest.param(ALL - {"AVX"}, XCR0_AVX512, set(), id="no AVX"),
        pytest.param(set(), XCR0_AVX512, set(), id="nothing"),
        pytest.param(ALL, 0, set(), id="no XCR0"),
        pytest.param(ALL, X87 | SSE, set(), id="ymm not saved"),
        pytest.param(ALL, XCR0_AVX512 & ~SSE, set(), id="xmm not saved"),
        pytest.param(ALL, XCR0_AVX512 & ~YMM, set(), id="zmm saved, ymm not"),
        pytest.param(ZEN4, XCR0_AVX, HASWELL - STATES, id="zmm not saved"),
        pytest.param(ZEN4, XCR0_AVX512 & ~OPMASK, HASWELL - STATES, id="masks not saved"),
        pytest.param(ZEN4, XCR0_AVX512 & ~ZMM_HIGH, HASWELL - STATES, id="upper halves not saved"),
        pytest.param(ZEN4, XCR0_AVX512 & ~ZMM_16_31, HASWELL - STATES, id="zmm16..31 not saved"),
    ],
)
def test_features_are_those_that_cpu_and_system_both_have(cpu: set[str], xcr0: int, expected: set[str]) -> None:
    assert features(cpu, xcr0) == expected


@pytest.mark.parametrize("name", sorted(ALL - STATES))
def test_each_feature_is_a_bit_of_its_own(name: str) -> None:
    lost = {f for f in ALL if f.startswith("AVX512")} if name == "AVX512F" else {name}
    assert features(ALL - {name}, XCR0_AVX512) == ALL - STATES - lost


# The flags of /proc/cpuinfo that each level stands on.
AVX2_FLAGS = {"avx2", "fma", "f16c"}
AVX512_FLAGS = AVX2_FLAGS | {"bmi2", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vbmi"}
FLAGS = {
    "scalar": set[str](),
    "avx2": AVX2_FLAGS,
    "avxvnni": AVX2_FLAGS | {"avx_vnni"},
    "avx512": AVX512_FLAGS,
    "avx512vnni": AVX512_FLAGS | {"avx512_vnni"},
    "avx512bf16": AVX512_FLAGS | {"avx512_vnni", "avx512_bf16"},
    "neon": {"asimd"},
    "neon_dotprod": {"asimd", "asimddp"},
    "neon_i8mm": {"asimd", "asimddp", "i8mm"},
    "neon_bf16": {"asimd", "asimddp", "i8mm", "bf16"},
}


@pytest.mark.skipif(platform.system() != "Linux", reason="compares with /proc/cpuinfo")
def test_levels_are_those_that_the_kernel_reports() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), ":").split(":")[1].split()
    assert [name for name in LEVELS if FLAGS[name] <= set(flags)] == AVAILABLE


# ---- cgroups ----

V1_QUOTA, V1_PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
LIMITED = {"a/cpu.max": "200000 100000\n"}
CGROUPS: dict[str, tuple[str, dict[str, str], int]] = {
    "v2 without a limit": ("0::/a\n", {"a/cpu.max": "max 100000\n"}, 0),
    "v2 one and a half": ("0::/a\n", {"a/cpu.max": "150000 100000\n"}, 2),
    "v2 whole cores": ("0::/a\n", {"a/cpu.max": "300000 100000\n"}, 3),
    "v2 a fraction": ("0::/a\n", {"a/cpu.max": "1000 100000\n"}, 1),
    "v2 another period": ("0::/a\n", {"a/cpu.max": "100000 25000\n"}, 4),
    "v2 tighter parent": ("0::/a/b/c\n", {**LIMITED, "a/b/c/cpu.max": "400000 100000\n"}, 2),
    "v2 tighter child": ("0::/a/b\n", {**LIMITED, "a/b/cpu.max": "100000 100000\n"}, 1),
    "v2 parent only": ("0::/a/b\n", {**LIMITED, "a/b/cpu.max": "max 100000\n"}, 2),
    "v2 sibling": ("0::/b\n", {**LIMITED, "b/cpu.max": "max 100000\n"}, 0),
    "v2 root of a container": ("0::/\n", {"cpu.max": "300000 100000\n"}, 3),
    "v2 path of the host": ("0::/docker/1234\n", {"cpu.max": "300000 100000\n"}, 3),
    "v2 colon in the path": ("0::/a:b\n", {"a:b/cpu.max": "300000 100000\n"}, 3),
    "v2 no newline": ("0::/a", LIMITED, 2),
    "v1": ("4:cpu,cpuacct:/a\n", {f"cpu/a/{V1_QUOTA}": "250000\n", f"cpu/a/{V1_PERIOD}": "100000\n"}, 3),
    "v1 in another order": ("4:cpuacct,cpu:/\n", {f"cpu/{V1_QUOTA}": "200000\n", f"cpu/{V1_PERIOD}": "100000\n"}, 2),
    "v1 between others": ("4:a,cpu,b:/\n", {f"cpu/{V1_QUOTA}": "200000\n", f"cpu/{V1_PERIOD}": "100000\n"}, 2),
    "v1 alone": ("1:cpu:/\n", {f"cpu/{V1_QUOTA}": "200000\n", f"cpu/{V1_PERIOD}": "100000\n"}, 2),
    "v1 without a limit": ("1:cpu:/\n", {f"cpu/{V1_QUOTA}": "-1\n", f"cpu/{V1_PERIOD}": "100000\n"}, 0),
    "v1 without a period": ("1:cpu:/\n", {f"cpu/{V1_QUOTA}": "200000\n"}, 0),
    "v1 other controllers": (
        "1:cpuset:/\n2:cpuacct:/\n3:name=cpu:/\n",
        {f"cpu/{V1_QUOTA}": "200000\n", f"cpu/{V1_PERIOD}": "100000\n"},
        0,
    ),
    "both versions": (
        "1:cpu:/\n0::/a\n",
        {**LIMITED, f"cpu/{V1_QUOTA}": "100000\n", f"cpu/{V1_PERIOD}": "100000\n"},
        1,
    ),
    "more than there can be": ("0::/a\n", {"a/cpu.max": "999999999999 1\n"}, 512),
    "largest numbers": ("0::/a\n", {"a/cpu.max": f"{2**63 - 1} 100000\n"}, 512),
    "no files": ("0::/a\n1:cpu:/a\n", {}, 0),
    "empty membership": ("", LIMITED, 0),
    "junk membership": ("junk\n:\n::\n\n\0::/a\n1:cpu\n", LIMITED, 0),
    "endless line": ("0::/" + "a/" * 5000 + "\n", {"cpu.max": "200000 100000\n"}, 2),
    **{
        f"junk {value!r}": ("0::/a\n", {"a/cpu.max": value}, 0)
        for value in ("", "\n", "junk", "100000", "100000 0\n", "100000 -1\n", "-1 100000\n", "0 100000\n", "\0")
    },
}


@pytest.mark.parametrize(("membership", "files", "cores"), CGROUPS.values(), ids=CGROUPS)
def test_cgroup_quota(tmp_path: Path, membership: str, files: dict[str, str], cores: int) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        file = tmp_path / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert _core.cgroup_cpus(str(tmp_path / "membership"), str(tmp_path / "mount")) == cores


def test_cgroup_quota_without_cgroups(tmp_path: Path) -> None:
    assert _core.cgroup_cpus(str(tmp_path / "none"), str(tmp_path)) == 0
    assert _core.cgroup_cpus(str(tmp_path), str(tmp_path)) == 0  # a folder


# ---- import ----

PRINT_IMPORTS = """
import json, sys, time, numpy
before = set(sys.modules)
begin = time.perf_counter()
import cbquant
milliseconds = 1e3 * (time.perf_counter() - begin)
print(json.dumps({"modules": sorted(set(sys.modules) - before), "milliseconds": milliseconds}))
"""


def test_import_loads_little(record_property: Any) -> None:
    """Readers, reference, command line and every package but NumPy wait for their first use."""
    done = json.loads(run_python(PRINT_IMPORTS))
    modules = done["modules"]
    own = {name for name in modules if name.partition(".")[0] == "cbquant"}
    assert own == {
        "cbquant",
        *(f"cbquant.{name}" for name in ("_api", "_arguments", "_buffer", "_core", "_formats", "_table")),
    }
    assert {name.partition(".")[0] for name in set(modules) - own} <= {*sys.stdlib_module_names, "numpy"}
    record_property("import_ms", done["milliseconds"])
    print(f"import cbquant, after numpy: {done['milliseconds']:.1f} ms")


def test_last_cache_is_the_one_that_a_core_sees():
    caches = [(int((cache / "level").read_text()), (cache / "size").read_text()) for cache in CACHES.glob("index*")]
    if not caches:
        pytest.skip("the operating system does not tell the caches of a core")
    kibibytes = max(caches, key=lambda cache: cache[0])[1].strip().removesuffix("K")
    assert _core.last_cache_bytes() == int(kibibytes) << 10
