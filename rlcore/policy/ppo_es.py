"""PPO-ES's policy graph: PPO's inside of a run, a plain step between runs."""

from __future__ import annotations

import numpy as np
import torch

from rlcore.policy.ppo import PPOPolicyGraph


class PPOESPolicyGraph(PPOPolicyGraph):
    """What joins the runs is a mean of their weights, which is reached in one step of length 1."""

    def apply_gradients(self, gradient: np.ndarray) -> None:
        self.flat.vector.sub_(torch.from_numpy(np.array(gradient)).to(self.device))
