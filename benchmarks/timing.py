"""Timing of calls against each other."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)


class Timing(NamedTuple):
    """How long one call takes."""

    #: the median of the rounds
    seconds: float
    #: the distance between the quartiles, as a part of the median
    spread: float


def measure(
    candidates: Mapping[Key, Sequence[Call]], rounds: int, sample_seconds: float = 0.0, quiet: bool = False
) -> dict[Key, Timing]:
    """Time candidates in turns, so that a drift of the machine's speed reaches all of them.

    Parameters
    ----------
    candidates : mapping
        A candidate is a ring of calls that do the same work on different data, made one after the other.
    rounds : int
        Samples of each candidate, at least 2.
    sample_seconds : float
        A sample goes round the ring as often as it takes to last this long, at least once.
    quiet : bool
        Before each sample, wait until the threads of the one before sleep: those of OpenMP and of a BLAS go on turning
        for a while after a call, in the way of the next candidate.

    Returns
    -------
    dict
        For each candidate the time of one call.

    Examples
    --------
    >>> timings = measure({"short": [lambda: sum(range(9))], "long": [lambda: sum(range(99999))]}, rounds=3)
    >>> ratio(timings["long"], timings["short"]) > 1
    True
    """
    laps = {key: _laps(calls, sample_seconds) for key, calls in candidates.items()}
    samples: dict[Key, list[float]] = {key: [] for key in candidates}
    order = list(candidates)
    for _ in range(rounds):
        for key in order:
            if quiet:
                _wait_for_quiet()
            samples[key].append(_sample(candidates[key], laps[key]))
        order.reverse()  # a drift that is steady hits the first of a round as hard as the last
    return {key: _timing(values) for key, values in samples.items()}


# How long to look whether something runs, and how long to wait at most: OpenBLAS turns for 0.1 seconds.
_LOOK, _PATIENCE = 1e-3, 0.2


def _wait_for_quiet() -> None:
    """Return when no thread of this process is running, or after `_PATIENCE`."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        before = time.process_time()
        time.sleep(_LOOK)
        if time.process_time() - before < _LOOK / 2:
            return


def _laps(calls: Sequence[Call], sample_seconds: float) -> int:
    if sample_seconds <= 0:
        return 1
    lap = len(calls) * min(_sample(calls, 1), _sample(calls, 1))
    return max(1, math.ceil(sample_seconds / lap))


def _sample(calls: Sequence[Call], laps: int) -> float:
    """Seconds a call. The lap before the clock starts leaves the caches as this candidate leaves them, not as the
    one before did; the last result is freed after the clock has stopped."""
    result: object = None
    for call in calls:
        call()
    begin = time.perf_counter()
    for _ in range(laps):
        for call in calls:
            result = call()
    seconds = time.perf_counter() - begin
    del result
    return seconds / (laps * len(calls))


def _timing(samples: Sequence[float]) -> Timing:
    first, median, third = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(median, (third - first) / median)


def ratio(slow: Timing, fast: Timing) -> float:
    """How many times as long `slow` takes.

    >>> ratio(Timing(6.0, 0.0), Timing(2.0, 0.0))
    3.0
    """
    return slow.seconds / fast.seconds


def fastest(timings: Mapping[Key, Timing]) -> Key:
    """The key of the shortest time.

    >>> fastest({"fill": Timing(2.0, 0.0), "memset": Timing(1.0, 0.0)})
    'memset'
    """
    return min(timings, key=lambda key: timings[key].seconds)
