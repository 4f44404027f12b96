"""The operator's process in the small world: the shell around `decide`, as short as it can be; it can be killed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import yaml
from rljob_operator import actions, names
from rljob_operator.cache import Cache, JobKey
from rljob_operator.decide import decide
from rljob_operator.draft import Decision, merge_patch
from rljob_operator.drivers import next_report
from rljob_operator.observed import Observed
from rljob_operator.provision import spec_hash
from rljob_operator.reconcile import lasting
from rljob_operator.refusals import note_accepted
from rljob_operator.understood import parse

from tests.unit.operator_kuberay import drop_pod

if TYPE_CHECKING:
    from tests.unit.operator_world import World

ROOT = Path(__file__).parents[2]
Object = dict[str, Any]


@cache
def status_validator() -> jsonschema.Draft202012Validator:
    """Of status, from the CRD as it is installed."""
    crd = yaml.safe_load((ROOT / "crds" / "rlcore.io_rljobs.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return jsonschema.Draft202012Validator(_closed(schema))


def _closed(schema: Object) -> Object:
    """The API server drops fields that the schema does not name: here they are an error."""
    closed = {key: _closed(value) if isinstance(value, dict) else value for key, value in schema.items()}
    if "properties" in schema:
        closed["properties"] = {name: _closed(value) for name, value in schema["properties"].items()}
        closed["additionalProperties"] = False
    return closed


class Killed(Exception):  # noqa: N818 - it is what happens, not what went wrong
    """The operator's process ends here."""


class Operator:
    """Decides where something was told or is due; each decision is checked.

    Args:
        world: to act on.
        kill_at: the process ends at its so-many-th step: a write of the status or an action.
    """

    def __init__(self, world: World, kill_at: int | None = None) -> None:
        self.world, self.kill_at, self.steps = world, kill_at, 0
        self.cache = Cache()
        self.key: JobKey | None = None
        self.due_s = self.written_s = 0.0

    def told(self, kind: str, found: Object, *, deleted: bool) -> None:
        """A watch event of "jobs", "ray_jobs", "ray_clusters" or "pods"."""
        key = self.cache.hear(kind, found, deleted=deleted, now_s=self.world.now_s)
        if key is not None:
            self.key, self.due_s = key, 0.0

    def step(self) -> None:
        """Asks the driver; decides where something was told or is due, until nothing more follows at once."""
        if self.key is None or self.cache.record(self.key).raw is None:
            return
        self._poll()
        for _ in range(20):
            if self.world.now_s < self.due_s or self.world.raw is None:
                return
            self._reconcile()
        raise AssertionError(f"it never comes to rest: {self.world.events[-5:]}")

    def _poll(self) -> None:
        assert self.key is not None
        record, values = self.cache.record(self.key), self.world.answer()
        if values is None or record.raw is None or values["attempt"] != record.raw["status"].get("attempt"):
            return
        before = record.report
        record.report = next_report(before, values, self.world.now_s)
        if before is None or _without_numbers(before.values) != _without_numbers(values):
            self.due_s = 0.0

    def _observe(self, status: Object | None = None) -> Observed:
        assert self.key is not None
        record = self.cache.record(self.key)
        assert record.raw is not None
        raw = dict(record.raw) if status is None else {**record.raw, "status": status}
        job, problem = parse(raw)
        attempt = raw["status"].get("attempt")
        ours = dict(record.ray_jobs)
        ray_job = ours.pop(names.ray_job_name(self.key.name, attempt), None) if attempt else None
        report = record.report
        return Observed(
            raw=raw,
            job=job,
            problem=problem,
            ray_job=ray_job,
            old_ray_jobs=tuple(ours.values()),
            ray_cluster=record.ray_clusters.get(str(((ray_job or {}).get("status") or {}).get("rayClusterName"))),
            pods=tuple(record.pods.values()),
            lost=tuple(record.lost.values()),
            report=report if report is not None and report.attempt == attempt else None,
            kuberay=self.world.kuberay,
            accepted=job is None or record.accepted == spec_hash(job),
            now_s=self.world.now_s,
        )

    def _reconcile(self) -> None:
        self.due_s = float("inf")
        observed = self._observe()
        decision = decide(observed, self.world.settings)
        self.check(observed, decision)
        self._write(observed, decision)
        self.world.events += decision.events
        for action in decision.actions:
            self._act(action)
        self.due_s = min(self.due_s, self.world.now_s + decision.requeue_s)

    def check(self, observed: Observed, decision: Decision) -> None:
        """What is true of every decision."""
        status_validator().validate(decision.status)
        created = [action for action in decision.actions if isinstance(action, actions.CreateRayJob)]
        assert len(created) <= 1, "never two RayJobs in one decision"
        before = observed.status
        if before.get("phase") == "Succeeded":
            new_goal = any(event.reason == "NewGoal" for event in decision.events)
            assert new_goal or decision.status["phase"] == "Succeeded", "success is left for a new goal alone"
            assert new_goal or not created
        again = decide(self._observe(decision.status), self.world.settings)
        assert again.events == (), "the same world once more brings no new event"
        assert again.status.get("attempt") == decision.status.get("attempt"), "nor a new attempt"
        assert merge_patch(decision.status, again.status) == {}, "nor anything else"

    def _write(self, observed: Observed, decision: Decision) -> None:
        raw = self.world.raw
        assert raw is not None
        if merge_patch(observed.status, decision.status) == {}:
            return
        if lasting(observed.status) != lasting(decision.status):
            self._may_die()
        elif self.world.now_s - self.written_s < self.world.settings.times.live_status_s:
            return
        self.written_s = self.world.now_s
        if raw["status"].get("phase") != decision.status.get("phase"):
            self.world.phases.append(decision.status["phase"])
        raw["status"] = decision.status
        self.world.tell("jobs", raw)

    def _may_die(self) -> None:
        if self.steps == self.kill_at:
            raise Killed
        self.steps += 1

    def _act(self, action: actions.Action) -> None:
        world = self.world
        match action:
            case actions.ApplyConfigMap(manifest):
                if world.config_maps.get(manifest["metadata"]["name"]) != manifest:
                    self._may_die()
                    world.config_maps[manifest["metadata"]["name"]] = dict(manifest)
            case actions.ApplyClaim(manifest):
                world.claims.setdefault(manifest["metadata"]["name"], dict(manifest))
            case actions.CreateRayJob(manifest):
                self._may_die()
                name = manifest["metadata"]["name"]
                if name not in world.ray_jobs:
                    world.created.append(name)
                    made = {**copy.deepcopy(dict(manifest)), "status": {}}
                    made["metadata"]["uid"] = f"uid-{name}-{next(world.numbers)}"
                    world.ray_jobs[name] = made
                    world.tell("ray_jobs", made)
            case actions.TryRayJob(manifest):
                assert self.key is not None
                note_accepted(self.cache.record(self.key), manifest)
                self.due_s = 0.0
            case actions.DeleteRayJob(name, uid):
                self._may_die()
                if name in world.ray_jobs and world.ray_jobs[name]["metadata"]["uid"] == uid:
                    world.delete_ray_job(name)
            case actions.PatchRayCluster(name, patch):
                self._may_die()
                cluster = world.ray_clusters[name]
                for operation in patch:
                    *_, index, part = operation["path"].split("/")
                    group = cluster["spec"]["workerGroupSpecs"][int(index)]
                    if operation["op"] == "test":
                        assert group[part] == operation["value"]
                    else:
                        group[part] = operation["value"]
                world.tell("ray_clusters", cluster)
            case actions.TouchPod(name):
                world.touched.append(name)
            case actions.ForceDeletePod(name, _):
                self._may_die()
                drop_pod(world, world.pods[name])
            case actions.DeleteJob(uid):
                self._may_die()
                assert world.raw is not None
                assert world.raw["metadata"]["uid"] == uid
                world.delete_job()


def _without_numbers(values: Mapping[str, Any]) -> Object:
    """What is news of a driver."""
    changing = ("timesteps", "iteration")
    request = values["checkpoint"]["request"]
    return {key: value for key, value in values.items() if key not in changing} | {"checkpoint": request}
