"""An operator that is killed at any of its writes: the next one brings the job to the very same end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rljob_operator import names
from rljob_operator.settings import Settings

from tests.unit.operator_driver import Script
from tests.unit.operator_objects import BASE, SPOT, raw_job
from tests.unit.operator_world import World

Story = Callable[[World], Any]


def succeeds(world: World) -> None:
    world.run_to("Succeeded", 200)


def is_suspended_and_resumes(world: World) -> None:
    world.run_to("Running").run(5)
    world.edit(suspend=True)
    world.run_to("Suspended", 200).run(5)
    world.edit(suspend=False)
    succeeds(world)


def gets_new_pods(world: World) -> None:
    world.run_to("Running").run(5)
    world.edit(image="mine:2")
    world.run(200, lambda world: len(world.created) == 2)
    succeeds(world)


def is_restarted_on_request(world: World) -> None:
    world.run_to("Running").run(5)
    world.annotate(names.ANNOTATION_RESTART, "1")
    world.run(200, lambda world: len(world.created) == 2)
    succeeds(world)


def is_scaled(world: World) -> None:
    world.run_to("Running").run(5)
    world.edit(evaluators={"pools": [{**SPOT, "minReplicas": 3}, BASE]})
    world.run(12)
    world.edit(evaluators={"pools": [{**SPOT, "minReplicas": 1}, BASE]})
    succeeds(world)


def loses_its_ray_job(world: World) -> None:
    world.run_to("Running").run(5)
    world.run(30, lambda world: world.operator is not None)
    world.delete_ray_job("pong-1")
    succeeds(world)


def loses_heads(world: World) -> None:
    """Both losses are seen: what nobody saw is known to nobody."""
    for _ in range(2):
        world.run_to("Running", 200).run(30, lambda world: world.operator is not None and world.drivers)
        world.run(2)
        if world.operator is not None:
            world.lose_pod(oom=True)
        world.run(3)
    succeeds(world)


def fails_and_is_deleted(world: World) -> None:
    world.run(300, lambda world: world.raw is None)
    assert world.raw is None


STORIES: dict[str, tuple[Story, dict[str, Any], Script]] = {
    "success": (succeeds, {}, Script()),
    "failures and restarts": (succeeds, {"restartPolicy": {"backoff": "1s"}}, Script(failures=2)),
    "no restart left": (
        lambda world: world.run_to("Failed", 200),
        {"restartPolicy": {"maxRestarts": 1, "backoff": "1s"}},
        Script(failures=9),
    ),
    "a permanent failure and a time to live": (
        fails_and_is_deleted,
        {"ttlAfterFailed": "10s"},
        Script(failures=1, exit_code=2),
    ),
    "suspension": (is_suspended_and_resumes, {}, Script()),
    "new pods": (gets_new_pods, {}, Script()),
    "restart": (is_restarted_on_request, {}, Script()),
    "scaling": (is_scaled, {"stop": {"timesteps": 60_000}}, Script()),
    "a vanished RayJob": (loses_its_ray_job, {}, Script()),
}


def tell(story: Story, spec: dict[str, Any], script: Script, kill_at: int | None = None) -> World:
    raw = raw_job(**{"stop": {"timesteps": 30_000}, **spec})
    settings = Settings.model_validate({"autoscaler": {"enabled": False}})
    world = World(raw, settings=settings, script=Script(**vars(script)))
    world.start_operator(kill_at)
    story(world)
    world.run(30)
    return world


def end_of(world: World) -> dict[str, Any]:
    """What must be the same, whoever was killed when."""
    status = world.status if world.raw is not None else {}
    return {
        "phase": status.get("phase"),
        "reasons": world.reasons() if status else [],
        "restarts": status.get("restarts", 0),
        "created": world.created,
        "left": (world.ray_jobs, world.ray_clusters, world.pods, world.drivers),
        "timesteps": world.storage.timesteps if status.get("phase") == "Succeeded" else None,
    }


@pytest.mark.parametrize("name", STORIES)
def test_an_operator_killed_at_any_write_changes_nothing_of_the_end(name):
    story, spec, script = STORIES[name]
    undisturbed = tell(story, spec, script)
    expected = end_of(undisturbed)
    assert undisturbed.operator is not None
    steps = undisturbed.operator.steps
    assert steps >= 8
    for kill_at in range(steps):
        world = tell(story, spec, script, kill_at)
        assert end_of(world) == expected, f"killed at write {kill_at} of {steps}"


def test_heads_that_die_while_operators_do_end_the_attempt_all_the_same():
    for kill_at in range(6, 16):
        world = tell(loses_heads, {}, Script(checkpoint_every_s=1000), kill_at)
        assert world.status["phase"] == "Succeeded"
        assert world.reasons()[:-1] in ([], ["OutOfMemory"])
