"""Hyper-parameters of PG, A2C, A3C, IMPALA and APPO: what they share with PPO, and what they refuse."""

import pytest
from pydantic import ValidationError

from rlcore.api import ALGORITHMS, PPOConfig
from rlcore.api.algorithms.actor_critic import ActorCriticConfig
from tests.jobs import make_job

ALLOWED = {
    "PPO": ("LocalMultiGPU", "SyncSamples", "Allreduce"),
    "PG": ("SyncSamples",),
    "A2C": ("SyncSamples",),
    "A3C": ("AsyncGradients", "ShardedParameterServer", "SyncSamples"),
    "IMPALA": ("AsyncSamples", "SyncSamples"),
    "APPO": ("AsyncSamples",),
}
# PPO's manifest is older than the base that it shares with the others: none of it may change.
PPO_DEFAULTS = {
    "learning_rate": 3e-4, "learning_rate_schedule": None, "gamma": 0.99, "train_batch_size": 4000,
    "max_gradient_norm": 0.5, "adam_epsilon": 1e-5, "fragment_length": None, "batch_mode": "truncate",
    "observation_filter": "none", "reward_scale": 1.0, "compression": "auto", "straggler_mitigation": False,
    "max_sequence_length": 32, "gae_lambda": 0.95, "minibatch_size": 128, "num_epochs": 10, "clip_range": 0.2,
    "clip_range_schedule": None, "value_clip_range": None, "value_loss_coefficient": 0.5, "entropy_coefficient": 0.0,
    "entropy_coefficient_schedule": None, "kl_coefficient": 0.0, "kl_target": None, "normalize_advantages": True,
}  # fmt: skip


@pytest.mark.parametrize("algorithm", list(ALLOWED))
def test_optimizers_are_these_the_default_first(algorithm):
    info = ALGORITHMS[algorithm]
    assert info.optimizers == ALLOWED[algorithm]
    job = make_job(algorithm=algorithm, config={})
    assert job.spec.resolved_optimizer == ALLOWED[algorithm][0]


@pytest.mark.parametrize("algorithm", list(ALLOWED))
def test_an_optimizer_that_does_not_fit_is_refused_with_those_that_do(algorithm):
    with pytest.raises(ValidationError, match=ALLOWED[algorithm][0]):
        make_job(algorithm=algorithm, config={}, optimizer="SyncReplay")


def test_ppos_manifest_has_not_changed():
    assert {name: field.default for name, field in PPOConfig.model_fields.items()} == PPO_DEFAULTS


def test_actor_critics_share_their_base():
    for algorithm in ("PPO", "A2C", "A3C", "IMPALA", "APPO"):
        assert issubclass(ALGORITHMS[algorithm].config, ActorCriticConfig)


@pytest.mark.parametrize(
    ("algorithm", "config", "message"),
    [
        ("PG", {"batchMode": "truncate"}, "PG has no value function"),
        ("IMPALA", {"replayProportion": 0.5}, "needs replaySlots above 0"),
        ("APPO", {"trainBatchSize": 100, "minibatchSize": 200}, "200 is more than trainBatchSize 100"),
        ("APPO", {"trainBatchSize": 100}, r"\(the default\) is more than trainBatchSize 100"),
        ("PPO", {"trainBatchSize": 100}, r"128 \(the default\) is more than trainBatchSize 100"),
        ("A3C", {"maxStaleness": -1}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_is_refused(algorithm, config, message):
    with pytest.raises(ValidationError, match=message):
        make_job(algorithm=algorithm, config=config)
