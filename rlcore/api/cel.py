"""Rules between fields, in CEL: the API server refuses at `kubectl apply` what `rlcore validate` refuses offline.

A rule sits on the lowest object that holds all its fields. Immutability sits above the field, with has() on both sides,
or adding and removing it would slip through. Every rule allows for null where its fields do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rlcore.api.algorithms import AlgorithmInfo
from rlcore.api.evaluators import RESERVED_POOL_NAMES
from rlcore.api.fields import DNS_LABEL
from rlcore.api.rljob import MAX_NAME_LENGTH

IMMUTABLE_REQUIRED = ("algorithm", "environment")
IMMUTABLE_OPTIONAL = ("optimizer", "config", "model", "multiAgent", "population", "seed")
"""What is trained: a checkpoint of the old job would not fit the new one, so changing it means a new job."""


class Rule(NamedTuple):
    """One x-kubernetes-validations entry and the path of the object it belongs to ("[]" steps into list items).

    field_path is where the API server says that the problem is, as seen from that object; None: at the object.
    """

    path: tuple[str, ...]
    rule: str
    message: str
    field_path: str | None = None

    def as_schema(self) -> dict[str, str]:
        """The entry as the CRD spells it."""
        entry = {"rule": self.rule, "message": self.message}
        return entry if self.field_path is None else {**entry, "fieldPath": self.field_path}


def is_set(name: str) -> str:
    """A field is there and not null."""
    return f"(has(self.{name}) && type(self.{name}) != null_type)"


def rules(algorithms: Mapping[str, AlgorithmInfo]) -> list[Rule]:
    """All rules of the CRD."""
    return [
        *_name_rules(),
        *_immutability_rules(),
        *_algorithm_rules(algorithms),
        *_field_rules(),
    ]


def _name_rules() -> list[Rule]:
    return [
        Rule(
            (),
            f"size(self.metadata.name) <= {MAX_NAME_LENGTH} && self.metadata.name.matches('{DNS_LABEL}')",
            f"metadata.name must have at most {MAX_NAME_LENGTH} characters: lower-case letters, digits and '-', "
            "beginning with a letter and not ending with '-'",
            ".metadata",
        )
    ]


NEVER_VALID = (
    "(has(oldSelf.status) && !has(oldSelf.status.startedAt) && has(oldSelf.status.conditions)"
    " && oldSelf.status.conditions.exists(c, c.type == 'Valid' && c.status == 'False'))"
)
"""The operator found the manifest invalid and never began: whoever made the mistake may mend it."""


def _immutability_rules() -> list[Rule]:
    """On the whole object, since they ask for the status; what a job wants is read behind has() on both sides."""

    def rule(name: str, same: str) -> Rule:
        message = f"{name} cannot change after creation: make a new RLJob"
        return Rule((), f"{same} || {NEVER_VALID}", message, f".spec.{name}")

    def unchanged(name: str) -> str:
        there, before = f"has(self.spec.{name})", f"has(oldSelf.spec.{name})"
        return f"({there} == {before} && (!{there} || self.spec.{name} == oldSelf.spec.{name}))"

    required = [rule(name, f"self.spec.{name} == oldSelf.spec.{name}") for name in IMMUTABLE_REQUIRED]
    return required + [rule(name, unchanged(name)) for name in IMMUTABLE_OPTIONAL]


def _algorithm_rules(algorithms: Mapping[str, AlgorithmInfo]) -> list[Rule]:
    """Which optimizers and hyper-parameters belong to which algorithm."""
    every_optimizer = {name for info in algorithms.values() for name in info.optimizers}
    every_field = {name for info in algorithms.values() for name in field_names(info)}
    result = []
    for name, info in algorithms.items():
        if set(info.optimizers) != every_optimizer:
            allowed = ", ".join(f"'{optimizer}'" for optimizer in info.optimizers)
            rule = f"self.algorithm != '{name}' || !{is_set('optimizer')} || self.optimizer in [{allowed}]"
            message = f"optimizer of {name} must be one of {', '.join(info.optimizers)}"
            result.append(Rule(("spec",), rule, message, ".optimizer"))
        foreign = sorted(every_field - set(field_names(info)))
        if foreign:
            used = " || ".join(f"has(self.config.{field})" for field in foreign)
            rule = f"self.algorithm != '{name}' || !has(self.config) || !({used})"
            message = f"config of {name} must not have any of {', '.join(foreign)}"
            result.append(Rule(("spec",), rule, message, ".config"))
    return [*result, *_agents_rules(algorithms)]


def _agents_rules(algorithms: Mapping[str, AlgorithmInfo]) -> list[Rule]:
    """Which algorithms train several agents."""
    result = []
    for agents, refused, message in (
        ("one", is_set("multiAgent"), "trains one policy for one agent: remove multiAgent"),
        ("many", f"!{is_set('multiAgent')}", "trains several agents together: multiAgent is missing"),
    ):
        names = [name for name, info in algorithms.items() if info.agents == agents]
        if names:
            listed = ", ".join(f"'{name}'" for name in names)
            rule = f"!(self.algorithm in [{listed}]) || !({refused})"
            result.append(Rule(("spec",), rule, f"{', '.join(names)} {message}", ".multiAgent"))
    return result


def field_names(info: AlgorithmInfo) -> list[str]:
    """Manifest names of an algorithm's hyper-parameters."""
    return [field.alias or name for name, field in info.config.model_fields.items()]


def _field_rules() -> list[Rule]:
    stop = ("timesteps", "iterations", "episodeReward", "wallClock")
    storage = ("path", "uri", "persistentVolumeClaim", "newClaim")
    reserved = ", ".join(f"'{name}'" for name in RESERVED_POOL_NAMES)
    pool = ("spec", "evaluators", "pools", "[]")
    return [
        Rule(
            ("spec", "stop"),
            " || ".join(is_set(name) for name in stop),
            f"stop needs at least one of {', '.join(stop)}",
        ),
        Rule(
            ("spec", "environment"),
            "!has(self.atari) || (has(self.wrappers) && self.wrappers == 'atari')",
            "atari is used only with wrappers: atari",
            ".atari",
        ),
        Rule(
            ("spec", "config"),
            "!has(self.minibatchSize) || !has(self.trainBatchSize) || self.minibatchSize <= self.trainBatchSize",
            "minibatchSize must not be more than trainBatchSize",
            ".minibatchSize",
        ),
        Rule(
            ("spec", "model"),
            f"!{is_set('convLayers')} || !{is_set('convPreset')}",
            "convLayers and convPreset cannot be used together",
            ".convPreset",
        ),
        Rule(
            ("spec", "model"),
            f"!has(self.customKwargs) || {is_set('custom')}",
            "customKwargs is used only with custom",
            ".customKwargs",
        ),
        Rule(
            ("spec", "multiAgent"),
            f"!{is_set('train')} || self.train.all(name, name in self.policies)",
            "train must name policies of multiAgent.policies",
            ".train",
        ),
        Rule(
            ("spec", "multiAgent"),
            f"!{is_set('selfPlay')} || (self.selfPlay.policy in self.policies && "
            "self.selfPlay.opponents.all(name, name in self.policies && name != self.selfPlay.policy))",
            "selfPlay must name policies of multiAgent.policies, and the policy cannot be its own opponent",
            ".selfPlay",
        ),
        *_population_rules(),
        Rule(
            pool,
            "(has(self.minReplicas) ? self.minReplicas : 1) <= self.maxReplicas",
            "minReplicas (1 where it is left out) must not be more than maxReplicas",
            ".minReplicas",
        ),
        Rule(
            pool, f"!(self.name in [{reserved}])", f"a pool cannot be called {', '.join(RESERVED_POOL_NAMES)}", ".name"
        ),
        Rule(
            ("spec", "checkpoint", "storage"),
            f"[{', '.join(is_set(name) for name in storage)}].filter(used, used).size() <= 1",
            f"at most one of {', '.join(storage)} can be used",
        ),
    ]


def _population_rules() -> list[Rule]:
    mutation = ("spec", "population", "mutations", "[]")
    low, high, values = is_set("minimum"), is_set("maximum"), is_set("values")
    return [
        Rule(
            ("spec", "population"),
            f"!{is_set('concurrentTrials')} || !has(self.size) || self.concurrentTrials <= self.size",
            "concurrentTrials must not be more than size",
            ".concurrentTrials",
        ),
        Rule(
            mutation,
            f"({values} && !{low} && !{high}) || (!{values} && {low} && {high})",
            "give either minimum and maximum, or values",
        ),
        Rule(
            mutation,
            f"!{low} || !{high} || self.minimum < self.maximum",
            "minimum must be less than maximum",
            ".minimum",
        ),
        Rule(
            mutation,
            f"!has(self.scale) || self.scale != 'log' || !{low} || self.minimum > 0.0",
            "scale log needs a minimum above 0",
            ".minimum",
        ),
    ]
