"""Algorithms: a policy graph and how its optimizer is set up; one short file each."""

from rlcore.algorithms.a2c import A2C, A3C
from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.alpha_zero import ALPHA_ZERO
from rlcore.algorithms.ddpg import APEX_DDPG, DDPG, TD3
from rlcore.algorithms.dqn import APEX_DQN, DQN
from rlcore.algorithms.evolution import ARS, ES
from rlcore.algorithms.impala import APPO, IMPALA
from rlcore.algorithms.maddpg import MADDPG
from rlcore.algorithms.offline import BC, MARWIL
from rlcore.algorithms.pg import PG
from rlcore.algorithms.ppo import PPO
from rlcore.algorithms.ppo_es import PPOES
from rlcore.algorithms.qmix import QMIX
from rlcore.algorithms.sac import SAC

__all__ = [
    "A2C",
    "A3C",
    "ALGORITHMS",
    "ALPHA_ZERO",
    "APEX_DDPG",
    "APEX_DQN",
    "APPO",
    "ARS",
    "BC",
    "DDPG",
    "DQN",
    "ES",
    "IMPALA",
    "MADDPG",
    "MARWIL",
    "PG",
    "PPO",
    "PPOES",
    "QMIX",
    "SAC",
    "TD3",
    "Algorithm",
]

ALGORITHMS: dict[str, Algorithm] = {
    "PPO": PPO,
    "PG": PG,
    "A2C": A2C,
    "A3C": A3C,
    "IMPALA": IMPALA,
    "APPO": APPO,
    "ES": ES,
    "ARS": ARS,
    "PPOES": PPOES,
    "BC": BC,
    "MARWIL": MARWIL,
    "DQN": DQN,
    "ApexDQN": APEX_DQN,
    "ApexDDPG": APEX_DDPG,
    "DDPG": DDPG,
    "TD3": TD3,
    "SAC": SAC,
    "MADDPG": MADDPG,
    "QMIX": QMIX,
    "AlphaZero": ALPHA_ZERO,
}
"""By the name that a manifest uses; names, hyper-parameters and allowed optimizers are declared in rlcore.api."""
