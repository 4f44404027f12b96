"""status: what the operator has observed; a model of its own, since only the operator and the CRD need it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from rlcore.api.base import ApiModel

Text = Annotated[str, StringConstraints(max_length=1024)]
LongText = Annotated[str, StringConstraints(max_length=32_768)]
Time = Annotated[str, StringConstraints(max_length=40)]
Reason = Annotated[str, StringConstraints(max_length=256)]
Phase = Literal["Pending", "Provisioning", "Running", "Suspended", "Recovering", "Succeeded", "Failed", "Unknown"]


class StatusModel(ApiModel):
    """Base of the status models: fields of a newer operator are ignored, not refused."""

    model_config = ConfigDict(extra="ignore")


class Condition(StatusModel):
    """A Kubernetes condition."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=64)] = Field(
        description="Valid, Provisioned, Training, Checkpointed, Complete, Failed and others."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: Reason = Field(default="", description="One CamelCase word a program can act on.")
    message: LongText = Field(default="", description="A sentence a person can act on.")
    last_transition_time: Time | None = Field(default=None, description="When status last changed, RFC 3339.")
    observed_generation: int | None = Field(default=None, ge=0, description="metadata.generation it was judged for.")


class PoolStatus(StatusModel):
    """One evaluator pool."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=30)] = Field(description="Name of the pool.")
    target: int | None = Field(default=None, ge=0, description="Pods wanted, a count.")
    replicas: int | None = Field(default=None, ge=0, description="Pods there are, a count.")
    ready: int | None = Field(default=None, ge=0, description="Pods that can sample, a count.")
    reason: Reason = Field(default="", description="Why pods are pending; empty: none is.")
    message: Text = Field(default="", description="The same as a sentence.")
    draining_since: Time | None = Field(
        default=None,
        description="Since when evaluators are drained before pods are given back, RFC 3339; null: none is.",
    )
    moved_at: Time | None = Field(
        default=None, description="Since when its minimum is made up for by on-demand pools, RFC 3339; null: it is not."
    )


class EvaluatorsStatus(StatusModel):
    """All evaluator pods."""

    target: int | None = Field(default=None, ge=0, description="Pods wanted, a count.")
    replicas: int | None = Field(
        default=None, ge=0, description="Pods there are, a count; read by the scale subresource."
    )
    ready: int | None = Field(default=None, ge=0, description="Pods that can sample, a count.")
    selector: Text = Field(default="", description="Label selector of the pods; read by the scale subresource.")
    pools: list[PoolStatus] = Field(default_factory=list[PoolStatus], max_length=16, description="Each pool.")


class LearnersStatus(StatusModel):
    """All learner pods."""

    target: int | None = Field(default=None, ge=0, description="Pods wanted, a count.")
    ready: int | None = Field(default=None, ge=0, description="Pods that can learn, a count.")


class TrainingStatus(StatusModel):
    """The driver's numbers."""

    iteration: int | None = Field(default=None, ge=0, description="Iterations trained, a count.")
    timesteps: int | None = Field(default=None, ge=0, description="Timesteps trained.")
    episodes: int | None = Field(default=None, ge=0, description="Episodes finished, a count.")
    episode_reward_mean: float | None = Field(default=None, description="Mean reward of recent training episodes.")
    evaluation_reward_mean: float | None = Field(default=None, description="Mean reward of the last evaluation.")
    timesteps_per_second: float | None = Field(default=None, description="Timesteps sampled a second.")
    bottleneck: Text = Field(default="", description="What limits the speed, a sentence.")
    observed_at: Time | None = Field(default=None, description="When the driver reported these numbers, RFC 3339.")


class CheckpointStatus(StatusModel):
    """The newest complete checkpoint."""

    latest: Text = Field(default="", description="Its place.")
    timesteps: int | None = Field(default=None, ge=0, description="Timesteps trained when it was written.")
    time: Time | None = Field(default=None, description="When it was written, RFC 3339.")


class Failure(StatusModel):
    """What ended an attempt, and how that is judged."""

    failure_class: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", alias="class", description="Kind of the failure, such as Preempted, OutOfMemory, ApplicationFailed."
    )
    counted: bool = Field(default=False, description="Whether it counts against restartPolicy.maxRestarts.")
    pod: Annotated[str, StringConstraints(max_length=253)] = Field(default="", description="The pod it was seen on.")
    node: Annotated[str, StringConstraints(max_length=253)] = Field(default="", description="That pod's node.")
    exit_code: int | None = Field(default=None, description="Exit code of the container or driver.")
    message: Text = Field(default="", description="What happened, and what to do, a sentence.")
    log_tail: LongText = Field(default="", description="Last lines of the log.")
    time: Time | None = Field(default=None, description="When it was seen, RFC 3339.")


class Loss(StatusModel):
    """A pod that was lost while its job ran."""

    uid: Annotated[str, StringConstraints(max_length=64)] = Field(description="metadata.uid of the pod: counted once.")
    pod: Annotated[str, StringConstraints(max_length=253)] = Field(default="", description="Its name.")
    role: Annotated[str, StringConstraints(max_length=16)] = Field(
        default="", description="head, learner or evaluator."
    )
    failure_class: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", alias="class", description="Preempted, NodeLost, OutOfMemory, Crashed and others."
    )
    time: Time | None = Field(default=None, description="When it was seen, RFC 3339.")


class Requests(StatusModel):
    """Annotations of people that were acted on: a new value is a new request."""

    checkpoint: Text = Field(default="", description="Value of rlcore.io/checkpoint last answered by a checkpoint.")
    restart: Text = Field(default="", description="Value of rlcore.io/restart last acted on.")


class Attempt(StatusModel):
    """One RayJob of this RLJob."""

    number: int = Field(ge=1, le=999, description="Number of the attempt, counted from 1.")
    ray_job: Annotated[str, StringConstraints(max_length=63)] = Field(default="", description="Name of its RayJob.")
    started_at: Time | None = Field(default=None, description="When it began, RFC 3339.")
    stopping_at: Time | None = Field(
        default=None, description="When a checkpoint was asked for before its pods are given back, RFC 3339."
    )
    ended_at: Time | None = Field(default=None, description="When it ended, RFC 3339; null: it has not.")
    reason: Reason = Field(default="", description="Why it ended, one word.")
    counted: bool = Field(default=False, description="Whether its end counts against restartPolicy.maxRestarts.")
    timesteps: int | None = Field(default=None, ge=0, description="Timesteps of the newest checkpoint at its end.")


class CostStatus(StatusModel):
    """The estimated cost."""

    amount: float | None = Field(default=None, ge=0, description="Cost so far, in the budget's currency.")
    per_hour: float | None = Field(default=None, ge=0, description="Cost of one hour at the present size.")
    currency: Annotated[str, StringConstraints(max_length=3)] = Field(default="", description="ISO 4217 code.")
    observed_at: Time | None = Field(default=None, description="When the amount was brought up to date, RFC 3339.")


class RLJobStatus(StatusModel):
    """What the operator has observed of a job."""

    phase: Phase | None = Field(default=None, description="Where the job stands; Unknown rather than stale.")
    observed_generation: int | None = Field(default=None, ge=0, description="metadata.generation last acted on.")
    conditions: list[Condition] = Field(
        default_factory=list[Condition],
        max_length=32,
        description="Conditions, each type once.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    ray_job: Annotated[str, StringConstraints(max_length=63)] = Field(default="", description="The present RayJob.")
    ray_cluster: Annotated[str, StringConstraints(max_length=63)] = Field(default="", description="Its RayCluster.")
    dashboard_url: Text = Field(default="", alias="dashboardURL", description="Address of Ray's dashboard.")
    evaluators: EvaluatorsStatus | None = Field(default=None, description="Evaluator pods.")
    learners: LearnersStatus | None = Field(default=None, description="Learner pods.")
    training: TrainingStatus | None = Field(default=None, description="The driver's numbers.")
    checkpoint: CheckpointStatus | None = Field(default=None, description="The newest complete checkpoint.")
    restarts: int | None = Field(default=None, ge=0, description="Counted restarts.")
    preemptions: int | None = Field(default=None, ge=0, description="Pods lost to preemption or eviction, a count.")
    cost: CostStatus | None = Field(default=None, description="The estimated cost.")
    attempt: int | None = Field(default=None, ge=1, le=999, description="Number of the present attempt, from 1.")
    attempts: list[Attempt] = Field(default_factory=list[Attempt], max_length=10, description="The last ten attempts.")
    last_failure: Failure | None = Field(default=None, description="The last failure, whether counted or not.")
    losses: list[Loss] = Field(default_factory=list[Loss], max_length=20, description="The last pods lost.")
    requests: Requests | None = Field(default=None, description="Annotations that were acted on.")
    resolved_config_hash: Annotated[str, StringConstraints(max_length=128)] = Field(
        default="", description="Hash of the hyper-parameters as resolved at the first attempt, defaults included."
    )
    reached_goal: Annotated[str, StringConstraints(max_length=128)] = Field(
        default="", description="Hash of spec.stop as it was when the job succeeded; another one begins it again."
    )
    started_at: Time | None = Field(default=None, description="When the first attempt began, RFC 3339.")
    finished_at: Time | None = Field(default=None, description="When the job succeeded or failed, RFC 3339.")
