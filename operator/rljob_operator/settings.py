"""The operator's settings: a YAML file that the chart's values become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from rlcore.api.base import ApiModel
from rlcore.api.fields import ObjectName, Quantity
from rlcore.api.pods import Toleration
from rlcore.errors import UserError

CONFIG_VARIABLE = "RLJOB_OPERATOR_CONFIG"


def _alias(name: str) -> str:
    """poll_s is pollSeconds in the file."""
    return to_camel(f"{name[:-2]}_seconds" if name.endswith("_s") else name)


class SettingsModel(ApiModel):
    """Base of all settings."""

    model_config = ConfigDict(alias_generator=_alias)


class NodePlacement(SettingsModel):
    """Where pods of one kind of node may run, added to what a manifest says."""

    node_selector: dict[str, str] = Field(default_factory=dict[str, str], description="Labels a node must have.")
    tolerations: list[Toleration] = Field(default_factory=list[Toleration], description="Taints to tolerate.")
    node_affinity: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]], description="matchExpressions that a node must satisfy, all of them."
    )


class PlacementSettings(SettingsModel):
    """What preemptible means on this cluster."""

    preset: Literal["none", "gke", "eks", "aks", "karpenter"] = Field(
        default="none", description="Labels and taints of a provider's spot nodes."
    )
    preemptible: NodePlacement = Field(default_factory=NodePlacement, description="Added for preemptible pods.")
    on_demand: NodePlacement = Field(default_factory=NodePlacement, description="Added for all other pods.")


class AutoscalerSettings(SettingsModel):
    """KubeRay's in-tree autoscaler, a container of the head pod."""

    enabled: bool = Field(default=True, description="Whether pools with minReplicas < maxReplicas are autoscaled.")
    version: Literal["v1", "v2"] = Field(default="v2", description="Version of Ray's autoscaler.")
    resources: dict[str, Any] = Field(
        default_factory=lambda: {"limits": {"cpu": "500m", "memory": "512Mi"}},
        description="Resources of the container, as Kubernetes has them.",
    )


class ClaimSettings(SettingsModel):
    """The claim made for a job that names no storage."""

    size: Quantity = Field(default="10Gi", description="Storage asked for, in bytes.")
    storage_class_name: ObjectName | None = Field(
        default=None, description="StorageClass; null: the cluster's default."
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = Field(
        default="ReadWriteOnce", description="Access mode."
    )


class LeaderElectionSettings(SettingsModel):
    """The Lease that lets one of several replicas act."""

    enabled: bool = Field(default=True, description="Off for a single process of which only one ever runs.")
    namespace: str | None = Field(default=None, description="Namespace of the Lease; null: $POD_NAMESPACE.")
    name: str = Field(default="rljob-operator", description="Name of the Lease.")
    lease_s: float = Field(default=15.0, ge=2, description="A leader that is silent for so many seconds has lost it.")


class TimeSettings(SettingsModel):
    """Limits of waiting, in seconds."""

    checkpoint_request_s: float = Field(default=60.0, ge=0, description="For a checkpoint before pods are given back.")
    drain_s: float = Field(default=60.0, ge=0, description="For evaluators to be drained before their pods go.")
    head_lost_s: float = Field(default=300.0, ge=1, description="For KubeRay to bring a lost head pod back.")
    spot_unavailable_s: float = Field(
        default=180.0, ge=1, description="Until a preemptible pool's minimum moves to an on-demand pool."
    )
    spot_retry_s: float = Field(default=600.0, ge=1, description="Until it is tried again.")
    driver_silent_s: float = Field(default=60.0, ge=1, description="Until the phase is Unknown, not Running.")
    live_status_s: float = Field(default=60.0, ge=1, description="Between status writes that only renew numbers.")
    poll_s: float = Field(default=5.0, gt=0, description="Between two looks at a driver's status.")
    resync_s: float = Field(default=300.0, ge=1, description="Between two looks at a job of which nothing is heard.")
    compare_s: float = Field(
        default=60.0, ge=1, description="Between two comparisons of what is there with what watches told."
    )
    try_refused_again_s: float = Field(
        default=60.0,
        ge=1,
        description="Between two tries of what the API server refused, in seconds: KubeRay or a webhook may change.",
    )


class Settings(SettingsModel):
    """All settings; each has a default that works."""

    image: str = Field(default="rlcore-cpu:latest", description="Image of training pods of jobs that name none.")
    gpu_image: str | None = Field(default=None, description="Image of learner pods with GPUs; null: image.")
    ray_version: str = Field(default="2.60.0", description="Version of Ray in these images.")
    namespaces: list[str] = Field(default_factory=list[str], description="Namespaces to watch; empty: all.")
    host: str = Field(default="0.0.0.0", description="Address of the health and metrics endpoint.")
    port: int = Field(default=8080, ge=0, le=65535, description="Its port; 0: any free one.")
    leader_election: LeaderElectionSettings = Field(
        default_factory=LeaderElectionSettings, description="One of several replicas acts."
    )
    placement: PlacementSettings = Field(default_factory=PlacementSettings, description="Kinds of nodes.")
    gpu_tolerations: list[Toleration] = Field(
        default_factory=lambda: [Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
        description="Taints of GPU nodes.",
    )
    default_claim: ClaimSettings = Field(default_factory=ClaimSettings, description="Storage of jobs that name none.")
    autoscaler: AutoscalerSettings = Field(default_factory=AutoscalerSettings, description="Ray's autoscaler.")
    auth_mode: Literal["token", "disabled"] = Field(default="token", description="Between the pods of a Ray cluster.")
    times: TimeSettings = Field(default_factory=TimeSettings, description="Limits of waiting.")
    workers: int = Field(default=8, ge=1, le=256, description="Jobs worked on at once.")
    log_format: Literal["text", "json"] = Field(default="text", description="One line or one JSON object an event.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Least level shown.")


def load_settings(path: str | None = None) -> Settings:
    """Settings from a file; without one (no path, no $RLJOB_OPERATOR_CONFIG) all defaults.

    Raises:
        UserError: the file cannot be read, or something in it is wrong; every problem is named.
    """
    path = path or os.environ.get(CONFIG_VARIABLE)
    if not path:
        return Settings()
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        return Settings.model_validate(values)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"settings {path} cannot be read: {error}") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in error.errors())
        raise UserError(f"settings {path}: {problems}", hint="compare with the chart's values.yaml") from error
