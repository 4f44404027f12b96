"""From a manifest and a plan to running parts: evaluators, learner, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import gymnasium as gym

from rlcore.algorithms import ALGORITHMS
from rlcore.api import RLJobSpec
from rlcore.api.algorithms.offline import OfflineConfig
from rlcore.driver.plan import Machine, Plan, make_plan
from rlcore.env.normalize import MeanStdFilter
from rlcore.errors import UnsupportedError
from rlcore.evaluation.config import EvaluatorConfig, PolicySpec
from rlcore.evaluation.evaluator_set import Evaluators, LocalEvaluators, RemoteEvaluators
from rlcore.evaluation.policy_evaluator import PolicyEvaluator, evaluator_for
from rlcore.evaluation.world import Spaces, make_world
from rlcore.offline.dataset import require_fitting_input
from rlcore.optimizers import OPTIMIZERS, PolicyOptimizer
from rlcore.optimizers.learner import Learner
from rlcore.optimizers.remote_learner import RemoteLearner
from rlcore.sample_batch import DEFAULT_POLICY


@dataclass(frozen=True)
class Parts:
    """What a job runs with."""

    optimizer: PolicyOptimizer
    config: EvaluatorConfig
    spaces: dict[str, Spaces]


def evaluator_config(spec: RLJobSpec, plan: Plan, seed: int) -> EvaluatorConfig:
    """What every evaluator of a job is made from."""
    algorithm = ALGORITHMS[spec.algorithm]
    multi = spec.multi_agent
    models = {DEFAULT_POLICY: spec.model}
    if multi is not None:
        models = {policy_id: policy.model or spec.model for policy_id, policy in multi.policies.items()}
    policies = {policy_id: PolicySpec(algorithm.graph, spec.config, model) for policy_id, model in models.items()}
    return EvaluatorConfig(
        environment=spec.environment,
        policies=policies,
        mapping=multi.mapping if multi else None,
        trained=tuple((multi.train if multi else None) or policies),
        num_envs=plan.envs_per_evaluator,
        fragment_length=plan.fragment_length,
        batch_mode=spec.config.batch_mode,
        observation_filter=spec.config.observation_filter,
        sequence_length=spec.config.max_sequence_length,
        compression=spec.config.compression,
        seed=seed,
        max_failures=spec.environment.max_failures,
    )


def check_job(spec: RLJobSpec) -> None:
    """Judges a job by its environment and its records, before Ray or a node is asked for anything.

    Raises:
        UserError: it cannot be trained.
    """
    plan = make_plan(spec, Machine(cores=1, gpus=0))
    require_possible(spec, evaluator_config(spec, plan, seed=0))


def require_possible(spec: RLJobSpec, config: EvaluatorConfig) -> dict[str, Spaces]:
    """Each policy's spaces, which the algorithm, its model, replay and records fit.

    Raises:
        UserError: one of them does not.
    """
    spaces = probe_spaces(config)
    refuse_filtered_images(config, spaces)
    for policy_id, (_, action_space) in spaces.items():
        config.policies[policy_id].graph.require_action_space(action_space, spec.algorithm)
    ALGORITHMS[spec.algorithm].check(spec, spaces)
    if isinstance(spec.config, OfflineConfig):
        (policy_spaces,) = spaces.values()
        require_fitting_input(spec.config.input, policy_spaces, spec.environment.id)
    return spaces


def build(
    spec: RLJobSpec,
    plan: Plan,
    seed: int,
    *,
    use_ray: bool,
    start_evaluators: Callable[[EvaluatorConfig], Evaluators] | None = None,
) -> Parts:
    """Starts evaluators and learner and gives them to the manifest's optimizer.

    Args:
        spec: of the job.
        plan: how it runs here.
        seed: of everything random.
        use_ray: evaluators are actors.
        start_evaluators: starts them in another way than on this machine.

    Raises:
        UserError: the environment, the model or a mapping cannot be made; nothing is left running.
    """
    config = evaluator_config(spec, plan, seed)
    spaces = require_possible(spec, config)
    strategy = OPTIMIZERS[spec.resolved_optimizer]
    with ExitStack() as stack:
        learner = _learner(config, plan, spaces)
        if isinstance(learner, RemoteLearner):
            stack.callback(learner.stop)
        if start_evaluators is not None:
            evaluators = start_evaluators(replace(config, torch_threads=1))
        elif strategy.plays:
            evaluators = _evaluators(config, plan, use_ray=use_ray)
        else:
            evaluators = LocalEvaluators([])
        stack.callback(evaluators.stop)
        settings = ALGORITHMS[spec.algorithm].optimizer_config(spec.config, plan.fragment_size)
        optimizer = strategy(learner, evaluators, replace(settings, seed=seed), _filters(config, spaces))
        stack.pop_all()
    return Parts(optimizer, config, spaces)


def refuse_filtered_images(config: EvaluatorConfig, spaces: dict[str, Spaces]) -> None:
    """Images are scaled by the model; a running mean of every pixel would only cost memory.

    Raises:
        UnsupportedError: observationFilter meanStd for an image.
    """
    for policy_id, (space, _) in spaces.items():
        if config.observation_filter != "none" and len(space.shape) != 1:
            raise UnsupportedError(
                f"spec.config.observationFilter: {config.observation_filter} is for vectors, and policy {policy_id} "
                f"observes an array of shape {space.shape}",
                hint="leave observationFilter out",
            )


def probe_spaces(config: EvaluatorConfig) -> dict[str, Spaces]:
    """Policy id -> (observation space, action space), from one sub-environment that is closed again."""
    world = make_world(replace(config, num_envs=1))
    try:
        return dict(world.spaces)
    finally:
        world.close()


def _learner(config: EvaluatorConfig, plan: Plan, spaces: dict[str, Spaces]) -> Learner | RemoteLearner:
    if plan.remote_learner:
        options = {"num_cpus": 0, "num_gpus": sum(d != "cpu" for d in plan.devices), "resources": {"learner": 1}}
        return RemoteLearner(config, spaces, plan.devices, options, plan.learner_threads)
    policies = {p: config.build_policy(p, spaces[p], plan.devices[0]) for p in spaces if p in config.trained}
    return Learner(policies, devices=plan.devices, seed=config.seed)


def _evaluators(config: EvaluatorConfig, plan: Plan, *, use_ray: bool) -> Evaluators:
    if use_ray and plan.evaluators:
        options = {"num_cpus": 1, "resources": {"evaluator": 1}} if plan.remote_learner else {"num_cpus": 1}
        # On one machine references are shared memory: compressing what does not travel would only cost time.
        travels = plan.remote_learner or config.compression != "auto"
        compression = config.compression if travels else "none"
        return RemoteEvaluators(replace(config, torch_threads=1, compression=compression), plan.evaluators, options)
    # Without Ray there are as many evaluators, one after the other, so that the numbers are the same. They have
    # policies of their own: what a fragment was sampled with must not change while it is learned from.
    here = replace(config, compression="none")
    with ExitStack() as stack:
        evaluators = []
        for index in range(max(1, plan.evaluators)):
            evaluators.append(PolicyEvaluator(evaluator_for(here, index + 1)))
            stack.callback(evaluators[-1].close)
        stack.pop_all()
    return LocalEvaluators(evaluators)


def _filters(config: EvaluatorConfig, spaces: dict[str, Spaces]) -> dict[str, MeanStdFilter]:
    if config.observation_filter == "none":
        return {}
    boxes: dict[str, gym.spaces.Box] = {policy_id: space for policy_id, (space, _) in spaces.items()}
    return {policy_id: MeanStdFilter(box.shape) for policy_id, box in boxes.items()}
