"""Operators next to NumPy (section B) and to torch in eager mode (section C), in float32."""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.deepseek import targets
from benchmarks.deepseek.cases import Case, check
from benchmarks.deepseek.elementwise import BY_ARITHMETIC, BY_MEMORY, chosen
from benchmarks.deepseek.plan import Plan
from benchmarks.machine import distribution_version
from benchmarks.plan import Done
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure, ratio
from benchmarks.words import threads_word


def torch_version() -> dict[str, str]:
    """torch's version, where it is installed."""
    version = distribution_version("torch")
    return {"torch": version} if version and importlib.util.find_spec("torch") else {}


def next_to_numpy(plan: Plan, done: Done) -> list[Row]:
    """A row for each operator and number of tokens: times NumPy's speed, both with one thread."""
    rows: list[Row] = []
    for maker in chosen((*BY_MEMORY, *BY_ARITHMETIC), plan.operators):
        for tokens in (plan.tokens, *plan.few_tokens):
            case = maker(plan, tokens, "float32")
            if case.numpy is not None:
                rows.append(_against(case, plan, tokens, 1, case.numpy, "NumPy"))
        done(maker.__name__)
    return rows


def next_to_torch(plan: Plan, done: Done) -> list[Row]:
    """A row for each operator, number of tokens and of threads: times torch's speed with as many threads."""
    import torch

    rows: list[Row] = []
    for maker in chosen((*BY_MEMORY, *BY_ARITHMETIC), plan.operators):
        for tokens in (plan.tokens, *plan.few_tokens):
            case = maker(plan, tokens, "float32")
            for threads in plan.threads:
                if case.torch is not None:
                    call = in_torch(torch, case.torch(torch), threads)
                    rows.append(_against(case, plan, tokens, threads, call, "torch"))
        done(maker.__name__)
    return rows


def in_torch(torch: Any, call: Call, threads: int) -> Call:
    """The call with so many threads, and without what gradients need."""

    def run() -> Any:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return call()

    return run


def _against(case: Case, plan: Plan, tokens: int, threads: int, peer: Call, name: str) -> Row:
    own = case.own(threads)
    own()
    check(case, peer(), name)
    candidates: dict[str, list[Call]] = {"own": [own], "peer": [peer]}
    timings = measure(candidates, plan.rounds, plan.sample_seconds, quiet=True)
    figure = ratio(timings["peer"], timings["own"])
    target = targets.of_torch(case.operator, tokens == plan.tokens) if name == "torch" else None
    return {
        "format": case.operator,
        "group": threads_word(threads),
        "variant": f"T = {tokens}",
        "peer": name,
        "threads": threads,
        "tokens": tokens,
        "seconds": timings["own"].seconds,
        "peer_seconds": timings["peer"].seconds,
        "spread": timings["own"].spread,
        "figure": figure,
        "judged": judge(figure, ">=", target),
    }
