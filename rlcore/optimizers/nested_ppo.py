"""What an evaluator does for PPO-ES: a whole PPO run from each perturbed policy, with evaluators of its own.

An evaluator actor so becomes a driver: it launches actors, which end with it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlcore.evaluation.evaluator_set import Evaluators, LocalEvaluators, RemoteEvaluators
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.evaluation.sample_info import SampleInfo
from rlcore.optimizers.learner import Learner
from rlcore.optimizers.local_multi_gpu import LocalMultiGPUOptimizer
from rlcore.optimizers.perturbed import NOISE_INDICES, SharedNoise
from rlcore.optimizers.policy_optimizer import OptimizerConfig
from rlcore.policy.noise_table import direction, draw_indices
from rlcore.sample_batch import RETURNS, MultiAgentBatch, SampleBatch

CHANGES = "changes"


@dataclass
class PPORuns:
    """One row a direction: its index, what the policies of its two runs earn, and their change of the weights [2, P].

    Attributes:
        noise: the table.
        directions: to be tried in one call.
        noise_std: length of the step in each.
        iterations: of each PPO run.
        ppo: of the runs' optimizer.
        fitness_episodes: whole episodes that each run's policy is judged by.
        evaluators: actors that sample for a run; 0, and without Ray: the evaluator that makes it.
    """

    noise: SharedNoise
    directions: int
    noise_std: float
    iterations: int
    ppo: OptimizerConfig
    fitness_episodes: int
    evaluators: int
    _runs: dict[int, LocalMultiGPUOptimizer] = field(default_factory=dict, repr=False)

    def __call__(self, evaluator: PolicyEvaluator) -> tuple[MultiAgentBatch, SampleInfo]:
        started = time.perf_counter()
        ((policy_id, policy),) = evaluator.policies.items()
        inner, noise = self._inner(evaluator), self.noise.array()
        blank, centre, version = inner.learner.get_state(), policy.get_weights(), policy.version
        timesteps, episodes = -inner.timesteps_sampled, []
        indices = draw_indices(policy.rng, self.directions, len(noise), len(centre))
        seed = int(policy.rng.integers(2**31))  # all runs of this call are judged by the same episodes
        returns = np.zeros((self.directions, 2))
        changes = np.zeros((self.directions, 2, len(centre)), np.float32)
        for row, side in np.ndindex(returns.shape):
            step = np.float32(self.noise_std * (1 - 2 * side)) * direction(noise, int(indices[row]), len(centre))
            blank["policies"][policy_id]["weights"] = centre + step
            inner.learner.set_state(blank)
            for _ in range(self.iterations):
                inner.step()
            evolved = inner.learner.get_weights()
            changes[row, side] = evolved[policy_id] - centre
            evaluator.set_weights(evolved, version)
            judged = evaluator.evaluate(self.fitness_episodes, seed)
            returns[row, side] = np.mean([episode.episode_return for episode in judged])
            timesteps += sum(episode.length for episode in judged)
            # The runs' own episodes are cut off at their ends: those that are over by then are the short ones.
            episodes += judged
        inner.learner.set_state({**blank, "policies": {policy_id: {**blank["policies"][policy_id], "weights": centre}}})
        policy.set_weights(centre, version)
        columns = {NOISE_INDICES: indices, RETURNS: returns, CHANGES: changes}
        timesteps += inner.timesteps_sampled
        rows = MultiAgentBatch({policy_id: SampleBatch(columns, policy_version=version)}, timesteps)
        info = evaluator.info_of(rows, rows.size_bytes, started)
        return rows, replace(info, episodes={policy_id: episodes})

    def _inner(self, evaluator: PolicyEvaluator) -> LocalMultiGPUOptimizer:
        """This evaluator's PPO, made once."""
        config = evaluator.config
        if config.worker_index not in self._runs:
            seeded = replace(config, seed=config.seed + 7907 * config.worker_index, worker_index=0)
            ((policy_id, spaces),) = evaluator.world.spaces.items()
            learner = Learner({policy_id: seeded.build_policy(policy_id, spaces)}, seed=seeded.seed)
            evaluators: Evaluators = LocalEvaluators([evaluator])
            if self.evaluators and self.noise.reference is not None:
                evaluators = RemoteEvaluators(seeded, self.evaluators, {"num_cpus": 0})
            self._runs[config.worker_index] = LocalMultiGPUOptimizer(learner, evaluators, self.ppo)
        return self._runs[config.worker_index]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}}
