"""Evaluators that average their gradients among themselves: each has its own batch, and all make the same updates.

`sgd` says what one member does, as a generator: it gives its part of a sum and is sent the whole sum. Over Ray
torch.distributed makes the sums (gloo; NCCL where the policy is on a GPU); in one process the optimizer does.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from rlcore.errors import NonFiniteError
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.evaluation.sample_info import SampleInfo
from rlcore.policy.policy_graph import Stats
from rlcore.policy.torch_policy_graph import TorchPolicyGraph
from rlcore.sample_batch import VALID, MultiAgentBatch, SampleBatch

# How long a member waits for the others' part of a sum, and for all to join.
SUM_DEADLINE_S = 60.0
JOIN_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Membership:
    """A member's place in the group, and what the group does in a round.

    Attributes:
        rank: 0..size - 1; the member of rank 0 reports the policies' state.
        size: members.
        address: of the store where they meet; None in one process.
        samples: that a member makes in a round.
        num_epochs: passes over the round's batch.
        minibatches: gradient steps of a pass.
        sum_deadline_s: how long a member waits for the others' part of a sum.
    """

    rank: int
    size: int
    address: tuple[str, int] | None
    samples: int
    num_epochs: int
    minibatches: int
    sum_deadline_s: float = SUM_DEADLINE_S


@dataclass(frozen=True)
class Round:
    """What a member did.

    Attributes:
        stats: policy id -> means over all minibatches of all members.
        timesteps: agent steps of its own batch.
        sgd_time_s: seconds of gradients and sums.
        states: policy id -> state after the round, of rank 0 alone.
        failed: why the round came to nothing, None where it did not.
    """

    stats: dict[str, Stats] = field(default_factory=dict)
    timesteps: int = 0
    sgd_time_s: float = 0.0
    states: dict[str, dict[str, Any]] | None = None
    failed: str | None = None


Parts = Generator[np.ndarray, np.ndarray, dict[str, Stats]]


class Member:
    """An evaluator's side: its batch, its towers, and its way to the others' gradients."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self._group = False

    def __call__(self, evaluator: PolicyEvaluator) -> tuple[Round, SampleInfo]:
        started = time.perf_counter()
        batch = self.sample(evaluator)
        info = evaluator.info_of(batch, 0, started)
        sgd_started = time.perf_counter()
        try:
            stats = self._pass_through(self.parts(evaluator, batch))
        except RuntimeError as error:  # torch's, of a member that is gone or late
            self.leave()
            evaluator.worker = None
            return Round(failed=str(error).partition("\n")[0]), info
        return self.report(evaluator, stats, batch.agent_steps, time.perf_counter() - sgd_started), info

    def sample(self, evaluator: PolicyEvaluator) -> MultiAgentBatch:
        """This member's batch of a round."""
        return MultiAgentBatch.concat([evaluator.sample() for _ in range(self.membership.samples)])

    def parts(self, evaluator: PolicyEvaluator, batch: MultiAgentBatch) -> Parts:
        """See `sgd`."""
        policies = {policy_id: evaluator.policies[policy_id] for policy_id in evaluator.trained}
        config = evaluator.config
        version = max(policy.version for policy in policies.values())
        rng = np.random.default_rng([config.seed, config.worker_index, version, 4])
        return sgd(policies, batch, rng, self.membership.num_epochs, self.membership.minibatches)

    def report(self, evaluator: PolicyEvaluator, stats: dict[str, Stats], timesteps: int, sgd_time_s: float) -> Round:
        """A finished round; the policies' versions go on."""
        wrong = {name for found in stats.values() for name, value in found.items() if not np.isfinite(value)}
        if wrong:
            raise NonFiniteError(
                f"training gave values that are not finite: {', '.join(sorted(wrong))}",
                hint="lower learningRate or rewardScale, or look at the observations' range; "
                "the last good checkpoint is kept",
            )
        policies = {policy_id: evaluator.policies[policy_id] for policy_id in evaluator.trained}
        for policy in policies.values():
            policy.version += 1
        first = self.membership.rank == 0
        states = {policy_id: policy.get_state() for policy_id, policy in policies.items()} if first else None
        return Round(stats, timesteps, sgd_time_s, states)

    # torch.distributed --------------------

    def join(self, backend: str) -> None:
        """Meets the others at the membership's address.

        Raises:
            RuntimeError: not all came in time.
        """
        import torch.distributed as dist

        self.leave()
        membership = self.membership
        assert membership.address is not None
        host, port = membership.address
        patience = timedelta(seconds=JOIN_DEADLINE_S)
        store = dist.TCPStore(host, port, is_master=False, timeout=patience)  # type: ignore[attr-defined]
        dist.init_process_group(
            backend,
            store=store,
            rank=membership.rank,
            world_size=membership.size,
            timeout=timedelta(seconds=membership.sum_deadline_s),
        )
        self._group = True
        dist.barrier()

    def leave(self) -> None:
        """Ends this process's part of the group."""
        import torch.distributed as dist

        self._group = False
        if dist.is_initialized():
            dist.destroy_process_group()

    def _pass_through(self, parts: Parts) -> dict[str, Stats]:
        import torch.distributed as dist

        if not self._group:
            raise RuntimeError("this member is in no group")
        try:
            part = next(parts)
            while True:
                tensor = torch.from_numpy(part)
                if dist.get_backend() == "nccl":
                    tensor = tensor.cuda()
                dist.all_reduce(tensor)
                part = parts.send(tensor.cpu().numpy())
        except StopIteration as end:
            found: dict[str, Stats] = end.value
            return found


def sgd(
    policies: Mapping[str, TorchPolicyGraph],
    batch: MultiAgentBatch,
    rng: np.random.Generator,
    num_epochs: int,
    minibatches: int,
) -> Parts:
    """One member's passes over its own batch, in step with all others.

    Gives float32 [P + statistics + 1]: a minibatch's gradient and statistics times its timesteps, and their number; is
    sent the sum over all members, and makes the optimizer step with the mean. Members with fewer entries than
    minibatches, or none, add nothing and step all the same.
    """
    stats = {}
    for policy_id, policy in policies.items():
        share = _Share(policy, batch.policy_batches.get(policy_id))
        totals, norms, updates = np.zeros(len(policy.stat_names)), 0.0, 0
        epochs = 0
        for _ in range(num_epochs):
            in_epoch = np.zeros(len(policy.stat_names))
            for indices in np.array_split(rng.permutation(share.size), minibatches):
                total = yield share.part(indices)
                if total[-1] > 0:
                    norms += share.step(total)
                    in_epoch += total[-1 - len(in_epoch) : -1] / total[-1]
                    updates += 1
            totals += in_epoch
            epochs += 1
            if policy.stops_early(in_epoch / minibatches):
                break
        found = {**policy.named_stats(totals / max(1, updates)), **share.stats}
        found["gradient_norm"] = norms / max(1, updates)
        found["learning_rate"] = policy.learning_rate(policy.timesteps)
        found["epochs"] = epochs
        policy.after_update(found)
        stats[policy_id] = found
    return stats


class _Share:
    """A policy and this member's batch for it."""

    def __init__(self, policy: TorchPolicyGraph, batch: SampleBatch | None) -> None:
        self._policy = policy
        self.stats: Stats = {}
        self.size = 0
        if batch is not None and batch.count:
            batch, self.stats = policy.prepare(batch)
            self._loaded = policy.load(batch)
            self._valid = batch[VALID] if batch.time_major else None
            self.size = batch.size

    def part(self, indices: np.ndarray) -> np.ndarray:
        """See `sgd`."""
        policy = self._policy
        size, count = policy.flat.gradient.numel(), len(policy.stat_names)
        part = np.zeros(size + count + 1, np.float32)
        timesteps = len(indices) if self.size == 0 or self._valid is None else int(self._valid[:, indices].sum())
        if timesteps:
            stats = policy.minibatch_gradient(self._loaded, indices)
            part[:size] = policy.flat.gradient.cpu().numpy()
            part[size:-1] = stats.cpu().numpy() if isinstance(stats, torch.Tensor) else stats
            part[:-1] *= timesteps
            part[-1] = timesteps
        return part

    def step(self, total: np.ndarray) -> float:
        """One optimizer step with the mean of all members; returns the gradient's norm."""
        gradient = self._policy.flat.gradient
        gradient.copy_(torch.from_numpy(total[: gradient.numel()] / total[-1]))
        return float(self._policy.apply_own_gradient())
