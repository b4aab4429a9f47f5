"""Which lanes run next, and how they come together again.

Lanes at one pc run as one; of several such fronts the one at the lowest pc goes first, so that those who took
a shorter way wait for the others where the ways join. Correctness does not hang on that: an instruction that
lanes execute together holds its lanes back until their partners arrive, wherever they are. If all wait and
none can go on, it is a deadlock, and the message says who waits where.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import numpy as np

from .machine import ALL, WARP, Lanes, Machine
from .memory import Fault
from .program import Program

# With a seed: how many teams of warps drift apart, and how far one runs while the others stand.
_TEAMS = 4
_LONGEST_RUN = 64


class PtxError(Exception):
    """A kernel did what hardware would not do or not define; the message names kernel, line and thread.

    Attributes: kernel, line, lane (its number in the warp, or None), address (or None).
    """

    def __init__(
        self, message: str, kernel: str, line: int, lane: int | None = None, address: int | None = None
    ) -> None:
        super().__init__(message)
        self.kernel, self.line, self.lane, self.address = kernel, line, lane, address


class Scheduler:
    def __init__(
        self,
        machine: Machine,
        program: Program,
        stats: MutableMapping[str, int] | None,
        max_steps: int,
        rng: np.random.Generator | None,
    ) -> None:
        self.machine, self.program, self.stats = machine, program, stats
        self.steps_left = max_steps
        self.rng = rng
        self.parked: dict[int, Lanes] = {}  # pc -> lanes that wait for others
        count = 1 if rng is None else _TEAMS
        warps = machine.warps
        teams = np.zeros(warps, np.int64) if rng is None else rng.integers(count, size=warps)
        self.team_of_lane = np.repeat(teams, WARP)
        self.teams: list[dict[int, Lanes]] = [{} for _ in range(count)]  # pc -> lanes
        self.add(0, ALL if machine.live.all() else np.flatnonzero(machine.live))

    def run(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                if self.rng is not None and self.machine.hopper.barriers:
                    self.machine.hopper.drift(self.rng)
                    if self.rng.random() < 0.125:
                        self.release()
                runnable = [team for team in self.teams if team]
                if runnable:
                    self.advance(runnable[0 if self.rng is None else self.rng.integers(len(runnable))])
                elif not self.parked:
                    if self.machine.hopper.flights:
                        raise self.error(
                            0, Fault("the end, while copies in bulk are on their way"), np.empty(0, np.int64)
                        )
                    return
                elif not self.release() and not self.machine.hopper.go_on():
                    raise self.deadlock()

    def check_end(self) -> None:
        if self.machine.hopper.flights:
            last = len(self.program.instructions) - 1
            raise self.error(last, Fault("the end, while copies in bulk are on their way"), np.empty(0, np.int64))

    def add(self, pc: int, at: Lanes) -> None:
        """Lanes may go on at a pc: each joins its team."""
        if len(self.teams) == 1:
            self.join(self.teams[0], pc, at)
            return
        lanes = self.machine.numbers(at)
        of = self.team_of_lane[lanes]
        for k in np.unique(of):
            self.join(self.teams[k], pc, lanes[of == k])

    def join(self, fronts: dict[int, Lanes], pc: int, at: Lanes) -> None:
        if self.machine.count(at):
            fronts[pc] = self.machine.union(fronts[pc], at) if pc in fronts else at

    def advance(self, team: dict[int, Lanes]) -> None:
        """Run the lowest front of a team until it branches, waits, or meets the next front."""
        pc = min(team)
        at = team.pop(pc)
        stop = min(team, default=len(self.program.instructions))
        budget = stop if self.rng is None else int(self.rng.integers(1, _LONGEST_RUN))
        while pc < stop and budget:
            budget -= 1
            self.spend(pc)
            operation = self.program.operation(pc)
            active, idle = self.guarded(operation.instruction.guard, at)
            if active is None:
                pc += 1
                continue
            if operation.ready is not None:
                self.join(team, pc + 1, idle)
                self.meet(pc, active)
                return
            onward = self.execute(pc, active)
            if onward is not None:
                self.join(team, pc + 1, idle)
                for target, lanes in onward:
                    self.join(team, target, lanes)
                return
            pc += 1
        if pc == len(self.program.instructions):
            raise self.error(pc - 1, Fault("the end of the code without ret"), at)
        self.join(team, pc, at)

    def guarded(self, guard: tuple | None, at: Lanes) -> tuple[Lanes | None, Lanes]:
        """The lanes whose guard holds (None: nobody's), and the others."""
        nobody = np.empty(0, np.int64)
        if guard is None:
            return at, nobody
        holds = self.machine.read(guard.reg.slot, 1)[at] ^ guard.negated
        if holds.all():
            return at, nobody
        if not holds.any():
            return None, at
        return self.machine.select(at, holds), self.machine.select(at, ~holds)

    def execute(self, pc: int, at: Lanes) -> list[tuple[int, Lanes]] | None:
        operation = self.program.operation(pc)
        if self.stats is not None:
            opcode = operation.instruction.opcode
            self.stats[opcode] = self.stats.get(opcode, 0) + self.machine.count(at)
        try:
            return operation.step(self.machine, at)
        except Fault as fault:
            raise self.error(pc, fault, at) from None

    # -- meeting --------------------------------------------------------------------------------------------

    def meet(self, pc: int, at: Lanes) -> bool:
        """Lanes arrive where others must be too. Those whose partners are here go on; the rest is parked."""
        waiting = self.machine.mask(at)
        if pc in self.parked:
            waiting[self.parked.pop(pc)] = True
        try:
            ready = self.program.operation(pc).ready(self.machine, waiting)
        except Fault as fault:
            raise self.error(pc, fault, np.flatnonzero(waiting)) from None
        if ready.any():
            lanes = ALL if ready.all() else np.flatnonzero(ready)
            self.execute(pc, lanes)
            self.add(pc + 1, lanes)
        if (waiting & ~ready).any():
            self.parked[pc] = np.flatnonzero(waiting & ~ready)
        return bool(ready.any())

    def release(self) -> bool:
        """Nobody can run: does anyone still wait for a lane that has exited since?"""
        return any(self.meet(pc, np.empty(0, np.int64)) for pc in list(self.parked))

    # -- errors ---------------------------------------------------------------------------------------------

    def spend(self, pc: int) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise self.error(pc, Fault("still running after max_steps instructions"), np.empty(0, np.int64))

    def place(self, pc: int) -> str:
        instruction = self.program.instructions[pc]
        return f"line {instruction.line}: {instruction.text}"

    def error(self, pc: int, fault: Fault, at: Lanes) -> PtxError:
        lanes, kernel = self.machine.numbers(at), self.program.kernel.name
        lane = int(lanes[fault.position]) if fault.position < len(lanes) else None
        who = "" if lane is None else f"; {self.machine.who(lane)}"
        return PtxError(
            f"{kernel}: {self.place(pc)}: {fault}{who}",
            kernel,
            self.program.instructions[pc].line,
            None if lane is None else lane % WARP,
            fault.address,
        )

    def deadlock(self) -> PtxError:
        """Threads of one CTA that wait at different places for each other: a divergent barrier, mostly."""
        kernel, cta = self.program.kernel.name, self.machine.cta
        first = min(int(at[0]) for at in self.parked.values())
        mine = {pc: at[cta[at] == cta[first]] for pc, at in sorted(self.parked.items())}
        places = [
            f"{len(at)} threads, from {self.machine.who(int(at[0]))} on, wait at {self.place(pc)}"
            for pc, at in mine.items()
            if len(at)
        ]
        pc = next(pc for pc, at in mine.items() if len(at))
        what = "divergent barrier" if len(places) > 1 else "deadlock"
        message = f"{kernel}: {what}: " + "; ".join(places)
        return PtxError(message, kernel, self.program.instructions[pc].line, first % WARP)
