"""Ceilings of what kernels take, in ceilings.json beside this file. To renew it after a change, and read the diff:

python -m tests.cuda.ceilings --write

Hard limits hold for any nvcc: nothing is spilled, registers leave room for the CTAs that the launch bounds promise,
bytes move 16 at a time, and products in bf16 are made by tensor cores. The table's own numbers count for the nvcc that
it names, with some slack, as another one chooses otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cbquant
from tests.cuda.disassembly import Usage, usage, why_not
from tests.cuda.ptx_modules import ARCHITECTURES, kernels_ptx
from tests.paths import ROOT
from tests.ptx.nvcc import find_nvcc, make_cubin, nvcc_release

HOPPER = "sm_90a"
TABLE = Path(__file__).with_name("ceilings.json")
#: A kernel may take so many registers more than the table says, and so many times the instructions.
SLACK_REGISTERS, SLACK_INSTRUCTIONS = 8, 1.25
#: Registers of a thread, of 65536 on a multiprocessor, for CTAs of 128 threads: four of products for 8 rows of x, two
#: for 64 rows, eight of what only moves bytes; of others, what there is.
#: That for 256 rows has 384 threads, and shares its registers out when it runs.
MOST_REGISTERS = {8: 128, 64: 255, 256: 168}
MOST_TO_MOVE, MOST = 64, 255
MOVERS = ("cbq_dequant_", "cbq_pack_", "cbq_unpack_", "cbq_route_", "cbq_moe_sum", "cbq_wgmma_pack")
BLOCKS = {f.name for f in cbquant.formats() if f.kind != "plain"}


def measure(folder: str = "kernels") -> dict[str, dict[str, Usage]]:
    """Every kernel of a folder of cuda/ for each architecture, compiled side by side."""
    sources = [path for path in sorted((ROOT / "cuda" / folder).glob("*.cu")) if path.stem != "list"]
    jobs = [(source, arch) for source in sources for arch in ARCHITECTURES]
    jobs.sort(key=lambda job: -job[0].stat().st_size)  # the longest first
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda job: usage(make_cubin(kernels_ptx(*job), job[1])), jobs))
    kernels: dict[str, dict[str, Usage]] = {arch: {} for arch in ARCHITECTURES}
    for (_, arch), of_file in zip(jobs, found, strict=True):
        # Other architectures than Hopper have that kernel's name alone.
        kernels[arch].update((name, u) for name, u in of_file.items() if arch == HOPPER or "_bf16_wgmma_" not in name)
    return kernels


def beyond_limits(name: str, u: Usage) -> Iterator[str]:
    """What no compiler may make of a kernel."""
    if u.stack or u.local:
        yield f"{name}: registers are spilled: {u.stack} bytes of stack, {u.local} loads and stores of it"
    most = most_registers(name)
    if u.registers > most:
        yield f"{name}: {u.registers} registers, at most {most} leave room for its CTAs"
    for column, least in least_of(name).items():
        if getattr(u, column) < least:
            yield f"{name}: {getattr(u, column)} {column} of 16 bytes or on tensor cores, expected some"
    if "_f32_8" in name and u.tensor:
        yield f"{name}: {u.tensor} products on tensor cores, which have no float32"


def most_registers(name: str) -> int:
    tokens = tokens_of(name)
    return MOST_REGISTERS[tokens] if tokens else MOST_TO_MOVE if name.startswith(MOVERS) else MOST


def tokens_of(name: str) -> int | None:
    """Rows of x that a tile of a product has; None for other kernels."""
    match = re.search(r"(?:matmul_\w+|sum_parts)_(8|64|256)$", name)
    return int(match[1]) if match else None


def least_of(name: str) -> dict[str, int]:
    if match := re.fullmatch(r"cbq_dequant_(\w+)_(?:f32|f16|bf16)", name):
        return {"loads": 1, "stores": 1} if match[1] in BLOCKS or match[1].endswith("_codes") else {}
    if "cbq_matmul_" in name:
        return {"copies": 1, "tensor": 1 if name.endswith(("_bf16_8", "_bf16_64")) else 0}
    return {}


def beyond_table(name: str, u: Usage, known: Usage) -> Iterator[str]:
    """What is worse than when the table was written."""
    if u.registers > known.registers + SLACK_REGISTERS:
        yield f"{name}: {u.registers} registers, the table has {known.registers}"
    if u.shared > known.shared:
        yield f"{name}: {u.shared} bytes of static shared memory, the table has {known.shared}"
    for column in ("loads", "stores", "copies", "tensor"):
        if getattr(u, column) < getattr(known, column):
            yield f"{name}: {getattr(u, column)} {column}, the table has {getattr(known, column)}"
    if u.instructions > known.instructions * SLACK_INSTRUCTIONS:
        yield f"{name}: {u.instructions} instructions, the table has {known.instructions}"
    if per_weight(name, u) > per_weight(name, known) * SLACK_INSTRUCTIONS:
        of_loop = f"{per_weight(name, u):.2f} instructions for each weight in its loop"
        yield f"{name}: {of_loop}, the table has {per_weight(name, known):.2f}"


def per_weight(name: str, u: Usage) -> float:
    """Instructions of a lane for each weight that it decodes and multiplies, in a product's loop: a lane decodes 16
    weights for 2 products on tensor cores with each 8 rows of x. What the tensor cores hide is rows / 16. With wgmma a
    product takes all rows of x."""
    tokens = tokens_of(name)
    if not tokens or not u.loop_tensor:
        return 0.0
    return u.loop / (8 * u.loop_tensor) if "_wgmma_" in name else u.loop * tokens / (64 * u.loop_tensor)


def compare(kernels: dict[str, dict[str, Usage]], table: dict[str, Any], release: str) -> list[str]:
    """All findings, each a line."""
    lines = []
    for arch, of_arch in kernels.items():
        found = [line for name, u in of_arch.items() for line in beyond_limits(name, u)]
        if release == table["nvcc"]:
            known = {name: Usage(*row) for name, row in table[arch].items()}
            found += [f"{name}: not in the table" for name in of_arch.keys() - known.keys()]
            found += [f"{name}: in the table, but there is no such kernel" for name in known.keys() - of_arch.keys()]
            both = of_arch.keys() & known.keys()
            found += [line for name in both for line in beyond_table(name, of_arch[name], known[name])]
        lines += [f"{arch} {line}" for line in sorted(found)]
    return lines


def read() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text())
    if table["columns"] != list(Usage._fields):
        raise ValueError(f"{TABLE.name} has other columns: write it anew")
    return table


def write(kernels: dict[str, dict[str, Usage]], release: str) -> None:
    """One line a kernel, so that a diff can be read."""
    parts = [f' "nvcc": "{release}"', f' "columns": {json.dumps(Usage._fields)}']
    for arch, of_arch in kernels.items():
        rows = ",\n".join(f'  "{name}": {json.dumps(u)}' for name, u in sorted(of_arch.items()))
        parts.append(f' "{arch}": {{\n{rows}\n }}')
    TABLE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cuda.ceilings", description="Kernels against the table.")
    parser.add_argument("--write", action="store_true", help="write the table anew from what is measured")
    parser.add_argument("--limits", metavar="FOLDER", help="hold cuda/FOLDER, which has no table, to the hard limits")
    args = parser.parse_args()
    if reason := why_not() or (None if find_nvcc() else "nvcc not found"):
        print(reason, file=sys.stderr)
        return 2
    kernels, release = measure(args.limits or "kernels"), nvcc_release()
    if args.write and not args.limits:
        write(kernels, release)
    findings = compare(kernels, {"nvcc": None} if args.limits else read(), release)
    print("\n".join(findings) or f"{sum(map(len, kernels.values()))} kernels: nothing is beyond its ceiling")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
