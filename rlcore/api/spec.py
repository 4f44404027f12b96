"""spec: everything a user decides about a job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    SerializeAsAny,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rlcore.api.algorithms import ALGORITHMS, OPTIMIZERS, AlgorithmConfig
from rlcore.api.base import ApiModel, Conflict, from_manifest, raise_conflicts
from rlcore.api.checkpoint import CheckpointSpec
from rlcore.api.environment import EnvironmentSpec
from rlcore.api.evaluators import EvaluatorsSpec
from rlcore.api.fields import RELEASE, FreeForm, ImageName, ObjectName, OneOf, duration
from rlcore.api.lifecycle import BudgetSpec, RestartPolicy
from rlcore.api.model import ModelSpec
from rlcore.api.multi_agent import MultiAgentSpec
from rlcore.api.population import PopulationSpec
from rlcore.api.stop import EvaluationSpec, StopSpec
from rlcore.api.trainers import HeadSpec, LearnerSpec

OLDEST_RAY = (2, 52, 0)
"""Token authentication between the pods of a Ray cluster came with this version."""

YEAR_S = 366 * 86_400


class ObjectReference(ApiModel):
    """A Kubernetes object of the same namespace, by name."""

    name: ObjectName = Field(description="The object's name.")
    optional: bool = Field(default=False, description="Start the pods even where the object is missing.")


class SecretName(ApiModel):
    """A Secret of the same namespace, by name."""

    name: ObjectName = Field(description="The Secret's name.")


class EnvFrom(ApiModel):
    """Environment variables from a ConfigMap or a Secret."""

    prefix: Annotated[str, StringConstraints(max_length=63, pattern=r"^[A-Za-z0-9_]*$")] = Field(
        default="", description="Put before each variable's name; empty: nothing."
    )
    config_map_ref: ObjectReference | None = Field(default=None, description="A ConfigMap of variables; null: none.")
    secret_ref: ObjectReference | None = Field(default=None, description="A Secret of variables; null: none.")


def _new_enough(version: str) -> str:
    if tuple(int(part) for part in version.split(".")) < OLDEST_RAY:
        oldest = ".".join(map(str, OLDEST_RAY))
        raise ValueError(f"{version} is older than {oldest}, the oldest Ray with token authentication")
    return version


RayVersion = Annotated[
    str,
    StringConstraints(min_length=5, max_length=16, pattern=RELEASE),
    AfterValidator(_new_enough),
]


class RLJobSpec(ApiModel):
    """What to train, on what, with which resources, and until when."""

    algorithm: Annotated[str, OneOf(tuple(ALGORITHMS))] = Field(description="The algorithm.")
    environment: EnvironmentSpec = Field(description="The environment to train on.")
    optimizer: Annotated[str, OneOf(OPTIMIZERS)] | None = Field(
        None, description="The policy optimizer, one that the algorithm supports; null: the algorithm's own default."
    )
    config: SerializeAsAny[AlgorithmConfig] = Field(
        default_factory=AlgorithmConfig, validate_default=True, description="Hyper-parameters of the algorithm."
    )
    model: ModelSpec = Field(default_factory=ModelSpec, description="The neural network.")
    multi_agent: MultiAgentSpec | None = Field(
        default=None, description="Several policies; null: one policy for one agent."
    )
    population: PopulationSpec | None = Field(
        default=None, description="Population based training; null: a single trial."
    )
    stop: StopSpec = Field(description="When training is complete; at least one condition.")
    evaluation: EvaluationSpec = Field(
        default_factory=EvaluationSpec, description="Evaluation of the deterministic policy beside training."
    )
    seed: int | None = Field(
        default=None, ge=0, le=2**31 - 1, description="Seed of all random numbers; null: one is drawn, and recorded."
    )
    evaluators: EvaluatorsSpec = Field(default_factory=EvaluatorsSpec, description="The pods that sample experience.")
    learner: LearnerSpec = Field(default_factory=LearnerSpec, description="The pods that learn.")
    head: HeadSpec = Field(default_factory=HeadSpec, description="The pod that runs the driver.")
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec, description="When and where the run is saved.")
    restart_policy: RestartPolicy = Field(
        default_factory=RestartPolicy, description="What happens after failures of the application."
    )
    suspend: bool = Field(
        default=False, description="Write a checkpoint and give all pods back; false again: resume from it."
    )
    ttl_after_finished: Annotated[str, *duration(0, YEAR_S)] | None = Field(
        default=None, description="Delete the RLJob this long after it succeeded; null: keep it."
    )
    ttl_after_failed: Annotated[str, *duration(0, YEAR_S)] | None = Field(
        default=None, description="Delete the RLJob this long after it failed; null: keep it."
    )
    active_deadline: Annotated[str, *duration(1, YEAR_S)] | None = Field(
        default=None,
        description="Time from the first start, restarts and waiting included, after which it fails; null: none.",
    )
    provisioning_deadline: Annotated[str, *duration(30, YEAR_S)] | None = Field(
        default=None,
        description="Time in which the pods of an attempt must be ready, else it fails; a queue's time does not count; "
        "null: wait for ever.",
    )
    stall_timeout: Annotated[str, *duration(60, YEAR_S)] | None = Field(
        default="30m", description="Restart, counted, when no timestep was trained for this long; null: never."
    )
    budget: BudgetSpec = Field(default_factory=BudgetSpec, description="Prices and the most the job may cost.")
    image: ImageName | None = Field(default=None, description="Container image of all pods; null: the operator's own.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="When nodes pull the image; null: Kubernetes decides by the tag."
    )
    image_pull_secrets: list[SecretName] = Field(
        default_factory=list[SecretName], max_length=16, description="Secrets with registry credentials."
    )
    ray_version: RayVersion | None = Field(
        default=None, description="Version of Ray in the image, 2.52.0 or newer; null: the operator's own image's."
    )
    runtime_env: FreeForm = Field(
        default_factory=dict[str, Any],
        description="Ray's runtime environment (pip, working_dir, env_vars, ...), handed on as it stands.",
    )
    service_account_name: ObjectName | None = Field(
        default=None, description="ServiceAccount of learner and evaluator pods; null: the namespace's default."
    )
    head_service_account_name: ObjectName | None = Field(
        default=None,
        description="ServiceAccount of the head pod; the autoscaler's role must be bound to it; null: KubeRay's own.",
    )
    env_from: list[EnvFrom] = Field(
        default_factory=list[EnvFrom], max_length=32, description="Environment variables of all pods."
    )

    @field_validator("config", mode="wrap")
    @classmethod
    def _config_of_the_algorithm(cls, value: Any, _default: Any, info: ValidationInfo) -> AlgorithmConfig:
        name = info.data.get("algorithm")
        if name is None:
            return AlgorithmConfig()  # the algorithm itself is what is wrong
        config = ALGORITHMS[name].config
        if type(value) is AlgorithmConfig and not value.model_fields_set:
            return config()
        # A manifest speaks camelCase only; Python code may use either.
        return config.model_validate(value, by_alias=True, by_name=not from_manifest(info), context=info.context)

    @model_validator(mode="after")
    def _check(self) -> RLJobSpec:
        conflicts = [*self._optimizer_conflicts(), *self._agents_conflicts(), *self._budget_conflicts()]
        raise_conflicts("RLJobSpec", [*conflicts, *self._mutated()])
        return self

    def _optimizer_conflicts(self) -> list[Conflict]:
        supported = ALGORITHMS[self.algorithm].optimizers
        if self.optimizer is None or self.optimizer in supported:
            return []
        message = f'"{self.optimizer}" cannot train {self.algorithm}; allowed: {", ".join(supported)}'
        return [Conflict(("optimizer",), self.optimizer, message)]

    def _agents_conflicts(self) -> list[Conflict]:
        agents, multi = ALGORITHMS[self.algorithm].agents, self.multi_agent
        if multi is None:
            if agents != "many":
                return []
            message = f"{self.algorithm} trains several agents together: name their policies in multiAgent.policies"
            return [Conflict(("multiAgent",), None, message)]
        if agents == "one":
            message = f"{self.algorithm} trains one policy for one agent; remove multiAgent, or use PPO"
            return [Conflict(("multiAgent",), None, message)]
        conflicts = []
        if agents == "many" and (multi.train is not None or multi.self_play is not None):
            name = "train" if multi.train is not None else "selfPlay"
            message = f"{self.algorithm} trains all agents together; remove {name}"
            conflicts.append(Conflict(("multiAgent", name), None, message))
        if multi.self_play is not None and self.config.observation_filter != "none":
            message = "snapshots of self-play hold no filter; set it to none, or remove multiAgent.selfPlay"
            conflicts.append(Conflict(("config", "observationFilter"), self.config.observation_filter, message))
        return conflicts

    def _budget_conflicts(self) -> list[Conflict]:
        groups = ["head", "learner", *(pool.name for pool in self.evaluators.pools)]
        return [
            Conflict(("budget", "pricePerHour", name), price, f"there is no such pool; allowed: {', '.join(groups)}")
            for name, price in self.budget.price_per_hour.items()
            if name not in groups
        ]

    def _mutated(self) -> list[Conflict]:
        """Mutations of hyper-parameters that the algorithm does not have as plain numbers."""
        numbers = numeric_parameters(type(self.config))
        return [
            Conflict(
                ("population", "mutations", index, "parameter"),
                mutation.parameter,
                f'"{mutation.parameter}" is not a number of {self.algorithm}\'s config; allowed: {", ".join(numbers)}',
            )
            for index, mutation in enumerate(self.population.mutations if self.population else ())
            if mutation.parameter not in numbers
        ]

    @property
    def resolved_optimizer(self) -> str:
        """The named optimizer, or the algorithm's default."""
        return self.optimizer or ALGORITHMS[self.algorithm].default_optimizer


def numeric_parameters(config: type[AlgorithmConfig]) -> list[str]:
    """Manifest names of the config's fields that hold one number."""
    return [info.alias or name for name, info in config.model_fields.items() if info.annotation in (int, float)]
