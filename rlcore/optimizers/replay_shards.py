"""All shards of a job's replay behind one face, whether they are Ray actors or plain objects.

Samples go to the shards in turn. Batches are asked for ahead of time and come back as `Batch`es. A lost shard is
replaced by an empty one and the loss is counted: what it held is gone, and fills again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.errors import UserError
from rlcore.evaluation.evaluator_set import CALL_DEADLINE_S, CONSECUTIVE_LOSSES, lost_errors, unwrap
from rlcore.optimizers.replay_config import ReplayConfig
from rlcore.optimizers.replay_shard import Drawn, Held, ReplayShard

logger = logging.getLogger("rlcore.optimizers")


@dataclass(frozen=True)
class Batch:
    """Rows to train on.

    Attributes:
        shard: that they are of.
        batch: the rows, or a reference to them.
        drawn: their numbers there.
        life: of the shard; a replaced one numbers its rows anew.
    """

    shard: int
    batch: Any
    drawn: Drawn
    life: int = 0


class _Shards:
    """What both kinds have.

    Attributes:
        held: of each shard, as it last said.
        losses: shards that were replaced.
        dropped_timesteps: sampled, and lost on their way into replay or with a shard.
    """

    def __init__(self, config: ReplayConfig) -> None:
        self.config = config
        self.held = [Held() for _ in range(config.shards)]
        self.losses = 0
        self.dropped_timesteps = 0
        self._next_add = self._next_draw = 0

    @property
    def timesteps(self) -> int:
        """Rows in all shards."""
        return sum(held.timesteps for held in self.held)

    @property
    def size_bytes(self) -> int:
        """Bytes in all shards."""
        return sum(held.size_bytes for held in self.held)

    @property
    def outdated(self) -> int:
        """Priorities that came too late."""
        return sum(held.outdated for held in self.held)

    def _turn_to_add(self) -> int:
        shard, self._next_add = self._next_add, (self._next_add + 1) % self.config.shards
        return shard

    def _turn_to_draw(self) -> int:
        """The next shard that has anything."""
        for _ in range(self.config.shards):
            shard, self._next_draw = self._next_draw, (self._next_draw + 1) % self.config.shards
            if self.held[shard].timesteps:
                break
        return shard

    def _share_bytes(self) -> int:
        return self.config.checkpoint_bytes // self.config.shards


class LocalShards(_Shards):
    """Shards in this process; a batch is drawn when it is taken."""

    adds_in_flight = 0

    def __init__(self, config: ReplayConfig) -> None:
        super().__init__(config)
        self._shards = [ReplayShard(config, number) for number in range(config.shards)]
        self._asked: deque[float] = deque()

    def add(self, sample: Any, timesteps: int) -> None:
        """Gives a sample to the next shard."""
        shard = self._turn_to_add()
        self.held[shard] = self._shards[shard].add(sample)

    def take_adds(self) -> None:
        """Hears of samples that have arrived in their shards: here all have."""

    def ask(self, beta: float) -> None:
        """Asks for one more batch."""
        self._asked.append(beta)

    @property
    def batches_asked(self) -> int:
        """Batches that are still to come."""
        return len(self._asked)

    def take(self, *, wait_s: float) -> list[Batch]:
        """Batches that are there: here the one asked for first, drawn now."""
        if not self._asked:
            return []
        shard = self._turn_to_draw()
        batch, drawn = self._shards[shard].draw(self._asked.popleft())
        self.held[shard] = drawn.held
        return [Batch(shard, batch, drawn)] if drawn.numbers else []

    def update_priorities(self, batch: Batch, priorities: Mapping[str, np.ndarray]) -> None:
        """Sends new priorities of a batch's rows to their shard."""
        self._shards[batch.shard].update_priorities(batch.drawn.numbers, priorities)

    def get_state(self) -> list[dict[str, Any]]:
        """Each shard's contents."""
        return [shard.get_state(self._share_bytes()) for shard in self._shards]

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        """Goes on from `get_state` of as many shards."""
        self.held = [shard.set_state(state) for shard, state in zip(self._shards, states, strict=True)]

    def stop(self) -> None:
        """Nothing to end."""


class RemoteShards(_Shards):
    """Shards as Ray actors on the driver's node, or wherever there is room."""

    def __init__(self, config: ReplayConfig) -> None:
        super().__init__(config)
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        near = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self._factory = ray.remote(num_cpus=0, scheduling_strategy=near)(ReplayShard)
        self._actors = [self._factory.remote(config, number) for number in range(config.shards)]
        self._adds: dict[Any, tuple[int, int]] = {}
        self._draws: dict[Any, tuple[int, Any, float]] = {}
        self._losses_in_a_row = [0] * config.shards
        self._lives = [0] * config.shards

    @property
    def adds_in_flight(self) -> int:
        """Samples on their way into their shards."""
        return len(self._adds)

    def add(self, sample: Any, timesteps: int) -> None:
        """Gives a sample, by reference, to the next shard."""
        shard = self._turn_to_add()
        self._adds[self._actors[shard].add.remote(sample)] = (shard, timesteps)

    def take_adds(self) -> None:
        """Hears of samples that have arrived in their shards."""
        import ray
        from ray.exceptions import ObjectLostError, RayTaskError

        if not self._adds:
            return
        for reference in ray.wait(list(self._adds), num_returns=len(self._adds), timeout=0)[0]:
            if reference not in self._adds:
                continue  # its shard was lost meanwhile
            shard, timesteps = self._adds[reference]
            try:
                self.held[shard] = ray.get(reference, timeout=CALL_DEADLINE_S)
                self._losses_in_a_row[shard] = 0
            except lost_errors() as error:
                self._replace(shard, error)
                continue
            except (RayTaskError, ObjectLostError) as error:
                if isinstance(error, RayTaskError) and not isinstance(error.cause, ObjectLostError):
                    raise unwrap(error) from error
                self.dropped_timesteps += timesteps  # the sample was lost with its evaluator's node
            del self._adds[reference]

    def ask(self, beta: float) -> None:
        """Asks the next shard for one more batch."""
        self._ask(self._turn_to_draw(), beta)

    def _ask(self, shard: int, beta: float) -> None:
        batch, drawn = self._actors[shard].draw.options(num_returns=2).remote(beta)
        self._draws[drawn] = (shard, batch, beta)

    @property
    def batches_asked(self) -> int:
        """Batches that are still to come."""
        return len(self._draws)

    def take(self, *, wait_s: float) -> list[Batch]:
        """Batches that are there; `wait_s` seconds are waited for the first."""
        import ray
        from ray.exceptions import RayTaskError

        if not self._draws:
            return []
        ray.wait(list(self._draws), num_returns=1, timeout=wait_s)
        found = []
        for reference in ray.wait(list(self._draws), num_returns=len(self._draws), timeout=0)[0]:
            if reference not in self._draws:
                continue  # its shard was lost meanwhile
            shard, batch, _ = self._draws[reference]
            try:
                drawn: Drawn = ray.get(reference, timeout=CALL_DEADLINE_S)
            except lost_errors() as error:
                self._replace(shard, error)
                continue
            except RayTaskError as error:
                raise unwrap(error) from error
            del self._draws[reference]
            self.held[shard] = drawn.held
            self._losses_in_a_row[shard] = 0
            if drawn.numbers:
                found.append(Batch(shard, batch, drawn, self._lives[shard]))
        return found

    def update_priorities(self, batch: Batch, priorities: Mapping[str, np.ndarray]) -> None:
        """Sends new priorities of a batch's rows to their shard, without waiting."""
        if batch.life == self._lives[batch.shard]:
            self._actors[batch.shard].update_priorities.remote(batch.drawn.numbers, dict(priorities))

    def get_state(self) -> list[dict[str, Any]]:
        """Each shard's contents; nothing of one that is lost."""
        import ray

        asked = [actor.get_state.remote(self._share_bytes()) for actor in self._actors]
        states: list[dict[str, Any]] = []
        for shard, reference in enumerate(asked):
            try:
                states.append(ray.get(reference, timeout=CALL_DEADLINE_S))
            except lost_errors() as error:
                self._replace(shard, error)
                states.append({})
        return states

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        """Goes on from `get_state` of as many shards."""
        import ray

        asked = [actor.set_state.remote(state) for actor, state in zip(self._actors, states, strict=True)]
        self.held = ray.get(asked, timeout=CALL_DEADLINE_S)

    def stop(self) -> None:
        """Ends the actors."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._adds.clear()
        self._draws.clear()

    def _replace(self, shard: int, error: Exception) -> None:
        """Starts an empty shard in a lost one's place, and asks it or others for what the lost one still owed.

        Raises:
            UserError: it died again and again.
        """
        import ray

        self.losses += 1
        self._losses_in_a_row[shard] += 1
        if self._losses_in_a_row[shard] > CONSECUTIVE_LOSSES:
            raise UserError(
                f"replay shard {shard + 1} died {CONSECUTIVE_LOSSES + 1} times in a row: {error}",
                hint="out of memory? lower spec.config.replayCapacity or give the head more memory",
            ) from error
        logger.warning("replay shard lost, replaced by an empty one: shard=%d reason=%s", shard + 1, error)
        on_the_way = {reference: entry for reference, entry in self._adds.items() if entry[0] == shard}
        self.dropped_timesteps += self.held[shard].timesteps + sum(steps for _, steps in on_the_way.values())
        for reference in on_the_way:
            del self._adds[reference]
        self.held[shard] = Held()
        self._lives[shard] += 1
        ray.kill(self._actors[shard])
        self._actors[shard] = self._factory.remote(self.config, shard)
        for reference, (owner, _, beta) in list(self._draws.items()):
            if owner == shard:
                del self._draws[reference]
                if self.timesteps:
                    self.ask(beta)


Shards = LocalShards | RemoteShards
