"""From an environment id to a function that makes one: Gymnasium ids, ids in modules of their own, and factories."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import error as gymnasium_error
from gymnasium.envs.registration import EnvSpec

from rlcore.env.base import describe_error
from rlcore.env.games.library import register_games
from rlcore.env.minatar_env import register_minatar
from rlcore.errors import EnvironmentFailure, UserError

# Gymnasium ids end in a version; a factory is a plain Python name.
_VERSIONED = re.compile(r"-v\d+$")
_PETTINGZOO = re.compile(r"^[A-Za-z_]\w*(/[A-Za-z_]\w*)+_v\d+$")
_LEGACY_ATARI = re.compile(r"^[A-Z]\w+?(Deterministic|NoFrameskip)?-v[04]$")
# Part of an environment's entry point -> what to install when it says that something is missing.
_EXTRAS = {
    "ale_py": "'rlcore[atari]'",
    "box2d": "'rlcore[box2d]'",
    "classic_control": "'rlcore[classic]'",
    "minatar": "'rlcore[minatar]'",
    "mujoco": "'rlcore[mujoco]'",
    "toy_text": "'gymnasium[toy-text]'",
}


def is_factory(env_id: str) -> bool:
    """Whether the id is `module:factory`; `module:Name-v0` is a Gymnasium id that its module registers on import."""
    _, colon, name = env_id.partition(":")
    return bool(colon) and not _VERSIONED.search(name)


def is_pettingzoo_id(env_id: str) -> bool:
    """Whether the id names a module of PettingZoo's kind, such as mpe2/simple_spread_v3; Gymnasium's end in -v3."""
    return bool(_PETTINGZOO.match(env_id))


def load_factory(env_id: str) -> Callable[..., Any]:
    """The callable that `module:factory` names.

    Raises:
        EnvironmentFailure: the module cannot be imported, or has no such callable.
    """
    module_name, _, name = env_id.partition(":")
    module = _import(module_name, env_id)
    factory = getattr(module, name, None)
    if not callable(factory):
        offered = [other for other, value in vars(module).items() if callable(value) and not other.startswith("_")]
        raise EnvironmentFailure(
            f"environment.id {env_id!r}: module {module_name} has no callable {name!r}",
            hint=_nearest(name, offered) or "the id is module:factory, where factory(**kwargs) returns a gymnasium.Env",
            permanent=True,
        )
    return factory


def find_spec(env_id: str) -> EnvSpec:
    """Gymnasium's own description of an id, after importing the packages that register it.

    Raises:
        EnvironmentFailure: the id is unknown; the hint names the package to install, or the nearest known ids.
    """
    module_name, colon, name = env_id.rpartition(":")
    if colon:
        _import(module_name, env_id)
    register_known(name)
    try:
        return gymnasium.spec(name)
    except gymnasium_error.Error as error:
        raise EnvironmentFailure(
            f"environment.id {env_id!r} is not a known environment", hint=_unknown_hint(name), permanent=True
        ) from error


def register_known(name: str) -> None:
    """Register the environments of an installed package that Gymnasium does not load by itself."""
    if name in gymnasium.registry:
        return
    if name.startswith("ALE/") or _LEGACY_ATARI.match(name):
        _register_atari()
    if name.startswith("MinAtar/"):
        _register_minatar()
    if name.startswith("rlcore/"):
        register_games()


def creation_failure(env_id: str, error: Exception, kwargs: dict[str, Any]) -> UserError:
    """What to tell the user when making an environment raised `error`."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, ImportError | gymnasium_error.DependencyNotInstalled):
        entry = str(getattr(gymnasium.registry.get(env_id.rpartition(":")[2]), "entry_point", "")) + env_id
        extra = next((package for part, package in _EXTRAS.items() if part in entry.lower()), None)
        advice = f"pip install {extra}" if extra else "install the package that the message names"
        text = " ".join(str(error).split())
        message = f"environment {env_id!r} needs a package that is not installed: {text}"
        return EnvironmentFailure(message, hint=advice, permanent=True)
    with_kwargs = f" with kwargs {kwargs}" if kwargs else ""
    wrong_kwargs = isinstance(error, TypeError)
    hint = "check environment.kwargs against its documentation" if wrong_kwargs else None
    message = f"making environment {env_id!r}{with_kwargs} raised {describe_error(error)}"
    return EnvironmentFailure(message, hint=hint, permanent=wrong_kwargs)


def _import(module_name: str, env_id: str) -> Any:
    where = f"environment.id {env_id!r}"
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        # A module that is there, but imports one that is not, is another mistake than a wrong name.
        if missing and (module_name == missing or module_name.startswith(f"{missing}.")):
            hint = "install its package, or put its directory on PYTHONPATH"
            message = f"{where}: there is no module {module_name!r} here"
            raise EnvironmentFailure(message, hint=hint, permanent=True) from error
        raise EnvironmentFailure(f"{where}: importing {module_name} raised {describe_error(error)}") from error


def _register_atari() -> None:
    if importlib.util.find_spec("ale_py"):
        importlib.import_module("ale_py")  # registers on import


def _register_minatar() -> None:
    if importlib.util.find_spec("minatar"):
        register_minatar()


def _unknown_hint(name: str) -> str:
    if is_pettingzoo_id(name):
        return "this is a PettingZoo id: name the policies of its agents under spec.multiAgent"
    if (name.startswith("ALE/") or _LEGACY_ATARI.match(name)) and not importlib.util.find_spec("ale_py"):
        return "Atari environments come with an extra: pip install 'rlcore[atari]'"
    if name.startswith("MinAtar/") and not importlib.util.find_spec("minatar"):
        return "MinAtar environments come with an extra: pip install 'rlcore[minatar]'"
    _register_atari()
    _register_minatar()
    register_games()
    return _nearest(name, list(gymnasium.registry)) or (
        "python -c 'import gymnasium; gymnasium.pprint_registry()' lists the known ids; "
        "an id of another package is written package.module:Name-v0"
    )


def _nearest(name: str, known: list[str]) -> str | None:
    # Compared without case and namespace, so that pong-v5 finds ALE/Pong-v5.
    by_key: dict[str, str] = {}
    for other in known:
        by_key.setdefault(other.lower(), other)
        by_key.setdefault(other.rpartition("/")[2].lower(), other)
    matches = difflib.get_close_matches(name.lower(), by_key, n=3, cutoff=0.6)
    names = list(dict.fromkeys(by_key[match] for match in matches))
    return f"did you mean {' or '.join(names)}?" if names else None
