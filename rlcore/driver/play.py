"""Acts with a saved policy: plays episodes, or records experience."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rlcore.api import RLJob, load_job
from rlcore.checkpoint import CheckpointStore
from rlcore.driver.build import evaluator_config
from rlcore.driver.evaluation import LARGEST_WIDTH, EvaluationResult
from rlcore.driver.identity import identity
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.run_directory import CHECKPOINTS, MANIFEST_FILE, run_directory
from rlcore.driver.session import job_seed
from rlcore.errors import UserError
from rlcore.evaluation.episodes import EpisodeCounter
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.offline.records import RecordsInfo, RecordWriter
from rlcore.offline.transitions import space_text, transitions_of

# Timesteps of one shard: some MB of vectors, a few hundred of images.
SHARD_TIMESTEPS = 20_000


@dataclass(frozen=True)
class Player:
    """A checkpoint's policy in its environments.

    Attributes:
        job: whose checkpoint it is.
        evaluator: to be closed.
        timesteps: of training, when it was saved.
    """

    job: RLJob
    evaluator: PolicyEvaluator
    timesteps: int


def open_player(path: Path, *, seed: int, environments: int) -> Player:
    """The policy of a run's newest checkpoint.

    Raises:
        UserError: the directory holds no run, or no usable checkpoint.
    """
    manifest = path / MANIFEST_FILE
    if not manifest.exists():
        raise UserError(
            f"{path} is no run directory: {MANIFEST_FILE} is missing", hint="give runs/NAME of `rlcore run`"
        )
    job = load_job(manifest)
    store = CheckpointStore(_location(path, job), identity=identity(job))
    found = store.latest()
    if found is None:
        raise UserError(f"{store.location} holds no usable checkpoint", hint=f"train first: rlcore run {manifest}")
    info, state = found
    assert isinstance(state, dict)
    learner = state["optimizer"]["learner"]
    weights = {policy_id: policy["weights"] for policy_id, policy in learner["policies"].items()}
    # A population's best trial is a single one of its job.
    spec = job.spec.model_copy(update={"population": None})
    plan = make_plan(spec, Machine(cores=1, gpus=0))
    config = replace(evaluator_config(spec, plan, seed).judged, num_envs=environments, fragment_length=200)
    evaluator = PolicyEvaluator(config)
    self_play = state["optimizer"].get("self_play")
    if self_play is not None:
        # Opponents are the newest snapshot: the strongest there is, as a rule.
        weights |= dict.fromkeys(self_play["drawn"], self_play["weights"][-1])
    for policy_id in evaluator.policies.keys() - weights.keys():
        # What nobody trains is what it was drawn as in training, whatever the seed is now.
        drawn = replace(config, seed=job_seed(job, store))
        weights[policy_id] = drawn.build_policy(policy_id, evaluator.world.spaces[policy_id]).get_weights()
    evaluator.set_global_state(weights, learner["version"], info.timesteps, state["optimizer"]["filters"])
    return Player(job, evaluator, info.timesteps)


def play_checkpoint(path: Path, *, episodes: int, seed: int) -> EvaluationResult:
    """The deterministic policy of a run's newest checkpoint, on environments seeded with `seed`.

    Raises:
        UserError: the directory holds no run, or no usable checkpoint.
    """
    player = open_player(path, seed=seed, environments=min(episodes, LARGEST_WIDTH))
    try:
        played = player.evaluator.evaluate(episodes, seed)
    finally:
        player.evaluator.close()
    return EvaluationResult.of(played, player.timesteps, games=player.evaluator.config.seats is not None)


def record_checkpoint(
    path: Path, out: Path, *, timesteps: int, seed: int, explore: bool = True, append: bool = False
) -> RecordsInfo:
    """Records what the policy of a run's newest checkpoint does, on environments seeded with `seed`.

    Args:
        path: run directory.
        out: folder of records.
        timesteps: to record, rounded up to whole steps of all environments.
        seed: of environments and of the action noise.
        explore: draw actions as in training; else the deterministic ones.
        append: add to records that are there.

    Raises:
        UserError: there is no usable checkpoint, or the records cannot be written.
    """
    environments = min(LARGEST_WIDTH, max(1, timesteps // 500))
    player = open_player(path, seed=seed, environments=environments)
    evaluator = player.evaluator
    try:
        if len(evaluator.tracks) > 1:
            raise UserError("only runs with a single policy can be recorded", permanent=True)
        ((policy_id, spaces),) = evaluator.world.spaces.items()
        info = RecordsInfo(player.job.spec.environment.id, space_text(spaces[0]), space_text(spaces[1]))
        writer = RecordWriter(out, info, append=append)
        goal = writer.info.timesteps + timesteps
        counter = EpisodeCounter(environments)
        while writer.info.timesteps < goal:
            missing = min(goal - writer.info.timesteps, SHARD_TIMESTEPS)
            fragment = evaluator.transitions(evaluator.run(-(-missing // environments), explore=explore))[policy_id]
            rewards = fragment.rewards if fragment.paid_rewards is None else fragment.paid_rewards
            episodes = counter.update(rewards, fragment.valid, fragment.done)
            writer.write(transitions_of(fragment), [episode.episode_return for episode in episodes])
    finally:
        evaluator.close()
    return writer.info


def _location(path: Path, job: RLJob) -> str:
    """Where a run's checkpoints are: below its directory, among its files (a cluster's claim), or elsewhere."""
    # A run that was moved aside has another name than its job; its own checkpoints are beside its manifest.
    own = path / CHECKPOINTS
    if own.is_dir():
        return str(own)
    return str(path) if any(path.glob("ckpt-*")) else run_directory(job, path.parent).checkpoints
