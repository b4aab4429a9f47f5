"""Other decoders: section C, one thread each, on the same blocks, and into the same memory where they can."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.blocks import random_blocks
from benchmarks.dequant import targets
from benchmarks.dequant.cache import ring_of_blocks
from benchmarks.dequant.plan import Plan
from benchmarks.machine import distribution_version, touched_memory
from benchmarks.plan import Done
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure, ratio
from benchmarks.words import size_word
from cbquant import _core
from cbquant._buffer import PLAIN_DTYPES
from cbquant._formats import Format
from tests import oracles

_OWN = "cbquant"
# gguf-py works on groups of rows: the length of a row of a weight matrix suits it.
_ROW = 4096

#: Gives a peer's call that decodes uint8 ``[bytes]`` to float32 ``[elements]``, or None where it has no decoder for
#: the format. The call returns the values where it does not write them to the array.
Prepare = Callable[[Format, NDArray[np.uint8], NDArray[np.float32]], "Call | None"]


def ggml_call(fmt: Format, raw: NDArray[np.uint8], out: NDArray[np.float32]) -> Call | None:
    """ggml's ``to_float``, the C function behind llama.cpp, of the build that PyPI's pywhispercpp carries."""
    ggml = oracles.Ggml()
    if not ggml.knows(fmt.tag):
        return None
    to_float = oracles._ToFloat(ggml._traits(fmt.tag).to_float)
    return partial(to_float, raw.ctypes.data, out.ctypes.data, out.size)


def gguf_py_call(fmt: Format, raw: NDArray[np.uint8], out: NDArray[np.float32]) -> Call | None:
    """``gguf.quants.dequantize``, which allocates its result."""
    import gguf

    columns = min(_ROW, out.size)
    rows = raw.reshape(out.size // columns, -1)
    try:
        call = partial(gguf.quants.dequantize, rows, gguf.GGMLQuantizationType(fmt.tag))
        # A view (f32) is no conversion.
        return None if np.may_share_memory(call(), raw) else call
    except (NotImplementedError, ValueError):  # no decoder; a type that this version does not know
        return None


def numpy_call(fmt: Format, raw: NDArray[np.uint8], out: NDArray[np.float32]) -> Call | None:
    """NumPy's conversion of the plain types; bfloat16 is that of ml_dtypes."""
    if fmt.kind != "plain":
        return None
    name = PLAIN_DTYPES[fmt.name]
    if name == "bfloat16":
        if distribution_version("ml_dtypes") is None:
            return None
        import ml_dtypes

        return partial(np.copyto, out, raw.view(ml_dtypes.bfloat16))
    return partial(np.copyto, out, raw.view(name), casting="unsafe")


PEERS: dict[str, Prepare] = {"ggml": ggml_call, "gguf-py": gguf_py_call, "NumPy": numpy_call}


def present() -> dict[str, Prepare]:
    """The peers that are installed."""
    found = {"ggml": oracles.Ggml.available(), "gguf-py": distribution_version("gguf") is not None, "NumPy": True}
    return {peer: prepare for peer, prepare in PEERS.items() if found[peer]}


def notes() -> list[str]:
    """What is not compared with, for want of what."""
    needs = {"ggml": "pywhispercpp", "gguf-py": "gguf"}
    absent = [f"no {peer}: pip install {needs[peer]}" for peer in PEERS if peer not in present()]
    if distribution_version("ml_dtypes") is None:
        absent.append("no bf16 of NumPy: pip install ml_dtypes")
    return absent


def versions() -> dict[str, str]:
    """The versions of the peers that are installed."""
    found = {"gguf-py": distribution_version("gguf"), "ml_dtypes": distribution_version("ml_dtypes")}
    if oracles.Ggml.available():
        ggml_version = oracles._library().ggml_version  # type: ignore[union-attr]
        ggml_version.restype = ctypes.c_char_p
        found["ggml"] = f"{ggml_version().decode()} (pywhispercpp {distribution_version('pywhispercpp')})"
    return {peer: version for peer, version in found.items() if version is not None}


def against_peers(plan: Plan, done: Done) -> list[Row]:
    """Section C: a row for each format, peer and size, then the geometric means."""
    peers = present()
    rows: list[Row] = []
    for fmt in plan.formats:
        for nbytes in (plan.cache_bytes, plan.matrix_bytes):
            out = touched_memory(nbytes).view(np.float32)
            in_cache = nbytes == plan.cache_bytes
            ring = ring_of_blocks(fmt, out.size) if in_cache else [random_blocks(fmt, out.size)]
            rows += _one_format(fmt, ring, out, peers, plan)
        done(fmt.name)
    return rows + _means(rows)


def _one_format(
    fmt: Format,
    ring: list[NDArray[np.uint8]],
    out: NDArray[np.float32],
    peers: dict[str, Prepare],
    plan: Plan,
) -> list[Row]:
    candidates: dict[str, list[Call]] = {
        _OWN: [partial(_core.dequant, raw, fmt.name, out, "float32", 1) for raw in ring]
    }
    for peer, prepare in peers.items():
        calls = [call for raw in ring if (call := prepare(fmt, raw, out)) is not None]
        if calls:
            _check(peer, fmt, ring[0], calls[0], out)
            candidates[peer] = calls
    timings = measure(candidates, plan.rounds, plan.sample_seconds)
    own = timings.pop(_OWN)
    return [
        {
            "format": fmt.name,
            "variant": f"{peer}, {size_word(out.nbytes)}",
            "peer": peer,
            "kind": fmt.kind,
            "output_bytes": out.nbytes,
            "seconds": own.seconds,
            "spread": own.spread,
            "peer_seconds": timing.seconds,
            "figure": ratio(timing, own),
            "judged": judge(ratio(timing, own), ">=", targets.peer_each(fmt, peer)),
        }
        for peer, timing in timings.items()
    ]


def _check(peer: str, fmt: Format, raw: NDArray[np.uint8], call: Call, out: NDArray[np.float32]) -> None:
    """Both have to do the same work. That bits agree is for the tests to say; near is enough here."""
    own = np.empty_like(out)
    _core.dequant(raw, fmt.name, own, "float32", 1)
    out.fill(np.nan)
    returned: Any = call()
    values = out if returned is None else returned.reshape(-1)
    if not np.allclose(values, own, rtol=1e-5, atol=0):
        raise RuntimeError(f"{fmt.name}: {peer} and cbquant decode the same blocks to different values")


def _means(rows: list[Row]) -> list[Row]:
    """Geometric means over the block formats that a peer has. Judged is the size that fits a cache: at the other one
    memory, which is the same for all, is most of the time."""
    means = []
    smallest = min((row["output_bytes"] for row in rows), default=0)
    in_cache = {row["variant"] for row in rows if row["output_bytes"] == smallest}
    for variant, peer in {row["variant"]: row["peer"] for row in rows}.items():
        times = [row["figure"] for row in rows if row["variant"] == variant and row["kind"] != "plain"]
        if not times:
            continue
        mean = statistics.geometric_mean(times)
        means.append(
            {
                "format": None,
                "formats": len(times),
                "variant": variant,
                "peer": peer,
                "figure": mean,
                "judged": judge(mean, ">=", targets.PEER_MEANS.get(peer) if variant in in_cache else None),
            }
        )
    return means
