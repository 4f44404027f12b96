"""One sentence that says what a run's time goes to and what would make it faster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

DOMINANT_SHARE = 0.5
"""From here on one stage sets the pace: halving any other one gains less."""

_ADVICE = {
    "sample": "sampling-bound: {share} of the time in sampling; more evaluators (or environments in each) will help",
    "learn": "learning-bound: {share} of the time in SGD; more evaluators will not help",
    "wait": "waiting-bound: {share} of the time waiting for evaluators; look for slow, lost or still starting ones",
    "checkpoint": "checkpoint-bound: {share} of the time writing checkpoints; raise spec.checkpoint.every",
    "evaluate": "evaluation-bound: {share} of the time in evaluation; raise spec.evaluation.every",
}
STAGE_NAMES = {
    "sample": "sampling",
    "learn": "learning",
    "wait": "waiting",
    "checkpoint": "checkpoints",
    "evaluate": "evaluation",
}


def time_shares(stage_times_s: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Share (0 to 1) of the time by stage, over all iterations given; empty where no time was measured."""
    sums: dict[str, float] = {}
    for times_s in stage_times_s:
        for stage, time_s in times_s.items():
            sums[stage] = sums.get(stage, 0.0) + time_s
    total_s = sum(sums.values())
    return {stage: time_s / total_s for stage, time_s in sums.items()} if total_s > 0 else {}


def bottleneck_sentence(shares: Mapping[str, float]) -> str:
    """The sentence for shares (0 to 1) by stage: sample, learn, wait, checkpoint, evaluate."""
    if not shares:
        return "no time measured yet"
    stage, share = max(shares.items(), key=lambda item: item[1])
    if share >= DOMINANT_SHARE:
        return _ADVICE[stage].format(share=percent(share))
    return f"balanced: {shares_text(shares)}; no single stage sets the pace"


def shares_text(shares: Mapping[str, float], minimum: float = 0.005) -> str:
    """`42 % sampling, 51 % learning, 7 % waiting`: stages below `minimum` are left out."""
    return ", ".join(f"{percent(share)} {STAGE_NAMES[stage]}" for stage, share in shares.items() if share >= minimum)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
