"""Pod templates of head, learner and evaluators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlcore.api import EvaluatorPool, RLJob
from rlcore.api.pods import PodGroupSpec
from rljob_operator import names
from rljob_operator.merge import strategic_merge
from rljob_operator.placement import placement
from rljob_operator.settings import Settings

CONFIG_DIR = "/etc/rlcore"
CHECKPOINT_DIR = "/var/lib/rlcore/checkpoints"
RUNTIME_DIR = "/run/rlcore"
TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
STATUS_PORT = 9400
HEAD_PORTS = (("gcs-server", 6379), ("dashboard", 8265), ("client", 10001), ("rlcore-metrics", STATUS_PORT))
"""All of them: with any port declared KubeRay adds none of its own to the head's service."""

HEAD_GRACE_S = 60
WORKER_GRACE_S = 30
STOP_JOB_WAIT_S = 30
"""Between SIGTERM and SIGKILL of the driver when Ray stops its job: time for a last checkpoint."""

USER_ID = 1000
TOKEN_VOLUME = "autoscaler-token"
TOKEN_LIFETIME_S = 3600


@dataclass(frozen=True)
class Context:
    """What all templates of an attempt are made from."""

    job: RLJob
    attempt: int
    settings: Settings
    autoscaled: bool

    def autoscaler_options(self) -> dict[str, Any]:
        """Options of the autoscaler's container, the only one that gets an API token."""
        # Only v2 knows a time-out for each pool.
        longest_s = max(pool.idle_timeout_s for pool in self.job.spec.evaluators.pools)
        idle = {"idleTimeoutSeconds": longest_s} if self.settings.autoscaler.version == "v1" else {}
        return {
            **idle,
            "version": self.settings.autoscaler.version,
            "resources": self.settings.autoscaler.resources,
            "volumeMounts": [{"name": TOKEN_VOLUME, "mountPath": TOKEN_DIR, "readOnly": True}],
        }


def head_template(context: Context) -> dict[str, Any]:
    """The head: Ray's head, the driver, checkpoints; always on demand."""
    job = context.job
    volumes: list[dict[str, Any]] = [
        {"name": "rlcore-config", "configMap": {"name": names.config_map_name(job.metadata.name)}},
        {"name": "rlcore-run", "emptyDir": {}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "rlcore-config", "mountPath": CONFIG_DIR, "readOnly": True},
        {"name": "rlcore-run", "mountPath": RUNTIME_DIR},
    ]
    env = [
        _variable("RLCORE_CONFIG_DIR", CONFIG_DIR),
        _variable("RLCORE_RUNTIME_DIR", RUNTIME_DIR),
        _variable("RLCORE_ATTEMPT", str(context.attempt)),
        _variable("RLCORE_STATUS_PORT", str(STATUS_PORT)),
        _variable("RAY_JOB_STOP_WAIT_TIME_S", str(STOP_JOB_WAIT_S)),
        _from_field("POD_NAME", "metadata.name"),
        _from_field("POD_NAMESPACE", "metadata.namespace"),
        _from_field("POD_UID", "metadata.uid"),
        _from_field("POD_IP", "status.podIP"),
        _from_field("NODE_NAME", "spec.nodeName"),
    ]
    claimed = claim_of(job)
    if claimed:
        volumes.append({"name": "rlcore-checkpoints", "persistentVolumeClaim": {"claimName": claimed}})
        mounts.append({"name": "rlcore-checkpoints", "mountPath": CHECKPOINT_DIR})
        env.append(_variable("RLCORE_CHECKPOINT_DIR", CHECKPOINT_DIR))
    if context.autoscaled:
        volumes.append(_token_volume())
    container = _container(context, "ray-head", job.spec.head, env, gpus=0)
    container["ports"] = [{"name": name, "containerPort": port} for name, port in HEAD_PORTS]
    container["volumeMounts"] = mounts
    container["lifecycle"] = {"preStop": {"exec": {"command": ["python", "-m", "rlcore.prestop"]}}}
    pod = _pod(context, job.spec.head, container, HEAD_GRACE_S, preemptible=False, gpus=0)
    pod["volumes"] = volumes
    if job.spec.head_service_account_name:
        pod["serviceAccountName"] = job.spec.head_service_account_name
    return _template(context, names.HEAD, "", pod, job.spec.head)


def pool_template(context: Context, pool: EvaluatorPool) -> dict[str, Any]:
    """Evaluator pods of one pool."""
    container = _container(context, "ray-worker", pool, [], gpus=0)
    pod = _pod(context, pool, container, WORKER_GRACE_S, preemptible=pool.preemptible, gpus=0)
    return _template(context, names.EVALUATOR, pool.name, _worker(context, pod), pool)


def learner_template(context: Context) -> dict[str, Any]:
    """Learner pods."""
    learner = context.job.spec.learner
    env = [_variable("RLCORE_STATUS_PORT", str(STATUS_PORT)), _from_field("POD_UID", "metadata.uid")]
    container = _container(context, "ray-worker", learner, env, gpus=learner.gpus)
    container["lifecycle"] = {"preStop": {"exec": {"command": ["python", "-m", "rlcore.prestop", "learner"]}}}
    pod = _pod(context, learner, container, WORKER_GRACE_S, preemptible=learner.preemptible, gpus=learner.gpus)
    return _template(context, names.LEARNER, "", _worker(context, pod), learner)


def claim_of(job: RLJob) -> str | None:
    """Claim that holds the checkpoints; None where they go to a path or URL."""
    storage = job.spec.checkpoint.storage
    if storage.path or storage.uri:
        return None
    return storage.persistent_volume_claim or names.claim_name(job.metadata.name)


def _worker(context: Context, pod: dict[str, Any]) -> dict[str, Any]:
    if context.job.spec.service_account_name:
        pod["serviceAccountName"] = context.job.spec.service_account_name
    return pod


def _template(context: Context, role: str, pool: str, pod: dict[str, Any], group: PodGroupSpec) -> dict[str, Any]:
    ours = {
        "metadata": {"labels": names.labels(context.job.metadata.name, attempt=context.attempt, role=role, pool=pool)}
    }
    try:
        merged = strategic_merge({**ours, "spec": pod}, group.pod_template)
        return strategic_merge(merged, ours)  # our labels stay: by them the operator finds its pods
    except ValueError as error:
        raise ValueError(f"{_field_of(context, group)}.podTemplate.{error}") from error


def _field_of(context: Context, group: PodGroupSpec) -> str:
    """Where the manifest describes a group."""
    for index, pool in enumerate(context.job.spec.evaluators.pools):
        if pool is group:
            return f"spec.evaluators.pools[{index}]"
    return "spec.head" if group is context.job.spec.head else "spec.learner"


def _pod(
    context: Context, group: PodGroupSpec, container: dict[str, Any], grace_s: int, *, preemptible: bool, gpus: int
) -> dict[str, Any]:
    try:
        scheduling = placement(group, context.settings, preemptible=preemptible, gpus=gpus > 0)
    except ValueError as error:
        raise ValueError(f"{_field_of(context, group)}.{error}") from error
    pod: dict[str, Any] = {
        "containers": [container],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {"fsGroup": USER_ID, "seccompProfile": {"type": "RuntimeDefault"}},
        **scheduling,
    }
    secrets = context.job.spec.image_pull_secrets
    if secrets:
        pod["imagePullSecrets"] = [{"name": secret.name} for secret in secrets]
    return pod


def _container(
    context: Context, name: str, group: PodGroupSpec, env: list[dict[str, Any]], *, gpus: int
) -> dict[str, Any]:
    spec, settings = context.job.spec, context.settings
    image = group.image or spec.image or (settings.gpu_image if gpus else None) or settings.image
    quantities = {"cpu": group.resources.cpu, "memory": group.resources.memory, **group.resources.extra}
    if gpus:
        quantities[spec.learner.gpu_resource] = str(gpus)
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "env": [_variable("RAY_USAGE_STATS_ENABLED", "0"), *env],
        "resources": {"requests": dict(quantities), "limits": dict(quantities)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if spec.image_pull_policy:
        container["imagePullPolicy"] = spec.image_pull_policy
    if spec.env_from:
        container["envFrom"] = [
            source.model_dump(mode="json", by_alias=True, exclude_unset=True) for source in spec.env_from
        ]
    return container


def _variable(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _token_volume() -> dict[str, Any]:
    """What automountServiceAccountToken would mount, for one container alone."""
    return {
        "name": TOKEN_VOLUME,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_LIFETIME_S}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]
        },
    }
