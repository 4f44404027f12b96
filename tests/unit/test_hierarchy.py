"""Hierarchical control over real Ray: actors launch actors, and whoever is lost takes its own along.

What lives is read from Ray's own table of actors: an actor's owner is the process that launched it.
"""

import os
import signal
from typing import Any

import pytest

from rlcore.driver.build import build
from rlcore.driver.interrupt import Interrupt
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.run_directory import RunDirectory
from rlcore.driver.trial_runner import RemoteTrials
from tests.jobs import make_job, pools
from tests.runs import wait_until

IMPALA = {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 2}
PPOES = {
    "numDirections": 1, "trainBatchSize": 64, "minibatchSize": 32, "numEpochs": 1, "innerIterations": 1,
    "fitnessEpisodes": 1, "noiseTableSize": 100_000, "innerEvaluators": 2,
}  # fmt: skip


def table() -> list[dict[str, Any]]:
    """Every actor that Ray knows of, dead ones included."""
    import ray._private.state

    actors: dict[str, dict[str, Any]] = ray._private.state.actors()
    return list(actors.values())


def alive(kind: str | None = None) -> list[dict[str, Any]]:
    return [a for a in table() if a["State"] == "ALIVE" and kind in (None, a["ActorClassName"])]


def address(place: dict[str, Any]) -> tuple[str, int]:
    return place["IPAddress"], place["Port"]


def children(parent: dict[str, Any]) -> list[dict[str, Any]]:
    """Living actors that this one launched."""
    return [actor for actor in alive() if address(actor["OwnerAddress"]) == address(parent["Address"])]


def kinds(actors: list[dict[str, Any]]) -> list[str]:
    return sorted(actor["ActorClassName"] for actor in actors)


def kill(actor: dict[str, Any]) -> None:
    """Ends an actor's process as a lost node does: nothing in it can say goodbye."""
    os.kill(actor["Pid"], signal.SIGKILL)


def states_of(actors: list[dict[str, Any]]) -> set[str]:
    wanted = {actor["ActorID"] for actor in actors}
    return {actor["State"] for actor in table() if actor["ActorID"] in wanted}


@pytest.fixture
def trials(local_ray, tmp_path):
    """Two trials, each an actor that drives a job of its own."""
    directories = {n: RunDirectory(tmp_path / str(n), str(tmp_path / str(n) / "checkpoints")) for n in range(2)}
    runner = RemoteTrials(directories, Machine(cores=2, gpus=0), 2, Interrupt())
    yield runner
    runner.stop()
    wait_until(lambda: not alive("Trial") and not alive("_EvaluatorActor"), "nothing of the population is left")


def test_a_lost_trial_takes_its_evaluators_and_its_aggregation_tree_along(trials):
    job = make_job(algorithm="IMPALA", config={**IMPALA, "evaluatorsPerAggregator": 1}, evaluators=pools(2))
    list(trials.train({0: (job, 0), 1: (job, 1)}, 2))
    one, other = alive("Trial")
    launched = {actor["ActorID"]: children(actor) for actor in (one, other)}
    for actors in launched.values():
        # Two evaluators; an aggregator for each of them, and one above.
        assert kinds(actors) == ["Aggregator"] * 3 + ["_EvaluatorActor"] * 2
    kill(one)
    wait_until(lambda: states_of(launched[one["ActorID"]]) == {"DEAD"}, "the trial's actors are dead in Ray's table")
    assert states_of(launched[other["ActorID"]]) == {"ALIVE"}
    # Its successor goes on, with actors of its own; the other one trains on with those it has.
    reports = {report.trial: report.iteration for report in trials.train({0: (job, 0), 1: (job, 1)}, 3)}
    assert reports == {0: 3, 1: 3}
    assert trials.losses == 1
    assert states_of(launched[other["ActorID"]]) == {"ALIVE"}
    assert kinds(children(next(a for a in alive("Trial") if a["ActorID"] != other["ActorID"]))) == kinds(
        launched[one["ActorID"]]
    )


def test_actors_three_deep_end_with_the_uppermost(trials):
    """Driver -> trial -> PPO-ES's evaluator, itself a driver -> that one's evaluators."""
    job = make_job(algorithm="PPOES", config=PPOES, evaluators=pools(1), model={"hiddens": [8]})
    list(trials.train({0: (job, 0)}, 1))
    (trial,) = alive("Trial")
    (evaluator,) = children(trial)
    inner = children(evaluator)
    assert kinds(inner) == ["_EvaluatorActor"] * 2
    kill(trial)
    wait_until(lambda: states_of([evaluator, *inner]) == {"DEAD"}, "both generations are dead in Ray's table")


def test_a_small_tree_of_aggregators_trains_loses_a_leaf_and_ends_with_its_optimizer(local_ray):
    spec = make_job(algorithm="IMPALA", config={**IMPALA, "evaluatorsPerAggregator": 2}, evaluators=pools(4)).spec
    optimizer = build(spec, make_plan(spec, Machine(cores=4, gpus=0)), 0, use_ray=True).optimizer
    try:
        optimizer.step()
        tree = alive("Aggregator")
        assert len(tree) == 3  # two leaves of two evaluators each, and the root
        progress = optimizer.collect_metrics()
        assert progress.timesteps_trained == progress.timesteps_sampled > 0
        kill(tree[0])
        for _ in range(3):
            optimizer.step()
        progress = optimizer.collect_metrics()
        # Ray started it again, and repeated what it was joining: nothing was lost with it.
        assert progress.timesteps_trained == progress.timesteps_sampled > 0
        wait_until(lambda: len(alive("Aggregator")) == 3, "the leaf is back")
        assert sum(actor["NumRestarts"] for actor in alive("Aggregator")) == 1
    finally:
        optimizer.stop()
    wait_until(lambda: not alive("Aggregator"), "the tree is gone")
