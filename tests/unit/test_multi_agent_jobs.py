"""Jobs of several agents, from manifest to checkpoint: every optimizer, every kind of environment, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.play import open_player, play_checkpoint
from rlcore.driver.run import RunOptions, run_job
from rlcore.errors import EnvironmentFailure, UnsupportedError, UserError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from tests.jobs import make_evaluator_config, make_job, pools
from tests.learning.gate import Silent
from tests.runs import assert_equal_trees, latest_state, write_manifest

GAME = "tests.multi_agent_envs:MatchingGame"
SHARED = {"policies": {"x": {}}}
SEPARATE = {"policies": {"x_0": {}, "x_1": {}}}
OWN_MODEL = {"policies": {"x": {"model": {"hiddens": [2]}}}}
IDLE = {"policies": {"x": {}, "ghost": {}}}
STRANGERS = {"policies": {"a": {}, "b": {}}}
RECURRENT_N_STEP = {"optimizer": "SyncBatchReplay", "model": {"lstmSize": 4}, "config": {"nStep": 3}}
WRONG_MAPPING = {**SHARED, "mapping": "tests.jobs:own_policy"}
SMALL = {
    "trainBatchSize": 16, "trainRatio": 2, "learningStarts": 32, "iterationTimesteps": 128, "replayCapacity": 1000,
}  # fmt: skip


def job(algorithm: str, **spec: Any) -> Any:
    config = {**(SMALL if algorithm != "PPO" else {}), **spec.pop("config", {})}
    fields = {"environment": {"id": GAME}, "multiAgent": SHARED, "model": {"hiddens": [8]}, **spec}
    return make_job(algorithm=algorithm, config=config, **fields)


def started(spec: Any) -> Any:
    return build(spec, make_plan(spec, Machine(cores=1, gpus=0)), seed=0, use_ray=False)


@pytest.mark.parametrize("multi", [SHARED, SEPARATE], ids=["shared", "separate"])
@pytest.mark.parametrize("leaver", [None, "x_1"])
@pytest.mark.parametrize(
    ("algorithm", "optimizer", "model"),
    [
        ("MADDPG", "SyncReplay", {}),
        ("MADDPG", "AsyncReplay", {}),
        ("QMIX", "SyncReplay", {}),
        ("QMIX", "AsyncReplay", {}),
        ("QMIX", "SyncBatchReplay", {"lstmSize": 4}),
        ("QMIX", "SyncBatchReplay", {}),
    ],
)
def test_agents_that_learn_together_do_so_under_every_optimizer(
    algorithm: str, optimizer: str, model: dict[str, Any], leaver: str | None, multi: dict[str, Any]
) -> None:
    environment = {"id": GAME, "kwargs": {"leaver": leaver, "state": True}}
    spec = job(
        algorithm, optimizer=optimizer, environment=environment, multiAgent=multi, model={"hiddens": [8], **model},
        config={"maxSequenceLength": 8, "fragmentLength": 8},
    ).spec  # fmt: skip
    optimizer_ = started(spec).optimizer
    try:
        for _ in range(3):
            optimizer_.step()
        progress = optimizer_.collect_metrics()
        assert progress.timesteps_trained > 0
        assert all(np.isfinite(list(stats.values())).all() for stats in progress.learner.values())
        assert {episode.length for episode in progress.episodes} == {6}, "an episode is the team's"
    finally:
        optimizer_.stop()


@pytest.mark.parametrize("algorithm", ["MADDPG", "QMIX"])
def test_a_saved_optimizer_goes_on_exactly(algorithm: str) -> None:
    spec = job(algorithm, config={"prioritized": True}).spec
    one, two = started(spec).optimizer, started(spec).optimizer
    try:
        one.step()
        one.step()
        two.restore(one.save())
        assert_equal_trees(two.save(), one.save())
    finally:
        one.stop()
        two.stop()


def test_discrete_and_continuous_agents_learn_together_by_maddpg(tmp_path: Path) -> None:
    environment = {"id": GAME, "kwargs": {"actions": "mixed"}}
    manifest = write_manifest(
        tmp_path, "mixed", algorithm="MADDPG", environment=environment, multiAgent=SEPARATE, config=SMALL,
        model={"hiddens": [8]}, stop={"iterations": 3},
    )  # fmt: skip
    mixed = job("MADDPG", environment=environment, multiAgent=SEPARATE, stop={"iterations": 3})
    mixed = mixed.model_copy(update={"metadata": mixed.metadata.model_copy(update={"name": "mixed"})})
    report = run_job(mixed, RunOptions(root=tmp_path / "runs", in_process=True), Silent())
    assert report.completion is not None
    assert set(latest_state(manifest)["optimizer"]["learner"]["policies"]) == {"default"}
    played = play_checkpoint(report.directory.path, episodes=3, seed=1)
    assert played.episode_lengths == (6, 6, 6)


def test_over_ray_agents_learn_together_too(local_ray: None) -> None:
    spec = job("QMIX", optimizer="AsyncReplay", evaluators=pools(1)).spec
    parts = build(spec, make_plan(spec, Machine(cores=1, gpus=0)), seed=0, use_ray=True)
    try:
        parts.optimizer.step()
        assert parts.optimizer.collect_metrics().timesteps_sampled >= 128
    finally:
        parts.optimizer.stop()


def test_untrained_policies_act_and_their_episodes_are_not_the_jobs() -> None:
    config = make_evaluator_config(
        environment={"id": "tests.jobs:TwoAgents"},
        multiAgent={"policies": {"same": {}, "other": {}}, "train": ["other"]},
    )
    evaluator = PolicyEvaluator(config)
    batch, info = evaluator.sample_with_info()
    assert set(info.episodes) == {"other"}
    assert set(batch.policy_batches) == {"other"}  # type: ignore[union-attr]
    assert evaluator.evaluate(3, seed=0)


def test_what_nobody_trains_is_the_same_in_training_and_when_a_checkpoint_is_played(tmp_path: Path) -> None:
    fields = {
        "environment": {"id": "tests.jobs:TwoAgents"},
        "multiAgent": {"policies": {"same": {}, "other": {}}, "train": ["other"]},
        "stop": {"iterations": 1},
        "seed": 0,
    }
    write_manifest(tmp_path, "partly", **fields)
    report = run_job(make_job("partly", **fields), RunOptions(root=tmp_path / "runs", in_process=True), Silent())
    trained_with = PolicyEvaluator(make_evaluator_config(**fields))
    player = open_player(report.directory.path, seed=1, environments=2)
    try:
        weights = player.evaluator.get_weights()
        np.testing.assert_array_equal(weights["same"], trained_with.get_weights()["same"])
        assert not np.array_equal(weights["other"], trained_with.get_weights()["other"])
    finally:
        player.evaluator.close()
        trained_with.close()


@pytest.mark.parametrize(
    ("policies", "agents"),
    [
        ({"team": {}}, {"x_0": "team", "x_1": "team"}),
        ({"x": {}, "y": {}}, {"x_0": "x", "x_1": "x", "y-3": "y"}),
        ({"x_1": {}, "x": {}}, {"x_0": "x", "x_1": "x_1"}),
    ],
)
def test_without_a_mapping_policies_go_by_name(policies: dict[str, Any], agents: dict[str, str]) -> None:
    from rlcore.evaluation.world import load_mapping

    mapping = load_mapping(None, tuple(policies))
    assert {agent: mapping(agent) for agent in agents} == agents


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"algorithm": "MADDPG"}, "MADDPG trains several agents together: name their policies in multiAgent.policies"),
        ({"algorithm": "ES", "multiAgent": SHARED}, "ES trains one policy for one agent"),
        ({"algorithm": "QMIX", "multiAgent": {**SEPARATE, "train": ["x_0"]}}, "remove train"),
        ({"algorithm": "QMIX", "multiAgent": SHARED, "config": {"workerPriorities": True}}, "workerPriorities"),
        ({"algorithm": "MADDPG", "multiAgent": SHARED, "config": {"nStep": 3}}, "nStep"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_as_it_is_read(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        make_job(**{"config": {}, **fields})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "environment", "fields", "error", "said"),
    [
        (
            "QMIX",
            {"kwargs": {"actions": "mixed"}},
            {"multiAgent": SEPARATE},
            UnsupportedError,
            "QMIX supports Discrete",
        ),
        ("MADDPG", {"kwargs": {"actions": "binary"}}, {}, UnsupportedError, "MADDPG supports Discrete and Box"),
        ("MADDPG", {}, {"model": {"lstmSize": 4}}, UnsupportedError, "no recurrent form"),
        ("QMIX", {}, {"model": {"lstmSize": 4}}, UnsupportedError, "optimizer: SyncBatchReplay"),
        ("QMIX", {}, RECURRENT_N_STEP, UnsupportedError, "nStep is not supported with spec.model.lstmSize"),
        ("QMIX", {"id": "tests.multi_agent_envs:CountdownGame"}, {}, UnsupportedError, "take turns"),
        ("QMIX", {}, {"multiAgent": OWN_MODEL}, UnsupportedError, "policies.x.model"),
        ("MADDPG", {}, {"multiAgent": STRANGERS}, UserError, "no policy has the name of agent 'x_0'"),
        ("MADDPG", {}, {"multiAgent": WRONG_MAPPING}, UserError, "which is no policy"),
        ("MADDPG", {}, {"multiAgent": {**SHARED, "mapping": "os:sep"}}, UserError, '"os:sep" is a str, not a function'),
        ("MADDPG", {}, {"multiAgent": {**SHARED, "mapping": "json:loads"}}, UserError, "raised JSONDecodeError"),
        ("MADDPG", {}, {"multiAgent": IDLE}, UserError, "policies.ghost: no agent of"),
        ("PPO", {}, {"multiAgent": {**IDLE, "train": ["ghost"]}}, UserError, "no agent of"),
        ("PPO", {"wrappers": "atari"}, {}, UnsupportedError, "environment.wrappers: atari does not fit"),
        ("QMIX", {"vectorization": "subprocess"}, {}, UnsupportedError, "environment.vectorization: subprocess"),
        ("MADDPG", {"id": "mpe2/simple_spraed_v3"}, {}, EnvironmentFailure, "did you mean mpe2/simple_spread_v3"),
        ("QMIX", {"id": "tests.envs:not_an_env"}, {}, EnvironmentFailure, "has no possible_agents"),
    ],
)
def test_what_only_the_environment_tells_is_refused_before_anything_starts(
    algorithm: str, environment: dict[str, Any], fields: dict[str, Any], error: type[Exception], said: str
) -> None:
    spec = job(algorithm, environment={"id": GAME, **environment}, **fields).spec
    with pytest.raises(error) as caught:
        started(spec)
    assert said in str(caught.value)


def test_a_pettingzoo_id_without_policies_says_what_is_missing() -> None:
    spec = make_job(environment={"id": "mpe2/simple_spread_v3"}).spec
    with pytest.raises(EnvironmentFailure, match=r"under spec\.multiAgent"):
        started(spec)


def test_an_environment_that_breaks_the_protocol_ends_the_run_with_what_it_did() -> None:
    spec = job("QMIX", environment={"id": "tests.multi_agent_envs:SilentGame", "maxFailures": 2}).spec
    optimizer = started(spec).optimizer
    try:
        with pytest.raises(EnvironmentFailure, match="gave agent 'x_1', which has not terminated, no observation"):
            optimizer.step()
    finally:
        optimizer.stop()
