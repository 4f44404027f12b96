"""DDPG (Lillicrap et al. 2016), TD3 (Fujimoto et al. 2018) and Ape-X DDPG (Horgan et al. 2018)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.replay_settings import check_replay, replay_settings
from rlcore.policy.ddpg import DDPGPolicyGraph, TD3PolicyGraph

DDPG = Algorithm(graph=DDPGPolicyGraph, optimizer_config=replay_settings, check=check_replay)
APEX_DDPG = Algorithm(graph=DDPGPolicyGraph, optimizer_config=replay_settings, check=check_replay)
TD3 = Algorithm(graph=TD3PolicyGraph, optimizer_config=replay_settings, check=check_replay)
