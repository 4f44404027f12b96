"""N games side by side as one environment: an agent plays both seats, or one of them against a random player."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np

from rlcore.env.base import Step, VectorEnv, derive_seed, fresh_seed
from rlcore.env.games.game import FIRST, Game, require_legal
from rlcore.env.state import get_rng_state, set_rng_state

Seats = Literal["both", "one"]


class GameVectorEnv(VectorEnv):
    """Games of one kind, with the mask of legal actions; an illegal action is an error.

    With both seats every timestep is a move of whoever is to move, and the reward is the outcome as the first player
    sees it, paid at the end. With one seat a random player answers within the same timestep; the agent's seat changes
    from game to game, and between neighbouring slots; the reward is the agent's own outcome.

    Args:
        game: the rules.
        num_envs: N.
        seats: which the agent plays.
        max_episode_steps: truncates a game after so many timesteps; it counts as a draw.
        worker_index: mixed into the random player's seed.

    Attributes:
        positions: [N, ...] what the agent acts on next, or the end of a game.
        done: bool [N]; the game is over, and the next step begins another one.
        moves: int64 [N], moves made in these games, by either player.
    """

    has_action_mask = True

    def __init__(
        self,
        game: Game,
        num_envs: int,
        *,
        seats: Seats,
        max_episode_steps: int | None = None,
        worker_index: int = 0,
    ) -> None:
        super().__init__()
        self.game, self.num_envs, self.seats = game, num_envs, seats
        self.observation_space = game.observation_space
        self.action_space = gymnasium.spaces.Discrete(game.num_actions)
        self._limit, self._worker_index = max_episode_steps, worker_index
        self.positions = game.initial(num_envs)
        self.done = np.zeros(num_envs, np.bool_)
        self.moves = np.zeros(num_envs, np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._games = np.zeros(num_envs, np.int64)
        self._rng: np.random.Generator | None = None

    @property
    def simulator(self) -> GameVectorEnv:
        return self

    @property
    def seat(self) -> np.ndarray:
        """int8 [N]: which seat the agent has, where it has one."""
        return ((np.arange(self.num_envs) + self._games) % 2).astype(np.int8)

    def reset(self, seed: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        if seed is not None or self._rng is None:
            known = fresh_seed() if seed is None else seed
            self._rng = np.random.default_rng(derive_seed(known, self._worker_index))
            self._games[:] = -1
        nothing = np.zeros(self.num_envs, np.bool_)
        self._begin(~nothing)
        step = self._answered(nothing, np.zeros(self.num_envs, np.float32))
        return step.observations, step.action_mask

    def step(self, actions: np.ndarray) -> Step:
        ended, rewards = self.done.copy(), np.zeros(self.num_envs, np.float32)
        acting = np.flatnonzero(~ended)
        require_legal(self.game, self.positions[acting], actions[acting])
        self._play(acting, actions[acting], rewards)
        if ended.any():
            self._begin(ended)
        return self._answered(~ended, rewards)

    def get_state(self) -> dict[str, Any]:
        assert self._rng is not None
        return {
            "positions": self.positions.copy(),
            "done": self.done.copy(),
            "moves": self.moves.copy(),
            "elapsed": self._elapsed.copy(),
            "games": self._games.copy(),
            "rng": get_rng_state(self._rng),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.positions, self.done = np.array(state["positions"]), np.array(state["done"])
        self.moves, self._elapsed = np.array(state["moves"]), np.array(state["elapsed"])
        self._games = np.array(state["games"])
        self._rng = set_rng_state(state["rng"])

    def close(self) -> None:
        pass

    def _begin(self, which: np.ndarray) -> None:
        """New games in the slots `which`, bool [N]."""
        self.positions[which] = self.game.initial(int(np.count_nonzero(which)))
        self.moves[which] = self._elapsed[which] = 0
        self._games[which] += 1
        self.done[which] = False

    def _play(self, rows: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        """One move of whoever is to move in the games `rows`; what it pays goes into `rewards`, float32 [N]."""
        movers = self.game.mover(self.positions[rows])
        played = self.game.play(self.positions[rows], actions)
        self.positions[rows] = played.positions
        self.done[rows] = played.over
        self.moves[rows] += 1
        judge = FIRST if self.seats == "both" else self.seat[rows]
        rewards[rows] = np.where(movers == judge, played.outcome, -played.outcome)

    def _answered(self, valid: np.ndarray, rewards: np.ndarray) -> Step:
        """Lets the random player move where it is its turn, and looks at all games."""
        while self.seats == "one":
            turn = ~self.done & (self.game.mover(self.positions) != self.seat)
            if not turn.any():
                break
            rows = np.flatnonzero(turn)
            self._play(rows, self._random_moves(rows), rewards)
        self._elapsed += valid
        terminated = self.done.copy()
        truncated = np.zeros(self.num_envs, np.bool_)
        if self._limit is not None:
            truncated = ~terminated & (self._elapsed >= self._limit)
            self.done |= truncated
        mask = self.game.legal(self.positions)
        mask[self.done] = True
        return Step(self.game.observe(self.positions), rewards, terminated, truncated, valid, mask)

    def _random_moves(self, rows: np.ndarray) -> np.ndarray:
        assert self._rng is not None
        legal = self.game.legal(self.positions[rows])
        drawn: np.ndarray = np.where(legal, self._rng.random(legal.shape), -1.0).argmax(axis=1)
        return drawn
