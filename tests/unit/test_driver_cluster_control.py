"""control.json: what is taken over while a job runs, and what is not understood and changes nothing."""

import json
import logging
import os

import pytest

from rlcore.api import PoolLimits
from rlcore.driver.control import ControlFile, parse_control

FULL = {
    "version": 1,
    "attempt": 2,
    "stop": {"timesteps": 200_000, "episodeReward": 475},
    "evaluators": {"replicas": None, "pools": {"spot": {"minReplicas": 0, "maxReplicas": 8}}},
    "checkpointRequest": "now",
    "pause": True,
    "finalObserved": "2.pod.1",
}


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def tick(self, seconds: float = 1.0) -> None:
        self.now_s += seconds


def write(directory, content) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (directory / "control.json").write_text(text)


def test_everything_the_operator_writes_is_understood():
    control = parse_control(json.dumps(FULL).encode())
    assert control.stop is not None
    assert (control.stop.timesteps, control.stop.episode_reward) == (200_000, 475)
    assert control.pools == {"spot": PoolLimits(0, 8)}
    assert control.replicas is None
    assert control.checkpoint_request == "now"
    assert control.pause
    assert control.final_observed == "2.pod.1"


def test_what_is_left_out_changes_nothing():
    control = parse_control(b'{"version": 1}')
    assert control.stop is None
    assert not control.pause
    assert not control.pools


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"stop": {"timestep": 3}}, "stop.timestep"),
        ({"stop": {}}, "at least one"),
        ({"stop": {"timesteps": "many"}}, "stop.timesteps"),
        ({"pause": "yes"}, "pause is 'yes', not bool"),
        ({"checkpointRequest": 3}, "checkpointRequest is 3"),
        ({"evaluators": 3}, "evaluators is not an object"),
        ({"evaluators": {"replicas": True}}, "replicas is True"),
        ({"evaluators": {"pools": {"spot": {"minReplicas": 3, "maxReplicas": 1}}}}, "pools.spot"),
        ({"evaluators": {"pools": {"spot": 3}}}, "pools.spot is not an object"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        parse_control(json.dumps({**FULL, **change}).encode())


def test_the_file_is_read_once_a_second(tmp_path):
    clock = Clock()
    file = ControlFile(tmp_path, clock)
    assert not file.poll().pause
    write(tmp_path, {"version": 1, "pause": True})
    clock.tick(0.5)
    assert not file.poll().pause
    clock.tick(0.5)
    assert file.poll().pause


@pytest.mark.parametrize("broken", ["", '{"version": 1, "pau', "[]", "\x00", '{"version": 1, "pause": 3}'])
def test_a_broken_file_leaves_the_last_good_one_in_force(tmp_path, caplog, broken):
    clock = Clock()
    file = ControlFile(tmp_path, clock)
    write(tmp_path, {"version": 1, "pause": True})
    assert file.poll().pause
    write(tmp_path, broken)
    with caplog.at_level(logging.WARNING, "rlcore.driver"):
        for _ in range(3):
            clock.tick()
            assert file.poll().pause
    assert len(caplog.records) == (1 if broken else 0)  # said once; an empty file is one that is not written yet
    write(tmp_path, {"version": 1})
    clock.tick()
    assert not file.poll().pause


def test_a_file_that_vanishes_leaves_it_in_force_too(tmp_path):
    clock = Clock()
    file = ControlFile(tmp_path, clock)
    write(tmp_path, {"version": 1, "pause": True})
    assert file.poll().pause
    (tmp_path / "control.json").unlink()
    clock.tick()
    assert file.poll().pause


def test_a_config_maps_swapped_link_is_followed(tmp_path):
    for name, pause in (("one", False), ("two", True)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, {"version": 1, "pause": pause})
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "..data").symlink_to(tmp_path / "one")
    (mount / "control.json").symlink_to("..data/control.json")
    clock = Clock()
    file = ControlFile(mount, clock)
    assert not file.poll().pause
    (mount / "new").symlink_to(tmp_path / "two")
    os.replace(mount / "new", mount / "..data")
    clock.tick()
    assert file.poll().pause
