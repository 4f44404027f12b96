"""`PolicyEvaluator.sample()` of a plain object, over and over; counts transitions, not autoreset steps."""

from __future__ import annotations

from benchmarks.worker import arguments, rate, report
from benchmarks.workers.jobs import evaluator, job


def main() -> None:
    """Measures one evaluator."""
    asked = arguments()
    ours = evaluator(job(asked["environment"]), asked["envs"], asked.get("fragment", 128), asked["threads"])
    figure, details = rate(lambda: ours.sample().agent_steps, asked["seconds"])
    ours.close()
    report(figure, **details)


if __name__ == "__main__":
    main()
