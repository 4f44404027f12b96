"""Saving and restoring environments to the last bit, as arrays, bytes, numbers and text only (never pickles).

Known are gymnasium's classic control (single and CartPole's own vector environment), Atari through ale-py, and any
environment that defines `get_state()` and `set_state(state)` itself. Wrappers that hold nothing between steps, and
those that `gymnasium.make` puts around every environment, are looked through; with any other wrapper the state is
not on offer, because restoring half of it would be worse than beginning a new episode.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

# Attributes that change while an environment of this class runs (beside its random generator and what it draws).
_CLASSIC_CONTROL: dict[str, tuple[str, ...]] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": ("state", "steps_beyond_terminated"),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": ("state", "last_u"),
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": ("state",),
}
_VECTOR: dict[str, tuple[str, ...]] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": ("state", "steps", "prev_done", "low", "high"),
}
# Wrapper class -> attributes that change; an empty tuple: nothing does.
_WRAPPERS: dict[type, tuple[str, ...]] = {
    wrappers.TimeLimit: ("_elapsed_steps",),
    wrappers.OrderEnforcing: ("_has_reset",),
    wrappers.PassiveEnvChecker: (),
    wrappers.ClipAction: (),
    wrappers.ClipReward: (),
    wrappers.DtypeObservation: (),
    wrappers.FilterObservation: (),
    wrappers.FlattenObservation: (),
    wrappers.GrayscaleObservation: (),
    wrappers.RescaleAction: (),
    wrappers.RescaleObservation: (),
    wrappers.ReshapeObservation: (),
    wrappers.ResizeObservation: (),
}
_ALE = "ale_py.env:AtariEnv"

State = dict[str, Any]


def get_env_state(env: gymnasium.Env) -> State | None:
    """State of a single environment with its wrappers; None where some part of it does not offer its own."""
    layers: list[State] = []
    while not offers_state(env):
        if not isinstance(env, gymnasium.Wrapper):
            inner = _get_inner(env)
            return None if inner is None else {"wrappers": layers, "env": inner}
        if type(env) not in _WRAPPERS:
            return None
        layers.append(_get_attributes(env, _WRAPPERS[type(env)]))
        env = env.env
    return {"wrappers": layers, "env": env.get_state()}


def set_env_state(env: gymnasium.Env, state: State) -> None:
    """Continue from `get_env_state` in an environment that was made alike."""
    for layer in state["wrappers"]:
        _set_attributes(env, layer)
        env = env.env
    if offers_state(env):
        env.set_state(state["env"])
    else:
        _set_inner(env, state["env"])


def get_vector_state(env: Any) -> State | None:
    """State of a gymnasium vector environment; None where it does not offer it."""
    if offers_state(env):
        state: State | None = env.get_state()
        return state
    names = _VECTOR.get(_class_name(env))
    return None if names is None else {**_get_attributes(env, names), "rng": get_rng_state(env.np_random)}


def set_vector_state(env: Any, state: State) -> None:
    """Continue from `get_vector_state` in a vector environment that was made alike."""
    if offers_state(env):
        env.set_state(state)
        return
    _set_attributes(env, {name: value for name, value in state.items() if name != "rng"})
    env.np_random = set_rng_state(state["rng"])


def get_rng_state(rng: np.random.Generator) -> State:
    """A numpy generator's state as a nested dict of text and integers (of up to 128 bits)."""
    return dict(rng.bit_generator.state)


def set_rng_state(state: State) -> np.random.Generator:
    """A new numpy generator that continues from `get_rng_state`.

    Raises:
        ValueError: the state names a bit generator that numpy does not have.
    """
    name = str(state["bit_generator"])
    if name not in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"):
        raise ValueError(f"unknown bit generator {name!r} in an environment's saved state")
    bit_generator = getattr(np.random, name)()
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def get_ale_state(env: Any) -> State:
    """State of ale-py's AtariEnv: the emulator's own serialization (bytes) with its random generator."""
    return {"ale": env.ale.cloneState(include_rng=True).serialize(), "rng": get_rng_state(env.np_random)}


def set_ale_state(env: Any, state: State) -> None:
    """Continue from `get_ale_state`; ale-py parses the bytes in C++, no code comes with them."""
    from ale_py import ALEState

    env.ale.restoreState(ALEState(state["ale"]))
    env.np_random = set_rng_state(state["rng"])


def offers_state(env: Any) -> bool:
    """Whether the environment defines get_state() and set_state(state) itself."""
    # Looked up on the class: some wrappers forward unknown attributes to the environment they wrap.
    return callable(getattr(type(env), "get_state", None)) and callable(getattr(type(env), "set_state", None))


def _get_inner(env: gymnasium.Env) -> State | None:
    if _class_name(env) == _ALE:
        return get_ale_state(env)
    names = _CLASSIC_CONTROL.get(_class_name(env))
    return None if names is None else {**_get_attributes(env, names), "rng": get_rng_state(env.np_random)}


def _set_inner(env: gymnasium.Env, state: State) -> None:
    if _class_name(env) == _ALE:
        set_ale_state(env, state)
        return
    _set_attributes(env, {name: value for name, value in state.items() if name != "rng"})
    env.np_random = set_rng_state(state["rng"])


def _class_name(env: Any) -> str:
    return f"{type(env).__module__}:{type(env).__qualname__}"


def _get_attributes(target: Any, names: tuple[str, ...]) -> State:
    return {name: _encode(getattr(target, name)) for name in names}


def _set_attributes(target: Any, values: State) -> None:
    for name, value in values.items():
        setattr(target, name, _decode(value))


def _encode(value: Any) -> Any:
    """Copy a value; numpy scalars become 0-d arrays and tuples say so, for both compute and print differently."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, np.generic):
        return {"scalar": np.asarray(value)}
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise TypeError(f"cannot save a {type(value).__name__} as part of an environment's state")


def _decode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return value["scalar"][()] if "scalar" in value else tuple(_decode(item) for item in value["tuple"])
    return value
