"""Ids and factories, and what a user reads who got one wrong."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from rlcore.api import EnvironmentSpec
from rlcore.env import make_vector_env
from rlcore.errors import EnvironmentFailure, UnsupportedError
from tests.envs import ObeyingEnv


def message(env_id: str, **fields: Any) -> str:
    with pytest.raises(EnvironmentFailure) as caught:
        make_vector_env(EnvironmentSpec(id=env_id, **fields), 1)
    return str(caught.value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path for modules of the test's own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("env_id", "suggestion"),
    [
        ("CartPole-v9", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("pong-v5", "ALE/Pong-v5"),
        ("ALE/Pnog-v5", "ALE/Pong-v5"),
        ("MinAtar/Brakout-v1", "MinAtar/Breakout-v1"),
    ],
)
def test_an_unknown_id_names_the_nearest_known_one(env_id: str, suggestion: str) -> None:
    text = message(env_id)
    assert f"{env_id!r} is not a known environment" in text
    assert "did you mean" in text
    assert suggestion in text


def test_an_id_like_nothing_known_says_how_to_list_them() -> None:
    assert "pprint_registry" in message("Qqqqqqqqqq-v3")


@pytest.mark.parametrize(
    ("env_id", "module", "extra"),
    [
        ("ALE/Pong-v5", "ale_py", "rlcore[atari]"),
        ("PongNoFrameskip-v4", "ale_py", "rlcore[atari]"),
        ("MinAtar/Breakout-v1", "minatar", "rlcore[minatar]"),
    ],
)
def test_a_missing_package_names_its_extra(
    env_id: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else found(name))
    monkeypatch.setattr(gym, "registry", {"CartPole-v1": gym.registry["CartPole-v1"]})
    monkeypatch.setattr(gym.envs.registration, "registry", gym.registry)
    assert f"pip install '{extra}'" in message(env_id)


def test_a_missing_envpool_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'rlcore[envpool]'" in message("Pendulum-v1", vectorization="envpool")


def test_an_environment_that_envpool_does_not_have_is_refused() -> None:
    assert "envpool does not offer environment 'MinAtar/Breakout-v1'" in message(
        "MinAtar/Breakout-v1", vectorization="envpool"
    )


def test_a_dependency_that_the_environment_misses_names_the_extra() -> None:
    def needs_box2d() -> gym.Env:
        raise gym.error.DependencyNotInstalled("Box2D is not installed")

    gym.register("needs_box2d/Lander-v0", entry_point=needs_box2d)
    try:
        text = message("needs_box2d/Lander-v0")
    finally:
        del gym.registry["needs_box2d/Lander-v0"]
    assert "Box2D is not installed" in text
    assert "pip install 'rlcore[box2d]'" in text


def test_wrong_keyword_arguments_are_named() -> None:
    text = message("Pendulum-v1", kwargs={"gravity": 3})
    assert "gravity" in text
    assert "environment.kwargs" in text


@pytest.mark.parametrize(
    ("env_id", "reason"),
    [
        ("no_such_module:make", "there is no module 'no_such_module'"),
        ("tests.no_such:make", "there is no module 'tests.no_such'"),
        ("tests.envs:ObeyingEn", "did you mean ObeyingEnv?"),
        ("tests.envs:NOT_CALLABLE", "no callable 'NOT_CALLABLE'"),
        ("tests.envs:not_an_env", "is a dict, not a gymnasium.Env"),
        ("tests.envs:make_relay", "spec.multiAgent"),
        ("tests.envs:broken_factory", "ZeroDivisionError: no floor to stand on (envs.py:"),
    ],
)
def test_a_wrong_factory_says_what_is_wrong(env_id: str, reason: str) -> None:
    assert reason in message(env_id)


def test_a_module_that_fails_to_import_shows_its_own_error(package: Path) -> None:
    (package / "own_needy.py").write_text("import no_such_dependency\n")
    (package / "own_broken.py").write_text("1 / 0\n")
    assert "No module named 'no_such_dependency' (own_needy.py:1" in message("own_needy:make")
    assert "ZeroDivisionError" in message("own_broken:make")


def test_a_module_may_register_a_gymnasium_id(package: Path) -> None:
    source = "import gymnasium as gym\ngym.register('Own-v3', entry_point='tests.envs:ObeyingEnv')\n"
    (package / "own_ids.py").write_text(source)
    env = make_vector_env(EnvironmentSpec(id="own_ids:Own-v3"), 2)
    del gym.registry["Own-v3"]
    assert env.observation_space.shape == (2,)


def test_keyword_arguments_reach_gymnasium_ids_and_factories(package: Path) -> None:
    (package / "own_factory.py").write_text(
        "import tests.envs\n"
        "def make(shift):\n"
        "    env = tests.envs.ObeyingEnv()\n"
        "    env.action_space.start = shift\n"
        "    return env\n"
    )
    made = make_vector_env(EnvironmentSpec(id="own_factory:make", kwargs={"shift": 4}), 1)
    assert made.action_space.start == 4
    assert make_vector_env(EnvironmentSpec(id="Pendulum-v1", kwargs={"g": 1.0}), 1).num_envs == 1


def test_a_space_that_cannot_be_flattened_is_named() -> None:
    class Talking(ObeyingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Dict({"speech": gym.spaces.Text(9)})

    gym.register("Talking-v0", entry_point=Talking)
    try:
        with pytest.raises(UnsupportedError, match=r"the observation space\['speech'\] is a Text"):
            make_vector_env(EnvironmentSpec(id="Talking-v0"), 1)
    finally:
        del gym.registry["Talking-v0"]
