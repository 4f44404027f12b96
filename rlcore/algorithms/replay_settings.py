"""What the algorithms on replay have in common: their optimizers' settings, and what they refuse before they start."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np

from rlcore.api import ModelSpec, RLJobSpec
from rlcore.api.algorithms.replay import ReplayAlgorithmConfig, ReplayingConfig
from rlcore.errors import UnsupportedError
from rlcore.evaluation.world import Spaces
from rlcore.optimizers.replay_config import ReplayConfig
from rlcore.replay.memory import free_bytes, require_room, transition_bytes


def replaying(config: ReplayingConfig, fragment_size: int) -> ReplayConfig:
    """Hyper-parameters as the replay optimizers take them; rows are drawn uniformly."""
    return ReplayConfig(
        train_batch_size=config.train_batch_size,
        fragment_size=fragment_size,
        minibatch_size=config.train_batch_size,
        straggler_mitigation=config.straggler_mitigation,
        capacity=config.replay_capacity,
        learning_starts=config.learning_starts,
        train_ratio=config.train_ratio,
        iteration_timesteps=config.iteration_timesteps,
        checkpoint_bytes=config.replay_checkpoint_bytes,
        shards=config.replay_shards,
        batches_in_flight=config.replay_batches_in_flight,
        samples_in_flight=config.samples_in_flight,
        max_weight_sync_delay=config.max_weight_sync_delay,
    )


def replay_settings(config: ReplayAlgorithmConfig, fragment_size: int) -> ReplayConfig:
    """The same with priorities."""
    return replace(
        replaying(config, fragment_size),
        prioritized=config.prioritized,
        alpha=config.priority_alpha,
        beta=config.priority_beta,
        beta_timesteps=config.priority_beta_timesteps,
        priority_epsilon=config.priority_epsilon,
    )


def check_replay(spec: RLJobSpec, spaces: dict[str, Spaces]) -> None:
    """Refuses models that have no form on replay, and a replay that cannot fit.

    Raises:
        UserError: with what would do.
    """
    for model in _models(spec):
        _refuse_model(spec, model)
    config = spec.config
    assert isinstance(config, ReplayAlgorithmConfig)
    each = sum(
        transition_bytes(observations, _action_bytes(actions), split_frames=config.replay_frames)
        for observations, actions in spaces.values()
    )
    require_room(config.replay_capacity, each, free_bytes())


def check_joint_replay(spec: RLJobSpec, spaces: dict[str, Spaces]) -> None:
    """The same for agents that learn together, by one graph.

    Raises:
        UserError: with what would do.
    """
    assert spec.multi_agent is not None, "the manifest was looked at before"
    for policy_id, policy in spec.multi_agent.policies.items():
        if policy.model is not None:
            raise UnsupportedError(
                f"spec.multiAgent.policies.{policy_id}.model: {spec.algorithm} builds all networks alike",
                hint="set spec.model, and leave the policies' own models out",
            )
    check_replay(spec, spaces)


def _models(spec: RLJobSpec) -> list[ModelSpec]:
    if spec.multi_agent is None:
        return [spec.model]
    return [policy.model or spec.model for policy in spec.multi_agent.policies.values()]


def _refuse_model(spec: RLJobSpec, model: ModelSpec) -> None:
    if model.custom:
        raise UnsupportedError(
            f"spec.model.custom: {spec.algorithm} builds its networks itself",
            hint="use hiddens and convLayers, or an algorithm that takes custom models, such as PPO",
        )
    if not model.lstm_size:
        return
    if spec.algorithm not in ("DQN", "QMIX"):
        raise UnsupportedError(
            f"spec.model.lstmSize: {spec.algorithm} has no recurrent form here",
            hint="use DQN (of several agents: QMIX) with optimizer SyncBatchReplay, or PPO or IMPALA",
        )
    if spec.resolved_optimizer != "SyncBatchReplay":
        raise UnsupportedError(
            f"spec.optimizer: {spec.resolved_optimizer} replays transitions, and spec.model.lstmSize needs sequences",
            hint="set optimizer: SyncBatchReplay",
        )


def _action_bytes(space: gym.Space) -> int:
    if isinstance(space, gym.spaces.Tuple):
        return sum(_action_bytes(child) for child in space.spaces)
    return int(np.prod(space.shape or (1,))) * 8
