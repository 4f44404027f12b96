"""A small world for the operator: an API server of dicts, a scripted KubeRay, drivers, a clock that only moves here.

    operator -- decide --> status, actions --> World (objects) -- watches --> operator's cache
    KubeRay: RayJob -> RayCluster -> pods -> a driver on the head, submitted again where the head came back

The operator can be killed at each of its writes; a new one knows nothing but what the world tells it. Every decision is
checked (operator_shell.py).
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rljob_operator import actions, names
from rljob_operator.settings import Settings
from rljob_operator.timestamps import to_rfc3339

from tests.unit.operator_driver import Driver, Script, Storage
from tests.unit.operator_kuberay import step_cluster, step_pod, step_ray_job
from tests.unit.operator_objects import NOW_S, SETTINGS
from tests.unit.operator_shell import Killed, Operator

Object = dict[str, Any]
DOWN_S = 7
"""Until a killed operator is started again."""

KINDS = ("ray_jobs", "ray_clusters", "pods")


@dataclass
class World:
    """Everything outside of the operator.

    Attributes:
        raw: the RLJob, None once it is deleted.
        script: what drivers do.
        kuberay: whether it is installed.
        no_nodes: pools that get no nodes.
        phases: of the job, each once it changed.
        created: names of RayJobs, in order.
        touched: names of pods, each time.
    """

    raw: Object | None
    settings: Settings = SETTINGS
    script: Script = field(default_factory=Script)
    now_s: float = NOW_S
    kuberay: bool = True
    no_nodes: set[str] = field(default_factory=set)
    ray_jobs: dict[str, Object] = field(default_factory=dict)
    ray_clusters: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    config_maps: dict[str, Object] = field(default_factory=dict)
    claims: dict[str, Object] = field(default_factory=dict)
    drivers: dict[str, Driver] = field(default_factory=dict)
    storage: Storage = field(default_factory=Storage)
    events: list[actions.Event] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    operator: Operator | None = None
    back_s: float = 0.0
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(2))

    def __post_init__(self) -> None:
        self.start_operator()

    # the operator --------------------

    def start_operator(self, kill_at: int | None = None) -> None:
        """A new process that is told of all there is."""
        self.operator = Operator(self, kill_at)
        if self.raw is not None:
            self.operator.told("jobs", copy.deepcopy(self.raw), deleted=False)
        for kind in KINDS:
            for found in getattr(self, kind).values():
                self.operator.told(kind, copy.deepcopy(found), deleted=False)

    def tell(self, kind: str, found: Object, *, deleted: bool = False) -> None:
        """A watch event."""
        found["metadata"]["resourceVersion"] = str(next(self.numbers))
        if self.operator is not None:
            self.operator.told(kind, copy.deepcopy(found), deleted=deleted)

    # people --------------------

    def edit(self, **spec: Any) -> None:
        """kubectl patch of spec."""
        assert self.raw is not None
        self.raw["spec"] |= spec
        self.raw["metadata"]["generation"] += 1
        self.tell("jobs", self.raw)

    def annotate(self, key: str, value: str | None) -> None:
        """kubectl annotate; None removes it."""
        assert self.raw is not None
        annotations = self.raw["metadata"]["annotations"]
        if value is None:
            annotations.pop(key, None)
        else:
            annotations[key] = value
        self.tell("jobs", self.raw)

    def delete_ray_job(self, name: str) -> None:
        """kubectl delete rayjob."""
        if name in self.ray_jobs and "deletionTimestamp" not in self.ray_jobs[name]["metadata"]:
            self.ray_jobs[name]["metadata"]["deletionTimestamp"] = to_rfc3339(self.now_s)
            self.tell("ray_jobs", self.ray_jobs[name])

    def delete_job(self) -> None:
        """kubectl delete rljob: the garbage collector follows."""
        gone, self.raw = self.raw, None
        assert gone is not None
        self.tell("jobs", gone, deleted=True)
        for name in list(self.ray_jobs):
            self.delete_ray_job(name)

    def lose_pod(self, name: str = "", *, oom: bool = False, disrupted: bool = False) -> None:
        """A pod (the head) ends: by its memory limit, by a preemption, or by its own fault."""
        lost = self.pods[name or self.head()]
        if disrupted:
            preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            lost["status"]["conditions"].append({**preempted, "message": "preempted"})
        terminated = {"exitCode": 137 if oom else 1, "reason": "OOMKilled" if oom else "Error"}
        container = "ray-head" if lost["metadata"]["labels"][names.LABEL_ROLE] == names.HEAD else "ray-worker"
        lost["status"] |= {
            "phase": "Failed",
            "containerStatuses": [{"name": container, "state": {"terminated": terminated}}],
        }
        self.drivers.pop(lost["metadata"]["uid"], None)
        self.tell("pods", lost)

    # looks --------------------

    @property
    def status(self) -> Object:
        """The RLJob's."""
        assert self.raw is not None
        found: Object = self.raw["status"]
        return found

    def head(self) -> str:
        """Name of the head pod."""
        return self.pods_of(names.HEAD)[0]

    def pods_of(self, role: str, pool: str = "") -> list[str]:
        """Names of pods."""
        wanted = {names.LABEL_ROLE: role} | ({names.LABEL_POOL: pool} if pool else {})
        return [name for name, pod in self.pods.items() if wanted.items() <= pod["metadata"]["labels"].items()]

    def reasons(self) -> list[str]:
        """Why attempts ended; of the open one nothing."""
        return [attempt["reason"] for attempt in self.status.get("attempts", []) if attempt.get("endedAt")]

    def told(self, reason: str) -> list[str]:
        """Messages of events of one reason."""
        return [event.message for event in self.events if event.reason == reason]

    def control(self) -> Object:
        """What the driver reads."""
        assert self.raw is not None
        found = self.config_maps.get(names.config_map_name(self.raw["metadata"]["name"]))
        content: Object = json.loads(found["data"]["control.json"]) if found else {}
        return content

    # time --------------------

    def run(self, seconds: float, until: Callable[[World], Any] = lambda world: False) -> World:
        """Lets time pass, second by second, until something holds; at most so many seconds."""
        end_s = self.now_s + seconds
        while self.now_s < end_s and not until(self):
            self.now_s += 1
            self._step()
            if self.operator is None and self.now_s >= self.back_s:
                self.start_operator()
            if self.operator is not None:
                try:
                    self.operator.step()
                except Killed:
                    self.operator, self.back_s = None, self.now_s + DOWN_S
            running = [name for name, found in self.ray_jobs.items() if "deletionTimestamp" not in found["metadata"]]
            assert len(running) <= 1, running
        return self

    def run_to(self, phase: str, seconds: float = 600) -> World:
        """Lets time pass until the job is in a phase."""
        self.run(seconds, lambda world: world.status.get("phase") == phase)
        assert self.status.get("phase") == phase, (phase, self.phases, self.status)
        return self

    def _step(self) -> None:
        if self.kuberay:
            for ray_job in list(self.ray_jobs.values()):
                step_ray_job(self, ray_job)
            for cluster in list(self.ray_clusters.values()):
                step_cluster(self, cluster)
        for pod in list(self.pods.values()):
            step_pod(self, pod)
        control = self.control() if self.raw is not None else {}
        for driver in list(self.drivers.values()) if control else []:
            driver.step(self.now_s, control)

    def answer(self) -> Object | None:
        """What a driver answers, None where none does."""
        driver = next((driver for driver in self.drivers.values() if driver.serves(self.now_s)), None)
        if driver is None or self.raw is None:
            return None
        return driver.status(self.raw["metadata"]["name"], self._evaluator_pods())

    def _evaluator_pods(self) -> list[Object]:
        """Drivers drain what the smaller pools of control.json leave over, the youngest pods first."""
        pools = self.control()["evaluators"]["pools"]
        return [
            {"pod": name, "pool": pool, "evaluators": int(index < limits["maxReplicas"])}
            for pool, limits in pools.items()
            for index, name in enumerate(self.pods_of(names.EVALUATOR, pool))
        ]
