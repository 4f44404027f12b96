"""From `spec.environment` to a running VectorEnv: which backend, and with what."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode

from rlcore.env.atari import atari_single_maker, atari_vector_maker, episode_limit, is_atari, silence_emulator
from rlcore.env.base import VectorEnv
from rlcore.env.envpool_env import make_envpool
from rlcore.env.games import GAMES, Game, GameEnv, GameVectorEnv, Seats
from rlcore.env.games.game import not_a_game, require_sound
from rlcore.env.games.library import make_rules
from rlcore.env.native import NativeVectorEnv
from rlcore.env.registry import creation_failure, find_spec, is_factory, load_factory
from rlcore.env.reward_clipping import RewardClipping
from rlcore.env.sync import SyncVectorEnv
from rlcore.errors import EnvironmentFailure, UnsupportedError

if TYPE_CHECKING:
    from rlcore.api import EnvironmentSpec

logger = logging.getLogger(__name__)

_NATIVE_HINT = "use vectorization: auto; Atari games have one only with wrappers: atari"


def make_vector_env(
    spec: EnvironmentSpec, num_envs: int, *, worker_index: int = 0, threads: int = 1, seats: Seats | None = None
) -> VectorEnv:
    """Make N copies of the manifest's environment, vectorized as `spec.vectorization` says.

    "auto" takes the first that fits: ale-py's C++ environment for `wrappers: atari`, the environment's own vector
    entry point, a loop in this process.

    Args:
        worker_index: which evaluator this is; evaluators given the same seed still see different episodes.
        threads: of environments that step in C++; an evaluator has one core, unless it samples alone.
        seats: the environment must be a game whose rules can be searched, and these seats are the policy's; None:
            it may be anything, and of a game the policy has one seat.

    Raises:
        EnvironmentFailure: not installed, unknown, cannot be made, or not vectorizable in the way asked for.
        UnsupportedError: a space that cannot be flattened.
    """
    if seats is not None:
        return _games(spec, load_game(spec), num_envs, worker_index, seats)
    env = _vectorize(spec, num_envs, worker_index, threads)
    return RewardClipping(env) if spec.wrappers == "atari" and spec.atari.reward_clipping else env


def make_sync_env(
    spec: EnvironmentSpec, num_envs: int, *, worker_index: int = 0, first_index: int = 0
) -> SyncVectorEnv:
    """The environment in a loop; sub-environments count from `first_index`. Rewards are never clipped."""
    limit = episode_limit(spec) if spec.wrappers == "atari" else spec.max_episode_steps
    return SyncVectorEnv(
        single_env_maker(spec), num_envs, max_episode_steps=limit, worker_index=worker_index, first_index=first_index
    )


def load_game(spec: EnvironmentSpec) -> Game:
    """The rules that the manifest names.

    Raises:
        EnvironmentFailure: it is no game, or one that does not keep to the interface.
        UnsupportedError: wrappers, or a way of vectorisation, that games do not have.
    """
    if spec.wrappers != "none":
        raise UnsupportedError(
            f"environment.wrappers: {spec.wrappers} does not fit games that step as one array",
            hint="leave wrappers out",
        )
    if spec.vectorization not in ("auto", "native"):
        raise UnsupportedError(
            f"environment.vectorization: {spec.vectorization} does not fit games that are searched",
            hint="leave vectorization out: all games step as one array",
        )
    if is_factory(spec.id):
        factory = load_factory(spec.id)
        make = lambda: factory(**spec.kwargs)  # noqa: E731
    else:
        find_spec(spec.id)
        if spec.id not in GAMES:
            raise not_a_game(spec.id, "an environment without rules that could be looked ahead with")
        make = lambda: make_rules(GAMES[spec.id], spec.kwargs)  # noqa: E731
    try:
        game = make()
    except Exception as error:
        raise creation_failure(spec.id, error, spec.kwargs) from error
    return require_sound(game, spec.id)


def single_env_maker(spec: EnvironmentSpec) -> Callable[[], gymnasium.Env]:
    """A function that makes one sub-environment, or raises EnvironmentFailure."""
    if is_factory(spec.id):
        factory = load_factory(spec.id)
        return lambda: _checked(spec, lambda: factory(**spec.kwargs))
    gym_spec = find_spec(spec.id)
    if spec.wrappers == "atari":
        make_atari = atari_single_maker(spec, gym_spec)
        return lambda: _checked(spec, make_atari)
    if is_atari(gym_spec):
        silence_emulator()
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    # The passive checker repeats on every step what our loop checks once per episode.
    return lambda: _checked(spec, lambda: gymnasium.make(gym_spec, disable_env_checker=True, **limit, **spec.kwargs))


def _vectorize(spec: EnvironmentSpec, num_envs: int, worker_index: int, threads: int) -> VectorEnv:
    if spec.wrappers == "atari" and is_factory(spec.id):
        raise EnvironmentFailure(
            f"environment.wrappers is atari, but {spec.id!r} is a factory",
            hint="let the factory add its own wrappers",
            permanent=True,
        )
    if spec.vectorization == "envpool":
        return NativeVectorEnv(lambda: make_envpool(spec, num_envs, threads), worker_index=worker_index)
    if spec.vectorization == "subprocess":
        # Imported late: a worker imports this module to make its slice.
        from rlcore.env.subprocess_env import SubprocessVectorEnv

        return SubprocessVectorEnv(spec, num_envs, worker_index=worker_index)
    if spec.vectorization in ("auto", "native"):
        native = _native(spec, num_envs, worker_index, threads)
        if native is not None:
            return native
    if spec.vectorization == "native":
        message = f"environment {spec.id!r} has no vector environment of its own"
        raise EnvironmentFailure(message, hint=_NATIVE_HINT, permanent=True)
    return make_sync_env(spec, num_envs, worker_index=worker_index)


def _checked(spec: EnvironmentSpec, make: Callable[[], Any]) -> gymnasium.Env:
    try:
        env = make()
    except Exception as error:
        raise creation_failure(spec.id, error, spec.kwargs) from error
    if isinstance(env, Game):
        return GameEnv(require_sound(env, spec.id))
    if isinstance(env, gymnasium.Env):
        return env
    hint = "the factory must return a gymnasium.Env; one environment, rlcore makes the copies"
    if hasattr(env, "possible_agents"):
        hint = "this looks like a multi-agent environment: describe its policies under spec.multiAgent"
    message = f"environment {spec.id!r} is a {type(env).__name__}, not a gymnasium.Env"
    raise EnvironmentFailure(message, hint=hint, permanent=True)


def _native(spec: EnvironmentSpec, num_envs: int, worker_index: int, threads: int) -> VectorEnv | None:
    """The environment's own vectorization; None where it has none, or in "auto" none that fits."""
    if is_factory(spec.id):
        return None
    if spec.id in GAMES:
        return _games(spec, load_game(spec), num_envs, worker_index, "one")
    gym_spec = find_spec(spec.id)
    atari = is_atari(gym_spec)
    if spec.wrappers == "atari":
        make = atari_vector_maker(spec, gym_spec, num_envs, threads)
    else:
        # ale-py's vector environment always preprocesses: whoever asked for no wrappers wants the raw screen.
        make = None if atari else _entry_point_maker(spec, gym_spec, num_envs)
    if make is None:
        return None
    try:
        return NativeVectorEnv(make, worker_index=worker_index, seed_each=atari)
    except Exception as error:
        if spec.vectorization == "native":
            raise creation_failure(spec.id, error, spec.kwargs) from error
        logger.info("native vectorization of %s is not usable, using sync: %s", spec.id, error)
        return None


def _games(spec: EnvironmentSpec, game: Game, num_envs: int, worker_index: int, seats: Seats) -> VectorEnv:
    limit = spec.max_episode_steps
    return GameVectorEnv(game, num_envs, seats=seats, max_episode_steps=limit, worker_index=worker_index)


def _entry_point_maker(
    spec: EnvironmentSpec, gym_spec: EnvSpec, num_envs: int
) -> Callable[[], gymnasium.vector.VectorEnv] | None:
    if gym_spec.vector_entry_point is None:
        return None
    kwargs = dict(spec.kwargs)
    if spec.max_episode_steps is not None:
        kwargs["max_episode_steps"] = spec.max_episode_steps
    kwargs.update(_next_step_kwargs(gym_spec.vector_entry_point))
    return lambda: gymnasium.make_vec(gym_spec.id, num_envs, "vector_entry_point", **kwargs)


def _next_step_kwargs(entry_point: Any) -> dict[str, Any]:
    """Ask for NEXT_STEP autoreset where the constructor lets us choose."""
    creator = entry_point if callable(entry_point) else load_env_creator(entry_point)
    if "autoreset_mode" in inspect.signature(creator).parameters:
        return {"autoreset_mode": AutoresetMode.NEXT_STEP}
    return {}
