"""QMIX (Rashid et al. 2018, arXiv 1803.11485)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.replay_settings import check_joint_replay, replay_settings
from rlcore.policy.qmix import QMIXPolicyGraph

QMIX = Algorithm(graph=QMIXPolicyGraph, optimizer_config=replay_settings, check=check_joint_replay, joint="withState")
