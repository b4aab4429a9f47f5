"""Measuring: for each shape, format and number of rows of x, all precisions, numbers of threads, peers and limits in
the same rounds."""

from __future__ import annotations

from contextlib import ExitStack

import cbquant
from benchmarks import peaks
from benchmarks.ceilings import Crew
from benchmarks.matmul.peers import Peer, chosen
from benchmarks.matmul.plan import Plan, shape_word
from benchmarks.matmul.weights import Dense, Floats, Operand, Packed, aligned, own_operand, rows_of_x
from benchmarks.plan import Done
from benchmarks.report import Row
from benchmarks.timing import Call, Timing, measure
from cbquant._formats import Format

#: Who is timed: what kind of candidate, its name, and its threads.
Key = tuple[str, str, int]
#: A family of peers and weights as one of them has them.
Named = tuple[str, Operand]

_OWN, _READ, _INTEGERS, _FLOATS = "cbquant", "read", "integers", "floats"


class Run:
    """Measuring a plan.

    Parameters
    ----------
    plan : Plan
    done : callable
        Called for each format and number of rows.

    Attributes
    ----------
    notes : list of str
        What was not measured, and why.
    """

    def __init__(self, plan: Plan, done: Done) -> None:
        self._plan, self._done = plan, done
        self._crews = [Crew(count) for count in plan.threads]
        self._most = max(plan.threads)
        self._memory = peaks.Memory() if 1 in plan.ms else None
        self.notes: list[str] = []

    def rows(self) -> list[Row]:
        """The rows of all products."""
        peers = chosen(self._plan.peers)
        rows = []
        for n, k in self._plan.shapes:
            with ExitStack() as stack:
                dense = self._dense_operands(peers, n, k, stack)
                for fmt in self._plan.formats:
                    rows += self._products(fmt, n, k, peers, dense)
        return rows

    def _dense_operands(self, peers: dict[str, Peer], n: int, k: int, stack: ExitStack) -> dict[int, list[Named]]:
        """For each number of rows the peers that multiply with decoded weights, and do it right."""
        loaders = [(peer.family, peer.dense) for peer in peers.values() if peer.dense]
        if not loaders:
            return {m: [] for m in self._plan.ms}
        weights = Dense(n, k)
        operands = [(family, operand) for family, load in loaders for operand in load(weights, stack)]
        return {m: self._sound(operands, "decoded weights", weights.floats, m) for m in self._plan.ms}

    def _products(
        self, fmt: Format, n: int, k: int, peers: dict[str, Peer], dense: dict[int, list[Named]]
    ) -> list[Row]:
        rows = []
        with ExitStack() as stack:
            weights = Packed(fmt, n, k)
            own = self._own_operands(weights)
            loaders = [(peer.family, peer.packed) for peer in peers.values() if peer.packed]
            packed = [(family, operand) for family, load in loaders for operand in load(weights, stack)]
            for m in self._plan.ms:
                self._check_own(own, fmt, weights.floats, m)
                others = self._sound(packed, fmt.name, weights.floats, m) + dense[m]
                rows += self._one(weights, m, own, others)
                self._done(f"{fmt.name} M={m}")
        return rows

    def _own_operands(self, weights: Packed) -> dict[str, Operand]:
        """The precisions that the format knows."""
        found = {}
        for mode in self._plan.modes:
            operand = own_operand(weights, mode)
            try:
                operand.calls(rows_of_x(1, weights.k), aligned(1, weights.n), 1)[0]()
            except ValueError as error:
                self.notes.append(f"no {mode} of {weights.fmt.name}: {error}")
            else:
                found[mode] = operand
        return found

    def _check_own(self, operands: dict[str, Operand], fmt: Format, floats: Floats, m: int) -> None:
        for mode, error in self._errors(list(operands.items()), floats, m).items():
            if not error <= operands[mode].tolerance:
                raise RuntimeError(f"{fmt.name}, {mode}, M={m}: the product of cbquant is wrong by {error:.1e}")

    def _sound(self, operands: list[Named], what: str, floats: Floats, m: int) -> list[Named]:
        """Those of the operands whose product is right; of the others there is a note."""
        errors = self._errors([(operand.name, operand) for _, operand in operands], floats, m)
        sound = []
        for family, operand in operands:
            if errors[operand.name] <= operand.tolerance:
                sound.append((family, operand))
            else:
                error = f"{errors[operand.name]:.1e}"
                self.notes.append(f"no {operand.name} of {what} at M={m}: its product is wrong by {error}")
        return sound

    def _errors(self, operands: list[tuple[str, Operand]], floats: Floats, m: int) -> dict[str, float]:
        x, out = rows_of_x(m, floats.shape[1]), aligned(m, floats.shape[0])
        expected = x @ floats.T
        return {name: operand.error(x, out, self._most, expected) for name, operand in operands}

    def _one(self, weights: Packed, m: int, own: dict[str, Operand], others: list[Named]) -> list[Row]:
        """One number of rows of x."""
        x, out = rows_of_x(m, weights.k), aligned(m, weights.n)
        cold = m <= self._plan.cold_m
        candidates: dict[Key, list[Call]] = {}
        limits = self._limits(m)
        for crew in self._crews:
            operands = [(_OWN, mode, operand) for mode, operand in own.items()]
            operands += [(family, operand.name, operand) for family, operand in others]
            for kind, name, operand in operands:
                candidates[kind, name, crew.threads] = [operand.call(x, out, crew.threads, cold)]
        candidates |= {key: [peak.call] for key, peak in limits.items()}
        plan = self._plan
        timings = measure(candidates, plan.rounds_at(m), plan.sample_seconds_at(m), quiet=True)
        speeds = {key: peak.work / timings[key].seconds for key, peak in limits.items()}
        return [_row(weights, m, mode, crew.threads, cold, timings, speeds) for crew in self._crews for mode in own]

    def _limits(self, m: int) -> dict[Key, peaks.Peak]:
        """What the machine can do at most, where products with so many rows are compared with it."""
        level = cbquant.info()["isa"]
        found: dict[Key, peaks.Peak] = {}
        for crew in self._crews:
            kinds = {}
            if m == 1 and self._memory:
                kinds[_READ] = self._memory.reads(crew)
            if m in self._plan.peak_ms:
                kinds[_INTEGERS] = peaks.arithmetic(peaks.INTEGERS, level, crew)
                kinds[_FLOATS] = peaks.arithmetic(peaks.FLOATS, level, crew)
            for kind, ways in kinds.items():
                found |= {(kind, name, crew.threads): peak for name, peak in ways.items()}
        return found


def _row(
    weights: Packed,
    m: int,
    mode: str,
    threads: int,
    cold: bool,
    timings: dict[Key, Timing],
    speeds: dict[Key, float],
) -> Row:
    """What was measured of one product; the ratios come later."""
    own = timings[_OWN, mode, threads]
    peer_seconds: dict[str, dict[str, float]] = {}
    for (kind, name, count), timing in timings.items():
        if count == threads and kind not in (_OWN, _READ, _INTEGERS, _FLOATS):
            peer_seconds.setdefault(kind, {})[name] = timing.seconds
    limits: dict[str, dict[str, float]] = {_READ: {}, _INTEGERS: {}, _FLOATS: {}}
    for (kind, name, count), speed in speeds.items():
        if count == threads:
            limits[kind][name] = speed
    return {
        "format": weights.fmt.name,
        "shape": shape_word(weights.n, weights.k),
        "m": m,
        "mode": mode,
        "threads": threads,
        "seconds": own.seconds,
        "spread": own.spread,
        "operations": 2 * m * weights.n * weights.k,
        "stored_bytes": weights.cold.nbytes,
        "weights_from_memory": cold and weights.cold.are_cold,
        "peer_seconds": peer_seconds,
        "limits": limits,
    }
