"""Deep Q-learning (Mnih et al. 2015, Nature 518) and Ape-X (Horgan et al. 2018, arXiv 1803.00933)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.replay_settings import check_replay, replay_settings
from rlcore.policy.dqn import DQNPolicyGraph

DQN = Algorithm(graph=DQNPolicyGraph, optimizer_config=replay_settings, check=check_replay)
APEX_DQN = Algorithm(graph=DQNPolicyGraph, optimizer_config=replay_settings, check=check_replay)
