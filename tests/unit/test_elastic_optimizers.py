"""Optimizers whose evaluators come and go in the middle of training: nobody is waited for, nothing piles up."""

import time

import pytest

from rlcore.driver.build import build
from rlcore.driver.plan import Machine, make_plan
from rlcore.evaluation.elastic_evaluators import ElasticEvaluators
from tests.jobs import make_job, pools

JOBS = {
    "AsyncSamples": ("IMPALA", {"trainBatchSize": 150, "fragmentLength": 10, "updatesPerIteration": 10}),
    "AsyncGradients": ("A3C", {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 10}),
    "ShardedParameterServer": ("A3C", {"trainBatchSize": 160, "fragmentLength": 10, "updatesPerIteration": 10}),
    "Allreduce": ("PPO", {"trainBatchSize": 256, "minibatchSize": 64, "numEpochs": 2}),
}


@pytest.mark.parametrize("optimizer", list(JOBS))
def test_evaluators_leave_and_join_in_the_middle_of_training(local_ray, optimizer):
    algorithm, config = JOBS[optimizer]
    job = make_job(algorithm=algorithm, optimizer=optimizer, config=config, evaluators=pools(2))
    wanted = {"a": 1, "b": 1}
    elastic = []

    def start(evaluator_config):
        evaluators = ElasticEvaluators(
            evaluator_config, lambda node: {"num_cpus": 0}, lambda starved: evaluators.follow(wanted)
        )
        elastic.append(evaluators)
        evaluators.begin(wanted)
        return evaluators

    trained = build(
        job.spec, make_plan(job.spec, Machine(cores=2, gpus=0)), 0, use_ray=True, start_evaluators=start
    ).optimizer
    (evaluators,) = elastic
    try:
        trained.step()
        del wanted["b"]  # the node is lost, with what was under way there
        evaluators.follow(wanted)
        trained.step()
        assert trained.evaluators_lost == 1
        wanted["c"] = 1
        end_s = time.monotonic() + 120
        while len(evaluators.indices) < 2:
            assert time.monotonic() < end_s
            evaluators.follow(wanted)
            time.sleep(0.05)
        trained.step()
        trained.step()
        assert trained.learner.get_version() >= (4 if optimizer == "Allreduce" else 40)
        most = config.get("samplesInFlight", 2)
        assert all(evaluators.pending(index) <= most for index in evaluators.indices)
    finally:
        trained.stop()
