"""Times on the GPU, by CUDA events around replays of a graph: what Python takes to call is not in them.

Not yet run on a GPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Call = Callable[[], object]


class Timing(NamedTuple):
    """Of one call: the median, the distance between the quartiles as a part of it, how many samples."""

    seconds: float
    spread: float
    samples: int
    captured: bool  # in a graph; else one call after the other

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


class Timer:
    """Times calls that work on torch's current stream.

    `ring`: calls that do the same on different data, one after the other, so that no data is left in a cache.
    """

    #: Seconds that one sample lasts at least, and that all of them take at most.
    SAMPLE, TOTAL = 2e-3, 0.15
    LEAST, MOST = 7, 60

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._stream = torch.cuda.Stream()

    def measure(self, ring: Sequence[Call]) -> Timing:
        torch = self._torch
        torch.cuda.synchronize()  # the data was made on another stream
        with torch.cuda.stream(self._stream):
            self._go(ring)  # compiles, reserves, loads
            once = self._seconds(lambda: self._go(ring))
            laps = max(1, math.ceil(self.SAMPLE / once))
            run, captured = self._capture(ring, laps)
            run()
            first = self._seconds(run)
            count = int(min(max(self.TOTAL / first, self.LEAST), self.MOST))
            samples = sorted(self._seconds(run) / (laps * len(ring)) for _ in range(count))
        median = statistics.median(samples)
        spread = samples[3 * count // 4] - samples[count // 4]
        return Timing(median, spread / median, count, captured)

    def _go(self, ring: Sequence[Call]) -> None:
        for call in ring:
            call()

    def _capture(self, ring: Sequence[Call], laps: int) -> tuple[Call, bool]:
        """The calls as a graph; one after the other where they cannot be captured, as a call that waits."""
        torch = self._torch
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                for _ in range(laps):
                    self._go(ring)
        except Exception:
            # Some peers allocate or wait in a call; that they cannot be captured is told with their time.
            torch.cuda.synchronize()

            def run() -> None:
                for _ in range(laps):
                    self._go(ring)

            return run, False
        return graph.replay, True

    def _seconds(self, call: Call) -> float:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(self._stream)
        call()
        end.record(self._stream)
        end.synchronize()
        return float(max(begin.elapsed_time(end), 1e-3)) / 1e3


def copies_past_cache(nbytes: int, cache_bytes: int, most_bytes: int) -> int:
    """How many pieces of that size a ring needs, so that each is gone from the cache when its turn comes.

    >>> copies_past_cache(10, 60, 1000), copies_past_cache(200, 60, 1000), copies_past_cache(10, 60, 50)
    (18, 1, 5)
    """
    if nbytes >= 2 * cache_bytes:
        return 1
    return max(1, min(math.ceil(3 * cache_bytes / nbytes), most_bytes // nbytes))
