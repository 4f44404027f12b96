"""PPO-ES: every evaluation is a PPO run with evaluators of its own, which end with the actor that made it."""

import numpy as np
import pytest

from rlcore.algorithms.ppo_es import joined_runs
from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from rlcore.optimizers.nested_ppo import CHANGES
from rlcore.sample_batch import DEFAULT_POLICY, RETURNS, SampleBatch
from tests.jobs import inner_evaluators, leave_the_process, make_job, pools
from tests.runs import is_alive, wait_until

CONFIG = {
    "numDirections": 2, "trainBatchSize": 64, "minibatchSize": 32, "numEpochs": 1, "innerIterations": 1,
    "fitnessEpisodes": 2, "noiseTableSize": 100_000,
}  # fmt: skip


@pytest.fixture
def start():
    """Builds a PPO-ES optimizer; all of them are stopped at the end."""
    running = []

    def _start(*, use_ray: bool = False, evaluators: int = 1, **config):
        spec = {"algorithm": "PPOES", "config": {**CONFIG, **config}, "model": {"hiddens": [8]}}
        job = make_job(**spec, evaluators=pools(evaluators, envs=2))
        parts = build(job.spec, make_plan(job.spec, Machine(cores=4, gpus=0)), seed=0, use_ray=use_ray)
        running.append(parts.optimizer)
        return parts.optimizer

    yield _start
    for optimizer in running:
        optimizer.stop()


def weights(optimizer) -> np.ndarray:
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


def test_the_better_half_of_the_runs_is_averaged_by_rank():
    changes = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    rows = SampleBatch({RETURNS: np.array([[1.0, 4.0], [2.0, 3.0]]), CHANGES: changes})
    gradient, stats = joined_runs(rows, np.zeros(0), 3)
    # ranks -1/2, 1/2, -1/6, 1/6: three quarters of run 1 and one quarter of run 3
    np.testing.assert_allclose(gradient, -(0.75 * changes[0, 1] + 0.25 * changes[1, 1]), rtol=1e-5)
    assert stats["runs_used"] == 2


def test_runs_that_earn_the_same_all_count():
    changes = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    gradient, _ = joined_runs(SampleBatch({RETURNS: np.ones((2, 2)), CHANGES: changes}), np.zeros(0), 3)
    np.testing.assert_allclose(gradient, -changes.reshape(-1, 3).mean(axis=0), rtol=1e-5)


def test_a_step_is_four_runs_and_moves_the_policy(start):
    optimizer = start()
    before = weights(optimizer)
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert len(progress.episodes) == 4 * 2
    played = sum(episode.length for episode in progress.episodes)
    assert progress.timesteps_sampled == pytest.approx(played + 4 * 64, abs=40)  # autoresets are no timesteps
    assert not np.array_equal(before, weights(optimizer))


def test_two_runs_with_one_seed_are_equal_to_the_last_bit(start):
    one, two = start(), start()
    for _ in range(2):
        one.step()
        two.step()
    np.testing.assert_array_equal(weights(one), weights(two))


def test_an_evaluator_launches_actors_of_its_own_which_end_with_it(start, local_ray):
    optimizer = start(use_ray=True, innerEvaluators=2)
    optimizer.step()
    children = optimizer.evaluators.foreach(inner_evaluators)[0]
    assert len(set(children)) == 2
    assert all(is_alive(pid) for pid in children)
    optimizer.evaluators._actors[0].apply.remote(leave_the_process)
    wait_until(lambda: not any(is_alive(pid) for pid in children), "the inner evaluators end")
    optimizer.step()
    assert optimizer.evaluators_lost == 1


def test_an_observation_filter_is_refused():
    with pytest.raises(ValueError, match=r"(?s)observationFilter.*meanStd is not possible"):
        make_job(algorithm="PPOES", config={"observationFilter": "meanStd"})
