"""From a manifest and a plan to running parts: evaluators, learner, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import gymnasium as gym

from rlcore.algorithms import ALGORITHMS
from rlcore.api import MultiAgentSpec, RLJobSpec
from rlcore.api.algorithms.offline import OfflineConfig
from rlcore.driver.plan import Machine, Plan, make_plan
from rlcore.driver.stop import FEWEST_EPISODES
from rlcore.env.normalize import MeanStdFilter
from rlcore.errors import UnsupportedError, UserError
from rlcore.evaluation.config import Agents, EvaluatorConfig, PolicySpec
from rlcore.evaluation.evaluator_set import Evaluators, LocalEvaluators, RemoteEvaluators
from rlcore.evaluation.policy_evaluator import PolicyEvaluator, evaluator_for
from rlcore.evaluation.world import Spaces, make_world
from rlcore.offline.dataset import require_fitting_input
from rlcore.optimizers import OPTIMIZERS, PolicyOptimizer
from rlcore.optimizers.learner import Learner
from rlcore.optimizers.remote_learner import RemoteLearner
from rlcore.optimizers.self_play import SelfPlay
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
    if multi is not None and algorithm.joint is None:
        models = {policy_id: policy.model or spec.model for policy_id, policy in multi.policies.items()}
    policies = {policy_id: PolicySpec(algorithm.graph, spec.config, model) for policy_id, model in models.items()}
    return EvaluatorConfig(
        environment=spec.environment,
        policies=policies,
        agents=None if multi is None else _agents(multi, algorithm.joint),
        trained=tuple(policies if multi is None or algorithm.joint else multi.trained),
        num_envs=plan.envs_per_evaluator,
        fragment_length=plan.fragment_length,
        batch_mode=spec.config.batch_mode,
        observation_filter=spec.config.observation_filter,
        sequence_length=spec.config.max_sequence_length,
        compression=spec.config.compression,
        seed=seed,
        max_failures=spec.environment.max_failures,
        seats="both" if algorithm.graph.plays_both_seats else None,
    )


def check_job(spec: RLJobSpec) -> dict[str, Spaces]:
    """Judges a job by its environment and its records, before Ray or a node is asked for anything.

    Returns:
        Each policy's spaces, for `build`.

    Raises:
        UserError: it cannot be trained.
    """
    plan = make_plan(spec, Machine(cores=1, gpus=0))
    return require_possible(spec, evaluator_config(spec, plan, seed=0))


def require_possible(spec: RLJobSpec, config: EvaluatorConfig) -> dict[str, Spaces]:
    """Each policy's spaces, which the algorithm, its model, replay and records fit.

    Raises:
        UserError: one of them does not.
    """
    require_judge(spec)
    spaces = probe_spaces(config)
    refuse_filtered_images(config, spaces)
    for policy_id, (_, action_space) in spaces.items():
        config.policies[policy_id].graph.require_action_space(action_space, spec.algorithm)
    ALGORITHMS[spec.algorithm].check(spec, spaces)
    refuse_unequal_opponents(spec, spaces)
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
    spaces: dict[str, Spaces] | None = None,
) -> Parts:
    """Starts evaluators and learner and gives them to the manifest's optimizer.

    Args:
        spec: of the job.
        plan: how it runs here.
        seed: of everything random.
        use_ray: evaluators are actors.
        start_evaluators: starts them in another way than on this machine.
        spaces: what `check_job` said of this job; None: it is checked here.

    Raises:
        UserError: the environment, the model or a mapping cannot be made; nothing is left running.
    """
    config = evaluator_config(spec, plan, seed)
    if spaces is None:
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
        if spec.multi_agent is not None and spec.multi_agent.self_play is not None:
            optimizer.begin_self_play(SelfPlay(spec.multi_agent.self_play, seed))
        stack.pop_all()
    return Parts(optimizer, config, spaces)


def _agents(multi: MultiAgentSpec, joint: Literal["withState", "withoutState"] | None) -> Agents:
    play = multi.self_play
    seats = (play.policy, *play.opponents) if play is not None and play.shuffle_seats else ()
    return Agents(multi.mapping, tuple(multi.policies), joint, seats)


def refuse_unequal_opponents(spec: RLJobSpec, spaces: dict[str, Spaces]) -> None:
    """A snapshot can play for an opponent that sees and does what the policy itself sees and does.

    Raises:
        UnsupportedError: the spaces differ, or an opponent has no agents.
    """
    play = None if spec.multi_agent is None else spec.multi_agent.self_play
    if play is None:
        return
    for name in (play.policy, *play.opponents):
        if name not in spaces:
            raise UnsupportedError(
                f"spec.multiAgent.selfPlay: no agent of {spec.environment.id} acts by policy {name}",
                hint="see spec.multiAgent.mapping",
            )
        if spaces[name] != spaces[play.policy]:
            raise UnsupportedError(
                f"spec.multiAgent.selfPlay: opponent {name} has the spaces {spaces[name]}, and policy {play.policy} "
                f"has {spaces[play.policy]}",
                hint="self-play is for agents that see and do the same kind of things",
            )


def require_judge(spec: RLJobSpec) -> None:
    """What plays both seats of its games shows in evaluation alone how good it is.

    Raises:
        UserError: a goal for the reward, or trials that are compared by it, and no evaluation that would tell it.
    """
    every, episodes = spec.evaluation.every, spec.evaluation.episodes
    needed_by = [
        name
        for name, wanted in (("stop.episodeReward", spec.stop.episode_reward), ("population", spec.population))
        if wanted is not None
    ]
    alone = not every or episodes < FEWEST_EPISODES
    if needed_by and alone and ALGORITHMS[spec.algorithm].graph.plays_both_seats:
        raise UserError(
            f"spec.{needed_by[0]}: {spec.algorithm} plays against itself, so that the reward to go by is that of "
            f"evaluation, and spec.evaluation has every: {every}, episodes: {episodes}",
            hint=f"set spec.evaluation.every to 1 or more and episodes to {FEWEST_EPISODES} or more",
            permanent=True,
        )


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
    """Policy id -> (observation space, action space), from one sub-environment that is closed again.

    Raises:
        UserError: it cannot be made.
        UnsupportedError: recurrent policies whose agents take turns.
    """
    world = make_world(replace(config, num_envs=1))
    try:
        for policy_id in world.spaces:
            if world.turn_based and config.policies[policy_id].model.lstm_size:
                raise UnsupportedError(
                    f"policy {policy_id} has an LSTM (lstmSize), and the agents of {config.environment.id} take turns",
                    hint="leave lstmSize out: recurrent policies are for agents that act in every step",
                )
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
