"""What a manifest becomes on the machines at hand: a pure function, so that `rlcore plan` and tests can look at it."""

from __future__ import annotations

from dataclasses import dataclass

from rlcore.api import RLJobSpec
from rlcore.errors import UnsupportedError, UserError

WAITS_FOR_NOBODY = ("AsyncGradients", "AsyncSamples", "AsyncReplay", "ShardedParameterServer")


@dataclass(frozen=True)
class Machine:
    """What there is to run on.

    Attributes:
        cores: CPU cores of this machine.
        gpus: GPUs of this machine.
        cluster_evaluators: `evaluator` resources of a Ray cluster, None on a machine of its own.
        cluster_learner_gpus: GPUs of its `learner` node, None without one.
        elastic: evaluators come and go: the job starts with those that are there.
    """

    cores: int
    gpus: int
    cluster_evaluators: int | None = None
    cluster_learner_gpus: int | None = None
    elastic: bool = False


@dataclass(frozen=True)
class Plan:
    """How a job runs.

    Attributes:
        evaluators: evaluator actors; 0 samples in the driver's process.
        envs_per_evaluator: sub-environments of each.
        fragment_length: steps of one sample.
        devices: of the learner's towers.
        remote_learner: the learner is an actor on another pod.
        learner_threads: torch's in that actor, None for Ray's choice.
        notes: what was changed to fit, one sentence each, for the user.
    """

    evaluators: int
    envs_per_evaluator: int
    fragment_length: int
    devices: tuple[str, ...]
    remote_learner: bool
    notes: tuple[str, ...]
    learner_threads: int | None = None

    @property
    def fragment_size(self) -> int:
        """Timesteps of one sample of one evaluator."""
        return self.fragment_length * self.envs_per_evaluator


def make_plan(spec: RLJobSpec, machine: Machine, *, strict: bool = False) -> Plan:
    """The plan for a job on a machine.

    Raises:
        UserError: with `strict`, what would otherwise only be noted (clamped pools, missing GPUs).
        UnsupportedError: a feature of the manifest that this driver cannot run.
    """
    _refuse_unsupported(spec)
    notes: list[str] = []
    evaluators = _evaluators(spec, machine, notes)
    devices = _devices(spec, machine, notes)
    if spec.config.straggler_mitigation and spec.resolved_optimizer != "LocalMultiGPU":
        waits = "never waits" if spec.resolved_optimizer in WAITS_FOR_NOBODY else "always waits for all evaluators"
        notes.append(f"stragglerMitigation has no effect: {spec.resolved_optimizer} {waits}")
    if strict and notes:
        raise UserError("; ".join(notes), hint="leave --strict out to run all the same")
    return Plan(
        evaluators=evaluators,
        envs_per_evaluator=spec.evaluators.envs_per_evaluator,
        fragment_length=fragment_length(spec, evaluators),
        devices=devices,
        remote_learner=machine.cluster_learner_gpus is not None,
        notes=tuple(notes),
    )


def fragment_length(spec: RLJobSpec, evaluators: int) -> int:
    """Steps of one sample: the manifest's, or as many as fill a train batch in one round of all evaluators."""
    environments = max(1, evaluators) * spec.evaluators.envs_per_evaluator
    return spec.config.fragment_length or max(1, -(-spec.config.train_batch_size // environments))


def _evaluators(spec: RLJobSpec, machine: Machine, notes: list[str]) -> int:
    pools = spec.evaluators.pools
    wanted = sum(pool.min_replicas * pool.evaluators_per_pod for pool in pools)
    if spec.evaluators.replicas is not None:
        wanted = spec.evaluators.replicas * max(pool.evaluators_per_pod for pool in pools)
    if machine.cluster_evaluators is not None:
        return machine.cluster_evaluators if machine.elastic else max(wanted, machine.cluster_evaluators)
    if wanted > machine.cores:
        notes.append(f"{wanted} evaluators asked for, {machine.cores} started: this machine has {machine.cores} cores")
    return min(wanted, machine.cores)


def _devices(spec: RLJobSpec, machine: Machine, notes: list[str]) -> tuple[str, ...]:
    wanted = spec.learner.gpus
    there = machine.gpus if machine.cluster_learner_gpus is None else machine.cluster_learner_gpus
    if wanted > there:
        rest = f"{there} used" if there else "learning on the CPU"
        notes.append(f"{wanted} GPUs asked for, {there} found: {rest}")
    count = min(wanted, there)
    return tuple(f"cuda:{i}" for i in range(count)) or ("cpu",)


def _refuse_unsupported(spec: RLJobSpec) -> None:
    if spec.population is not None:
        raise UnsupportedError(
            "spec.population: a population trains on one machine, by `rlcore run`, and not yet in a cluster",
            hint="remove spec.population to train a single trial in the cluster",
        )
    if spec.learner.replicas > 1:
        raise UnsupportedError(
            f"spec.learner.replicas: {spec.optimizer or 'LocalMultiGPU'} uses the devices of one learner, "
            f"{spec.learner.replicas} were asked for",
            hint="set spec.learner.replicas to 1 and spec.learner.gpus to the GPUs of that pod",
        )
