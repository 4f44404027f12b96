"""From an environment id to a function that makes a multi-agent environment: PettingZoo ids and factories.

A PettingZoo id is the environment's Python module with slashes for dots: `mpe2/simple_spread_v3`,
`pettingzoo/classic/tictactoe_v3`. Where the module offers `parallel_env`, that is made; else `env`, which is
turn-based.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Callable
from typing import Any

from rlcore.env.registry import creation_failure, is_factory, is_pettingzoo_id, load_factory
from rlcore.errors import EnvironmentFailure

_VERSION = re.compile(r"_v\d+$")
_INSTALL = "PettingZoo's environments come with an extra: pip install 'rlcore[pettingzoo]'"
_FORMS = (
    'write environment.id as a PettingZoo id such as mpe2/simple_spread_v3, or as "module:factory", where '
    "factory(**kwargs) returns the environment"
)


def multi_agent_maker(env_id: str, kwargs: dict[str, Any]) -> Callable[[], Any]:
    """A function that makes one multi-agent environment, or raises EnvironmentFailure.

    Raises:
        EnvironmentFailure: the id is neither a factory nor a PettingZoo id, or what it names is not there.
    """
    if is_pettingzoo_id(env_id):
        factory = _load_pettingzoo(env_id)
    elif is_factory(env_id):
        factory = load_factory(env_id)
    else:
        raise EnvironmentFailure(
            f"multi-agent environment {env_id!r} is neither a PettingZoo id nor a factory", hint=_FORMS, permanent=True
        )

    def make() -> Any:
        try:
            return factory(**kwargs)
        except Exception as error:
            raise creation_failure(env_id, error, kwargs) from error

    return make


def _load_pettingzoo(env_id: str) -> Callable[..., Any]:
    name = env_id.replace("/", ".")
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        raise EnvironmentFailure(
            f"environment.id {env_id!r}: there is no package {package!r} here",
            hint=_INSTALL if package in ("pettingzoo", "mpe2") else f"pip install {package}",
            permanent=True,
        )
    try:
        with warnings.catch_warnings():
            # PettingZoo 1.27 would rather be asked by its registry, which other packages and older versions lack.
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise creation_failure(env_id, error, {}) from error
        raise EnvironmentFailure(
            f"environment.id {env_id!r} is not a known environment", hint=_nearest(env_id), permanent=True
        ) from error
    except Exception as error:
        raise creation_failure(env_id, error, {}) from error
    factory = getattr(module, "parallel_env", None) or getattr(module, "env", None)
    if not callable(factory):
        raise EnvironmentFailure(
            f"environment.id {env_id!r}: module {name} has neither parallel_env nor env", hint=_FORMS, permanent=True
        )
    return factory


def _nearest(env_id: str) -> str:
    """The environments of the same package that have the most similar names."""
    parent = env_id.rpartition("/")[0].replace("/", ".")
    try:
        path = list(importlib.import_module(parent).__path__)
    except Exception:  # the folder does not exist, or holds no package: there is nothing to compare with
        return f"there is no {parent.replace('.', '/')}; {_FORMS}"
    known = [found.name for found in pkgutil.iter_modules(path) if _VERSION.search(found.name)]
    here = {_VERSION.sub("", name): f"{env_id.rpartition('/')[0]}/{name}" for name in known}
    asked = _VERSION.sub("", env_id.rpartition("/")[2])
    matches = difflib.get_close_matches(asked, here, n=3, cutoff=0.5)
    if matches:
        return f"did you mean {' or '.join(here[match] for match in matches)}?"
    return f"{parent.replace('.', '/')} has {', '.join(sorted(known)) or 'no environments'}"
