"""Each family of algorithms as a cluster trains it: a learner that is an actor, evaluators that come and go."""

import numpy as np
import pytest

from rlcore.checkpoint import CheckpointStore
from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from rlcore.evaluation.elastic_evaluators import ElasticEvaluators
from rlcore.optimizers.remote_learner import RemoteLearner
from rlcore.sample_batch import DEFAULT_POLICY
from tests.jobs import make_job, pools, write_cartpole_records

REPLAY = {
    "trainBatchSize": 16, "trainRatio": 2, "learningStarts": 64, "iterationTimesteps": 128, "replayCapacity": 500,
    "fragmentLength": 8, "prioritized": True,
}  # fmt: skip
EVOLUTION = {"numDirections": 4, "noiseTableSize": 100_000}
JOBS = {
    "ES": {"algorithm": "ES", "config": EVOLUTION},
    "PPO-ES": {
        "algorithm": "PPOES",
        "config": {
            "numDirections": 2, "noiseTableSize": 100_000, "innerIterations": 1, "trainBatchSize": 64,
            "minibatchSize": 32, "numEpochs": 1, "fitnessEpisodes": 1,
        },
    },
    "SyncReplay": {"algorithm": "DQN", "config": REPLAY},
    "SyncBatchReplay": {
        "algorithm": "DQN",
        "optimizer": "SyncBatchReplay",
        "model": {"hiddens": [8], "lstmSize": 4},
        "config": {**REPLAY, "prioritized": False, "maxSequenceLength": 8},
    },
    "AsyncReplay": {"algorithm": "ApexDQN", "config": REPLAY},
    "SAC": {"algorithm": "SAC", "environment": {"id": "Pendulum-v1"}, "config": {**REPLAY, "randomTimesteps": 0}},
}  # fmt: skip


@pytest.fixture
def start(local_ray):
    """Builds a job with a remote learner and elastic evaluators on these nodes; stopped at the end."""
    running = []

    def _start(wanted: dict[str, int], **spec):
        job = make_job(**{"model": {"hiddens": [8]}, "evaluators": pools(2), **spec})
        sets = []

        def start_evaluators(config):
            evaluators = ElasticEvaluators(
                config, lambda node: {"num_cpus": 0}, lambda starved: evaluators.follow(wanted)
            )
            evaluators.begin(wanted)
            sets.append(evaluators)
            return evaluators

        machine = Machine(cores=1, gpus=0, cluster_evaluators=2, cluster_learner_gpus=0, elastic=True)
        plan = make_plan(job.spec, machine)
        optimizer = build(job.spec, plan, 0, use_ray=True, start_evaluators=start_evaluators).optimizer
        running.append(optimizer)
        assert isinstance(optimizer.learner, RemoteLearner)
        return optimizer, sets[0]

    yield _start
    for optimizer in running:
        optimizer.stop()


def weights(optimizer) -> np.ndarray:
    return np.array(optimizer.learner.get_weights()[DEFAULT_POLICY])


def in_this_process(**spec):
    job = make_job(**{"model": {"hiddens": [8]}, "evaluators": pools(2), **spec})
    return build(job.spec, make_plan(job.spec, Machine(cores=2, gpus=0)), 0, use_ray=False).optimizer


def step_until_trained(optimizer) -> None:
    """Steps until the weights are others; with an asynchronous strategy a step may end before an update does."""
    before, trained = weights(optimizer), optimizer.timesteps_trained
    for _ in range(50):
        optimizer.step()
        if optimizer.timesteps_trained > trained:
            break
    assert not np.array_equal(before, weights(optimizer))


@pytest.mark.parametrize("name", list(JOBS))
def test_it_trains_loses_an_evaluator_trains_on_and_is_saved(start, tmp_path, name):
    wanted = {"a": 1, "b": 1}
    optimizer, evaluators = start(wanted, **JOBS[name])
    step_until_trained(optimizer)
    del wanted["b"]  # the node is lost, with what was under way there
    evaluators.follow(wanted)
    step_until_trained(optimizer)
    assert optimizer.evaluators_lost == 1
    progress = optimizer.collect_metrics()
    assert progress.timesteps_sampled > 0
    assert DEFAULT_POLICY in progress.learner

    # What it saves is arrays and JSON, and a run in one process goes on from there.
    store = CheckpointStore(str(tmp_path), identity={})
    store.save(optimizer.save(), timesteps=1, iteration=1)
    twin = in_this_process(**JOBS[name])
    twin.restore(store.latest()[1])
    np.testing.assert_array_equal(weights(twin), weights(optimizer))
    twin.step()
    assert twin.learner.get_version() > optimizer.learner.get_version()
    twin.stop()


def test_records_are_learned_from_by_a_remote_learner(start, tmp_path):
    write_cartpole_records(tmp_path / "records")
    config = {"input": str(tmp_path / "records"), "trainBatchSize": 32, "minibatchSize": 16}
    optimizer, _ = start({"a": 1}, algorithm="MARWIL", config=config)
    here = in_this_process(algorithm="MARWIL", config=config)
    for _ in range(3):
        optimizer.step()
        here.step()
    np.testing.assert_allclose(weights(optimizer), weights(here), atol=1e-6)
    assert optimizer.timesteps_trained == here.timesteps_trained > 0
    here.stop()
