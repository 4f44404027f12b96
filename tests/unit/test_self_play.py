"""Self-play: which snapshots there are, who the opponents are, and that a resume has them too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.api import SelfPlaySpec
from rlcore.driver.build import build, refuse_unequal_opponents
from rlcore.driver.evaluation import EvaluationRunner
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.run import RunOptions, run_job
from rlcore.env import MultiAgentVectorEnv
from rlcore.errors import UnsupportedError, UserError
from rlcore.evaluation.episodes import Episode
from rlcore.evaluation.evaluator_set import GlobalState
from rlcore.optimizers.self_play import SelfPlay
from tests.jobs import make_job, pools
from tests.learning.gate import Silent
from tests.multi_agent_envs import policy_weights
from tests.runs import assert_equal_trees, latest_state, write_manifest


def weights(number: float) -> np.ndarray:
    return np.full(3, number, np.float32)


def pool(**fields: Any) -> SelfPlay:
    spec = {"policy": "main", "opponents": ["one", "two"], **fields}
    self_play = SelfPlay(SelfPlaySpec.model_validate(spec), seed=0)
    self_play.begin(weights(0))
    return self_play


def numbers(self_play: SelfPlay) -> list[float]:
    return [float(snapshot.weights[0]) for snapshot in self_play.snapshots]


def test_the_first_snapshot_is_the_policy_before_training_and_everybody_plays_it() -> None:
    self_play = pool()
    assert numbers(self_play) == [0]
    assert {name: vector[0] for name, vector in self_play.opponents.items()} == {"one": 0, "two": 0}


def test_snapshots_are_taken_every_so_many_iterations_and_the_oldest_makes_room() -> None:
    self_play = pool(snapshotEvery=2, poolSize=3)
    for iteration in range(1, 9):
        self_play.iterated([], lambda i=iteration: weights(i))  # type: ignore[misc]
    assert numbers(self_play) == [4, 6, 8]
    assert [snapshot.iteration for snapshot in self_play.snapshots] == [4, 6, 8]
    assert self_play.taken == 5


def test_a_snapshot_is_taken_when_enough_episodes_are_won() -> None:
    self_play = pool(snapshotEvery=None, winRate=0.75)
    won, lost = [Episode(1.0, 5)], [Episode(-1.0, 5), Episode(0.0, 5)]
    self_play.iterated(won * 49, lambda: weights(1))
    assert numbers(self_play) == [0], "49 episodes may be luck"
    self_play.iterated(lost * 20, lambda: weights(2))
    assert numbers(self_play) == [0], "49 of 89 is too little"
    assert self_play.win_rate == pytest.approx(49 / 89)
    self_play.iterated(won * 100, lambda: weights(3))
    assert numbers(self_play) == [0, 3]
    assert self_play.win_rate is None, "counted anew against the next pool"


def test_a_snapshot_is_a_copy() -> None:
    vector = weights(7)
    self_play = pool(snapshotEvery=1)
    self_play.iterated([], lambda: vector)
    vector[:] = 0
    assert numbers(self_play) == [0, 7]


def test_opponents_are_drawn_from_the_whole_pool_with_the_newest_preferred() -> None:
    self_play = pool(snapshotEvery=1, poolSize=4, latestProbability=0.5)
    for iteration in range(1, 4):
        self_play.iterated([], lambda i=iteration: weights(i))  # type: ignore[misc]
    self_play.spec = self_play.spec.model_copy(update={"snapshot_every": None})
    drawn = []
    for _ in range(2000):
        self_play.iterated([], lambda: weights(-1))
        drawn += [float(vector[0]) for vector in self_play.opponents.values()]
    shares = [drawn.count(number) / len(drawn) for number in range(4)]
    assert shares == pytest.approx([0.125, 0.125, 0.125, 0.625], abs=0.03)


def test_the_same_seed_draws_the_same_opponents_and_a_resume_goes_on_with_them() -> None:
    def play(self_play: SelfPlay, count: int) -> list[float]:
        found = []
        for _ in range(count):
            self_play.iterated([Episode(1.0, 3)], lambda: weights(self_play.taken))
            found += [float(vector[0]) for vector in self_play.opponents.values()]
        return found

    one, two = pool(snapshotEvery=3), pool(snapshotEvery=3)
    assert play(one, 20) == play(two, 20)
    resumed = SelfPlay(one.spec, seed=99)
    resumed.set_state(one.get_state())
    assert_equal_trees(resumed.get_state(), one.get_state())
    assert resumed.opponents.keys() == one.opponents.keys()
    assert play(resumed, 20) == play(two, 20)


def test_a_smaller_pool_keeps_the_newest_snapshots() -> None:
    large = pool(snapshotEvery=1, poolSize=5)
    for iteration in range(1, 5):
        large.iterated([], lambda i=iteration: weights(i))  # type: ignore[misc]
    small = SelfPlay(large.spec.model_copy(update={"pool_size": 2}), seed=0)
    small.set_state(large.get_state())
    assert numbers(small) == [3, 4]
    assert set(small.opponents) == {"one", "two"}


GAME = {
    "environment": {"id": "tests.jobs:TwoAgents"},
    "multiAgent": {
        "policies": {"same": {}, "other": {}},
        "selfPlay": {"policy": "same", "opponents": ["other"], "snapshotEvery": 2, "poolSize": 3},
    },
    "config": {"trainBatchSize": 64, "minibatchSize": 64, "numEpochs": 1},
}


@pytest.mark.parametrize("use_ray", [False, True])
def test_evaluators_play_the_opponents_with_snapshots_and_only_the_policy_is_trained(
    use_ray: bool, request: pytest.FixtureRequest
) -> None:
    if use_ray:
        request.getfixturevalue("local_ray")
    job = make_job(**GAME, evaluators=pools(int(use_ray)))
    parts = build(job.spec, make_plan(job.spec, Machine(cores=1, gpus=0)), seed=0, use_ray=use_ray)
    optimizer = parts.optimizer
    try:
        for _ in range(5):
            optimizer.step()
            assert optimizer.self_play is not None
            expected = optimizer.self_play.opponents["other"]
            (played,) = optimizer.foreach_evaluator(policy_weights, "other")
            np.testing.assert_array_equal(played, expected)
            progress = optimizer.collect_metrics()
            assert set(progress.learner) == {"same"}
        assert progress.counts["self_play_snapshots"] == 3
    finally:
        optimizer.stop()


def test_evaluation_plays_against_the_opponents_of_the_iteration() -> None:
    job = make_job(**GAME)
    parts = build(job.spec, make_plan(job.spec, Machine(cores=1, gpus=0)), seed=0, use_ray=False)
    runner = EvaluationRunner(parts.config, 2, remote=False)
    try:
        assert parts.optimizer.self_play is not None
        size = parts.optimizer.self_play.opponents["other"].size
        opponents = {"other": np.full(size, 0.5, np.float32)}
        runner.start(GlobalState(parts.optimizer.learner.get_weights(), 1, 0, {}, opponents))
        np.testing.assert_array_equal(runner._evaluator.policies["other"].get_weights(), opponents["other"])
        assert runner.poll() is not None
    finally:
        runner.stop()
        parts.optimizer.stop()


def test_a_checkpoint_holds_the_pool_and_a_resume_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    def run(name: str, *stops: int) -> dict[str, Any]:
        for iterations in stops:
            manifest = write_manifest(tmp_path, name, **GAME, stop={"iterations": iterations})
            job = make_job(name, **GAME, stop={"iterations": iterations})
            run_job(job, RunOptions(root=tmp_path / "runs", in_process=True), Silent())
        state: dict[str, Any] = latest_state(manifest)["optimizer"]["self_play"]
        return state

    whole, halves = run("whole", 7), run("halves", 3, 7)
    assert len(whole["weights"]) == 3
    assert whole["iterations"] == halves["iterations"] == [2, 4, 6]
    assert whole["drawn"] == halves["drawn"]
    assert whole["counts"][:2] == halves["counts"][:2]


def test_the_sides_are_shuffled_anew_in_each_episode_and_the_same_way_twice() -> None:
    from tests.jobs import TwoAgents

    def seats(seed: int) -> list[str]:
        env = MultiAgentVectorEnv(lambda: TwoAgents(length=1), 1, lambda agent: agent, seats=("same", "other"))
        env.reset(seed)
        found = []
        for _ in range(40):
            actions = {key: slots.actions.zeros(1) for key, slots in env.policies.items()}
            found.append(env._members[0][0].agent)
            env.step(actions)
            env.step(actions)
        return found

    first = seats(1)
    assert set(first) == {"same", "other"}
    assert 10 <= first.count("same") <= 30
    assert seats(1) == first != seats(2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": "nobody"}, '"nobody" must be the one policy that is trained'),
        ({"opponents": ["same"]}, "trained"),
        ({"opponents": ["stranger"]}, '"stranger" is not one of the policies: same, other'),
        ({"snapshotEvery": None}, "one of snapshotEvery and winRate must be set"),
    ],
)
def test_what_self_play_cannot_be_is_refused_with_the_manifest(changes: dict[str, Any], said: str) -> None:
    multi = {**GAME["multiAgent"], "selfPlay": {**GAME["multiAgent"]["selfPlay"], **changes}}
    with pytest.raises(ValueError, match="selfPlay") as caught:
        make_job(**{**GAME, "multiAgent": multi})
    assert said in str(caught.value)


def test_an_opponent_with_a_model_of_its_own_or_a_filter_is_refused() -> None:
    multi = {**GAME["multiAgent"], "policies": {"same": {}, "other": {"model": {"hiddens": [3]}}}}
    with pytest.raises(ValueError, match="another model"):
        make_job(**{**GAME, "multiAgent": multi})
    with pytest.raises(ValueError, match="snapshots of self-play hold no filter"):
        make_job(**{**GAME, "config": {"observationFilter": "meanStd"}})


def test_opponents_that_see_something_else_are_refused_before_anything_starts() -> None:
    spec = make_job(
        environment={"id": "tests.envs:make_relay"},
        multiAgent={
            "policies": {"a": {}, "b": {}, "boss": {}},
            "selfPlay": {"policy": "a", "opponents": ["b", "boss"]},
        },
    ).spec
    plan = make_plan(spec, Machine(cores=1, gpus=0))
    with pytest.raises(UnsupportedError, match="opponent boss has the spaces"):
        build(spec, plan, seed=0, use_ray=False)
    with pytest.raises(UserError, match="acts by policy b"):
        refuse_unequal_opponents(spec, {"a": (None, None)})  # type: ignore[dict-item]
