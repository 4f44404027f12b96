"""Atari 2600: ale-py's C++ vector environment, and the same preprocessing for single environments.

Both give uint8 `[S * C, size, size]`: the last S frames (oldest first, zeros before the episode's first), C = 1 gray or
3 colors. Both press no-op 0 to noopMax - 1 times after a reset, then FIRE where the game waits for it (if fireReset),
repeat an action for frameSkip frames, keep the pixelwise maximum of the last two (sprites flicker), shrink by area
averaging, and truncate after maxFramesPerEpisode / frameSkip timesteps. A lost life terminates if episodicLife, and
the game begins anew. Defaults: Machado et al. 2018, "Revisiting the Arcade Learning Environment"; stack of Mnih et al.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rlcore.env.state import get_ale_state, set_ale_state
from rlcore.errors import EnvironmentFailure

if TYPE_CHECKING:
    from rlcore.api import EnvironmentSpec
    from rlcore.api.environment import AtariSpec

_ENTRY_POINT = "ale_py.env:AtariEnv"


def is_atari(gym_spec: EnvSpec) -> bool:
    """Whether an id is one of ale-py's games."""
    return bool(gym_spec.entry_point == _ENTRY_POINT)


def game_of(gym_spec: EnvSpec) -> str:
    """The ROM behind an id: "ms_pacman" for ALE/MsPacman-v5.

    Raises:
        EnvironmentFailure: `wrappers: atari` was asked for something else.
    """
    if not is_atari(gym_spec):
        raise EnvironmentFailure(
            f"environment.wrappers is atari, but {gym_spec.id} is not an Atari game",
            hint="remove wrappers: atari",
            permanent=True,
        )
    return str(gym_spec.kwargs["game"])


def episode_limit(spec: EnvironmentSpec) -> int:
    """Timesteps after which an episode is truncated."""
    by_frames = -(-spec.atari.max_frames_per_episode // spec.atari.frame_skip)
    return by_frames if spec.max_episode_steps is None else min(by_frames, spec.max_episode_steps)


def atari_vector_maker(
    spec: EnvironmentSpec, gym_spec: EnvSpec, num_envs: int, threads: int
) -> Callable[[], gymnasium.vector.VectorEnv] | None:
    """A function that makes ale-py's C++ vector environment; None if `spec.kwargs` asks for what it cannot do.

    Rewards are left unclipped: episode returns need them.
    """
    from ale_py.vector_env import AtariVectorEnv

    silence_emulator()
    atari = spec.atari
    kwargs: dict[str, Any] = {
        "num_threads": threads,
        "img_height": atari.frame_size,
        "img_width": atari.frame_size,
        "grayscale": atari.grayscale,
        "stack_num": atari.frame_stack,
        "frameskip": atari.frame_skip,
        "noop_max": atari.noop_max,
        "episodic_life": atari.episodic_life,
        "use_fire_reset": atari.fire_reset,
        "repeat_action_probability": atari.sticky_action_probability,
        "full_action_space": atari.full_action_space,
        "max_num_frames_per_episode": episode_limit(spec) * atari.frame_skip,
        "reward_clipping": False,
    }
    if not set(spec.kwargs) <= set(inspect.signature(AtariVectorEnv).parameters):
        return None
    kwargs.update(spec.kwargs)
    game = game_of(gym_spec)
    return lambda: AtariVectorEnv(game, num_envs, **kwargs)


def atari_single_maker(spec: EnvironmentSpec, gym_spec: EnvSpec) -> Callable[[], gymnasium.Env]:
    """A function that makes one preprocessed game; the caller truncates at `episode_limit`."""
    game_of(gym_spec)
    silence_emulator()
    atari = spec.atari
    kwargs: dict[str, Any] = {
        "frameskip": 1,
        "repeat_action_probability": atari.sticky_action_probability,
        "full_action_space": atari.full_action_space,
        "max_num_frames_per_episode": 0,  # counted in timesteps by the caller
        "obs_type": "grayscale" if atari.grayscale else "rgb",
        **spec.kwargs,
    }
    return lambda: AtariPreprocessing(gymnasium.make(gym_spec.id, disable_env_checker=True, **kwargs), atari)


def silence_emulator() -> None:
    """No banner on stderr for every process that makes a game."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class AtariPreprocessing(gymnasium.Wrapper):
    """The preprocessing of this module's docstring around one AtariEnv with frame skip 1.

    It talks to the emulator directly: AtariEnv would copy out a screen for every skipped frame.
    """

    def __init__(self, env: gymnasium.Env, atari: AtariSpec) -> None:
        super().__init__(env)
        try:
            import cv2
        except ImportError as error:
            raise EnvironmentFailure(
                "Atari outside ale-py's vector environment needs OpenCV",
                hint="pip install 'rlcore[atari]'",
                permanent=True,
            ) from error
        self._resize, self._area = cv2.resize, cv2.INTER_AREA
        self._atari = atari
        self._game: Any = env.unwrapped
        self._ale = self._game.ale
        self._action_set: list[Any] = list(self._game._action_set)
        meanings = env.unwrapped.get_action_meanings()
        self._fire = self._action_set[1] if atari.fire_reset and "FIRE" in meanings else None
        colors = () if atari.grayscale else (3,)
        self._screens = np.zeros((2, *self._ale.getScreenDims(), *colors), np.uint8)
        self._grab = self._ale.getScreenGrayscale if atari.grayscale else self._ale.getScreenRGB
        size = (atari.frame_size, atari.frame_size)
        self._size = size
        self._stack = np.zeros((atari.frame_stack, *size, *colors), np.uint8)
        self._lives = 0
        self.observation_space = spaces.Box(0, 255, self._stack.shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        _, info = self.env.reset(seed=seed, options=options)
        noops = int(self._game.np_random.integers(0, self._atari.noop_max)) if self._atari.noop_max else 0
        for action in [self._action_set[0]] * noops + ([self._fire] if self._fire is not None else []):
            self._ale.act(action, 1.0)
            if self._ale.game_over(with_truncation=False):
                self._ale.reset_game()
        self._stack[:] = 0
        self._grab(self._screens[0])
        self._push(self._screens[0])
        self._lives = self._ale.lives()
        return self._stack.copy(), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        ale, reward, skip = self._ale, 0, self._atari.frame_skip
        act = self._action_set[action]
        seen = 0
        for frame in range(skip):
            reward += ale.act(act, 1.0)
            over = ale.game_over(with_truncation=False)
            if frame >= skip - 2:
                self._grab(self._screens[seen])
                seen += 1
            if over:
                break
        if over and seen == 0:  # ended before the frames that are looked at
            self._grab(self._screens[0])
            seen = 1
        self._push(np.maximum(self._screens[0], self._screens[1]) if seen == 2 else self._screens[0])
        lives = ale.lives()
        life_lost, self._lives = lives < self._lives, lives
        terminated = over or (self._atari.episodic_life and life_lost)
        return self._stack.copy(), float(reward), terminated, False, {"lives": lives}

    def get_state(self) -> dict[str, Any]:
        """Emulator, random generators and frame stack; see rlcore.env.state."""
        return {"game": get_ale_state(self._game), "stack": self._stack.copy(), "lives": self._lives}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        set_ale_state(self._game, state["game"])
        self._stack[...] = state["stack"]
        self._lives = state["lives"]

    def _push(self, screen: np.ndarray) -> None:
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = self._resize(screen, self._size, interpolation=self._area)
