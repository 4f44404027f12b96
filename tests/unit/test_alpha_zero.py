"""AlphaZero: targets and loss by hand, acting, determinism, checkpoints, evaluation, bad input."""

import json
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore.api import ModelSpec
from rlcore.api.algorithms.alpha_zero import AlphaZeroConfig
from rlcore.driver.build import build, check_job, evaluator_config
from rlcore.driver.evaluation import EvaluationResult
from rlcore.driver.plan import Machine, make_plan
from rlcore.errors import EnvironmentFailure, UnsupportedError, UserError
from rlcore.evaluation.episodes import Episode
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.policy.alpha_zero import POLICY_TARGETS, SIDES, AlphaZeroPolicyGraph, draw, most_visited, outcomes_of
from rlcore.policy.tree_search import Found
from rlcore.sample_batch import ACTION_MASK, OBSERVATIONS, VALUE_TARGETS, Fragment, SampleBatch
from tests.jobs import make_job, pools
from tests.runs import assert_equal_trees, assert_user_error, metrics, without_clocks, write_manifest

TIC_TAC_TOE = {"id": "rlcore/TicTacToe-v0"}
SMALL = {
    "simulations": 8, "fragmentLength": 8, "trainBatchSize": 64, "learningStarts": 100, "iterationTimesteps": 200,
    "replayCapacity": 5000, "temperatureMoves": 3,
}  # fmt: skip
MLP = {"hiddens": [16], "convPreset": "none"}


def alpha_zero(name="job", config=None, **spec):
    fields = {
        "algorithm": "AlphaZero", "environment": TIC_TAC_TOE, "model": MLP, "evaluators": pools(1, envs=8), **spec,
        "config": {**SMALL, **(config or {})},
    }  # fmt: skip
    return make_job(name, **fields)


def fields_of(job):
    return job.model_dump(mode="json", by_alias=True, exclude_unset=True)["spec"]


def make_evaluator(seed=0, *, judged=False, **spec):
    job = alpha_zero(**spec)
    config = evaluator_config(job.spec, make_plan(job.spec, Machine(cores=1, gpus=0)), seed=seed)
    return PolicyEvaluator(config.judged if judged else config)


def make_policy(**config):
    space = gym.spaces.Box(0, 1, (2, 3, 3), np.uint8)
    model = ModelSpec(hiddens=[8], conv_preset="none")
    return AlphaZeroPolicyGraph(space, gym.spaces.Discrete(9), AlphaZeroConfig(**config), model, seed=0)


# targets --------------------


def fragment_of(rewards, terminated, truncated, valid):
    """A fragment [T, N] of which nothing but these matters."""
    arrays = (np.array(rewards, np.float32), *(np.array(flags, bool) for flags in (terminated, truncated, valid)))
    length, slots = arrays[0].shape
    return Fragment(np.zeros((length + 1, slots, 1)), np.zeros((length, slots)), *arrays)


def test_a_games_outcome_belongs_to_all_of_its_moves_and_to_no_other_game():
    # Slot 0: the first player wins in three, then a game without an end. Slot 1: a loss in two, an autoreset, a win.
    fragment = fragment_of(
        rewards=[[0, 0], [0, -1], [1, 0], [0, 0], [0, 1]],
        terminated=[[0, 0], [0, 1], [1, 0], [0, 0], [0, 1]],
        truncated=np.zeros((5, 2)),
        valid=[[1, 1], [1, 1], [1, 0], [0, 1], [1, 1]],
    )
    outcomes, known = outcomes_of(fragment)
    assert known.tolist() == [[True, True], [True, True], [True, False], [False, True], [False, True]]
    assert outcomes[known].tolist() == [1, -1, 1, -1, 1, 1, 1]


def test_a_game_that_was_cut_off_is_a_draw_and_one_that_failed_is_none():
    fragment = fragment_of(
        rewards=np.zeros((2, 2)), terminated=np.zeros((2, 2)), truncated=[[0, 0], [1, 1]], valid=[[1, 1], [1, 0]]
    )
    outcomes, known = outcomes_of(fragment)
    assert known.tolist() == [[True, False], [True, False]]
    assert (outcomes == 0).all()


def test_value_targets_flip_with_the_mover_and_policy_targets_are_shares_of_visits():
    evaluator = make_evaluator(config={"symmetries": False})
    batch = evaluator.sample().policy_batches["default"]
    movers = batch[OBSERVATIONS].sum(axis=(1, 2, 3)) % 2  # stones on the board
    targets = batch[VALUE_TARGETS]
    assert set(targets.tolist()) <= {-1.0, 0.0, 1.0}
    # Rows are time-major, and the games of a slot run through them; in one game all of one mover's targets agree.
    assert set(targets[movers == 0].tolist()) == set((-targets[movers == 1]).tolist())
    last = targets[batch[OBSERVATIONS].sum(axis=(1, 2, 3)) == 8]
    assert (last >= 0).all(), "whoever makes the ninth move cannot lose by it"
    assert np.allclose(batch[POLICY_TARGETS].sum(axis=1), 1)
    assert np.allclose(batch[POLICY_TARGETS] * SMALL["simulations"] % 1, 0, atol=1e-5)
    assert (batch[POLICY_TARGETS][~batch[ACTION_MASK]] == 0).all()
    legal = batch[OBSERVATIONS].sum(axis=1).reshape(-1, 9) == 0
    assert np.array_equal(batch[ACTION_MASK], legal)


def test_whoever_makes_the_last_move_has_not_lost_and_the_other_has_the_opposite():
    evaluator = make_evaluator(config={"symmetries": False, "simulations": 2}, evaluators=pools(1, envs=32))
    fragment = evaluator._run_complete_episodes()["default"]
    _, known = outcomes_of(fragment)
    targets = np.full(known.shape, np.nan)
    targets[known] = evaluator.policies["default"].postprocess(fragment)[VALUE_TARGETS]
    steps, slots = np.nonzero(fragment.done & known)
    assert (targets[steps, slots] >= 0).all()
    assert np.array_equal(targets[steps - 1, slots], -targets[steps, slots])
    won = targets[steps, slots] == 1
    assert set(fragment.extras[SIDES][steps, slots][won]) == {1.0, -1.0}, "either player won somewhere"


def test_every_game_in_a_sample_is_whole():
    batch = make_evaluator(config={"symmetries": False}).sample().policy_batches["default"]
    stones = batch[OBSERVATIONS].sum(axis=(1, 2, 3))
    counts = np.bincount(stones.astype(int), minlength=9)
    assert (counts[:5] == counts[0]).all(), "no game ends before its fifth move"
    assert (np.diff(counts[4:]) <= 0).all()


def test_mirror_images_come_with_the_same_outcome():
    plain, mirrored = (
        make_evaluator(config={"symmetries": symmetries}).sample().policy_batches["default"]
        for symmetries in (False, True)
    )
    assert mirrored.size == 8 * plain.size
    assert np.array_equal(mirrored[VALUE_TARGETS], np.tile(plain[VALUE_TARGETS], 8))
    # Turned by a quarter: field 0 of the new board was field 2.
    turned = mirrored.take(slice(plain.size, 2 * plain.size))
    assert np.array_equal(turned[OBSERVATIONS], np.rot90(plain[OBSERVATIONS], axes=(2, 3)))
    targets = plain[POLICY_TARGETS].reshape(-1, 3, 3)
    assert np.array_equal(turned[POLICY_TARGETS].reshape(-1, 3, 3), np.rot90(targets, axes=(1, 2)))
    assert np.array_equal(turned[ACTION_MASK], turned[OBSERVATIONS].sum(axis=1).reshape(-1, 9) == 0)


# the loss --------------------


def test_the_loss_by_hand():
    policy = make_policy(valueLossCoefficient=2.0)
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    batch = {POLICY_TARGETS: torch.tensor([[0.5, 0.5, 0.0]]), VALUE_TARGETS: torch.tensor([-1.0])}
    loss, stats = policy.loss(logits, torch.tensor([math.atanh(0.5)]), batch)
    cross_entropy = -0.5 * math.log(0.5) - 0.5 * math.log(0.25)
    assert loss.item() == pytest.approx(cross_entropy + 2.0 * 1.5**2)
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    assert stats.tolist() == pytest.approx([cross_entropy, 2.25, entropy, math.log(2)])


def test_weight_decay_adds_the_gradient_of_the_squared_parameters():
    rows = SampleBatch(
        {
            OBSERVATIONS: np.random.default_rng(0).integers(0, 2, (5, 2, 3, 3)).astype(np.uint8),
            ACTION_MASK: np.ones((5, 9), bool),
            POLICY_TARGETS: np.full((5, 9), 1 / 9, np.float32),
            VALUE_TARGETS: np.ones(5, np.float32),
        }
    )
    without, _ = make_policy(weightDecay=0.0).gradients(rows)
    with_decay, _ = (policy := make_policy(weightDecay=0.1)).gradients(rows)
    assert with_decay - without == pytest.approx(2 * 0.1 * policy.get_weights(), abs=1e-6)


# acting --------------------


def test_moves_are_drawn_by_visits_and_temperature():
    visits = np.tile(np.array([[0, 30, 10, 0]], np.float32), (20_000, 1))
    uniform = np.random.default_rng(0).random(20_000, np.float32)
    shares = np.bincount(draw(visits, 1.0, uniform), minlength=4) / 20_000
    assert shares == pytest.approx([0, 0.75, 0.25, 0], abs=0.01)
    sharper = np.bincount(draw(visits, 0.5, uniform), minlength=4) / 20_000
    assert sharper == pytest.approx([0, 0.9, 0.1, 0], abs=0.01)
    edges = np.array([0.0, 1.0 - 2**-24, 1.0], np.float32)
    assert draw(visits[:3], 1.0, edges).tolist() == [1, 2, 2]


def test_without_a_draw_the_most_visited_move_is_made_and_the_network_breaks_ties():
    visits = np.array([[3, 4, 4], [5, 5, 0]], np.float32)
    priors = np.array([[0.9, 0.02, 0.08], [0.6, 0.4, 0.0]], np.float32)
    assert most_visited(Found(visits, visits, priors)).tolist() == [2, 0]


def test_exploration_ends_after_the_first_moves_and_evaluation_has_none():
    evaluator = make_evaluator(config={"temperatureMoves": 0})
    track = evaluator.tracks["default"]
    fragment = evaluator.run(6, explore=True)["default"]
    best = fragment.extras[POLICY_TARGETS].max(axis=2)
    chosen = np.take_along_axis(fragment.extras[POLICY_TARGETS], fragment.actions[..., None], axis=2)[..., 0]
    assert np.array_equal(chosen[fragment.valid], best[fragment.valid])
    # Without noise two evaluators of different seeds play the same moves.
    games = [make_evaluator(seed=0), make_evaluator(seed=0)]
    games[1].policies["default"].rng = np.random.default_rng(99)
    plays = [each.run(8, explore=False)["default"] for each in games]
    assert np.array_equal(plays[0].actions, plays[1].actions)
    assert track.policy.plays_both_seats


def test_evaluation_may_search_deeper_than_training():
    evaluator = make_evaluator(config={"evaluationSimulations": 20})
    for explore, simulations in ((True, 8), (False, 20)):
        shares = evaluator.run(4, explore=explore)["default"].extras[POLICY_TARGETS]
        assert np.allclose(shares * simulations % 1 % 1, 0, atol=1e-4) or np.allclose(shares * simulations % 1, 1)


def test_finished_games_are_not_searched():
    evaluator = make_evaluator()
    fragment = evaluator.run(12, explore=True)["default"]
    assert (~fragment.valid).any()
    assert (fragment.extras[POLICY_TARGETS][~fragment.valid] == 0).all()
    assert (np.abs(fragment.extras[SIDES]) == fragment.valid).all()


def test_the_same_seed_samples_the_same_and_another_does_not():
    samples = [make_evaluator(seed=seed).sample().policy_batches["default"] for seed in (0, 0, 1)]
    assert all(np.array_equal(samples[0][name], samples[1][name]) for name in samples[0])
    assert not np.array_equal(samples[0][POLICY_TARGETS][:50], samples[2][POLICY_TARGETS][:50])


@pytest.mark.parametrize(
    "model", [MLP, {"hiddens": [16]}, {"hiddens": [16], "convLayers": [{"filters": 4, "kernel": 2}]}]
)
def test_acting_and_learning_see_the_same_network(model):
    evaluator = make_evaluator(model=model)
    policy = evaluator.policies["default"]
    batch = evaluator.sample().policy_batches["default"].take(slice(0, 20))
    probabilities, values = policy.judge(batch[OBSERVATIONS], batch[ACTION_MASK])
    with torch.no_grad():
        logits, raw = policy.forward({name: torch.from_numpy(batch[name]) for name in (OBSERVATIONS, ACTION_MASK)})
    assert probabilities == pytest.approx(torch.softmax(logits, -1).numpy(), abs=1e-5)
    assert values == pytest.approx(torch.tanh(raw).numpy(), abs=1e-5)
    assert (probabilities[~batch[ACTION_MASK]] == 0).all()


def test_a_users_own_game_is_played_by_its_name():
    evaluator = make_evaluator(environment={"id": "tests.board_games:Nim", "kwargs": {"stones": 5, "again": True}})
    batch = evaluator.sample().policy_batches["default"]
    assert batch[OBSERVATIONS].shape[1:] == (6,)
    assert batch[POLICY_TARGETS].shape[1:] == (3,)


# whole jobs --------------------


def start(job, seed=0):
    plan = make_plan(job.spec, Machine(cores=1, gpus=0))
    return build(job.spec, plan, seed, use_ray=False).optimizer


@pytest.mark.parametrize("optimizer", ["SyncReplay", "AsyncReplay"])
def test_both_optimizers_sample_and_train(optimizer):
    running = start(alpha_zero(optimizer=optimizer))
    before = running.learner.get_weights()["default"]
    for _ in range(3):
        running.step()
    progress = running.collect_metrics()
    assert progress.timesteps_trained > 0
    assert not np.array_equal(before, running.learner.get_weights()["default"])
    assert set(AlphaZeroPolicyGraph.stat_names) <= set(progress.learner["default"])
    running.stop()


def test_a_saved_job_goes_on_exactly():
    first, second = start(alpha_zero()), start(alpha_zero())
    for _ in range(2):
        first.step()
    second.restore(first.save())
    states = first.foreach_evaluator(PolicyEvaluator.save)
    second.evaluators.foreach_with_index(lambda evaluator, state: evaluator.restore(state, 0), states)
    for running in (first, second):
        running.step()
    assert_equal_trees(first.save(), second.save())
    first.stop(), second.stop()


def test_evaluation_counts_games_from_both_seats_against_a_random_player():
    evaluator = make_evaluator(judged=True, evaluators=pools(0, envs=10))
    played = evaluator.evaluate(40, seed=3)
    assert [episode.slot for episode in played].count(0) == 4
    assert played == evaluator.evaluate(40, seed=3)
    assert played != evaluator.evaluate(40, seed=4)
    assert evaluator.world.env.seats == "one"


def test_an_evaluations_games_are_won_drawn_or_lost():
    result = EvaluationResult.of([Episode(r, 5) for r in (1.0, 1.0, 0.0, -1.0)], 10, games=True).to_dict()
    assert (result["win_rate"], result["draw_rate"], result["loss_rate"]) == (0.5, 0.25, 0.25)
    assert "win_rate" not in EvaluationResult.of([Episode(1.0, 5)], 10).to_dict()


def test_a_run_stops_at_the_reward_of_its_evaluation(tmp_path, rlcore_run):
    goal = {"timesteps": 100_000, "episodeReward": -0.9}
    done = rlcore_run(
        write_manifest(tmp_path, **fields_of(alpha_zero(stop=goal, evaluation={"every": 1, "episodes": 40})))
    )
    assert done.returncode == 0, done.stderr
    assert "% won" in done.stdout
    lines = metrics(tmp_path / "runs" / "job")
    assert lines[0]["episode_reward_mean"] is None, "self-play's own episodes are no measure"
    assert lines[0]["episodes"] > 0
    evaluation = lines[-1]["evaluation"]
    assert lines[-1]["episode_reward_mean"] == pytest.approx(evaluation["win_rate"] - evaluation["loss_rate"])
    assert "reached the goal of -0.9" in done.stdout
    assert len(lines) == 2


def test_resuming_equals_not_stopping(tmp_path, rlcore_run):
    from tests.runs import latest_state

    states = []
    for name, stops in (("whole", (1200,)), ("halves", (600, 1200))):
        directory = tmp_path / name
        directory.mkdir()
        for timesteps in stops:
            spec = fields_of(alpha_zero(stop={"timesteps": timesteps}))
            manifest = write_manifest(directory, **spec)
            assert rlcore_run(manifest).returncode == 0
        states.append(without_clocks(latest_state(manifest)))
    assert_equal_trees(*states)


@pytest.mark.parametrize("optimizer", ["SyncReplay", "AsyncReplay"])
def test_a_run_over_ray_trains_and_evaluates_and_eval_tells_the_rates(tmp_path, optimizer, rlcore_run):
    from click.testing import CliRunner

    from rlcore.cli.eval import evaluate

    judged = {"every": 1, "episodes": 20}
    spec = fields_of(alpha_zero(optimizer=optimizer, stop={"timesteps": 800}, evaluation=judged))
    manifest = write_manifest(tmp_path, **spec)
    done = rlcore_run(manifest, in_process=False)
    assert done.returncode == 0, done.stderr
    assert "% won" in done.stdout
    run = str(tmp_path / "runs" / "job")
    printed = CliRunner().invoke(evaluate, [run, "--episodes", "10", "-o", "json"])
    result = json.loads(printed.output)
    assert result["win_rate"] + result["draw_rate"] + result["loss_rate"] == pytest.approx(1)
    assert "against a random player" in CliRunner().invoke(evaluate, [run, "--episodes", "10"]).output


def test_a_person_plays_and_is_told_what_is_legal_and_a_game_can_be_watched(tmp_path, rlcore_run):
    from click.testing import CliRunner

    from rlcore.cli.play import play

    rlcore_run(write_manifest(tmp_path, **fields_of(alpha_zero(stop={"timesteps": 200}))))
    run = str(tmp_path / "runs" / "job")
    # Whatever the policy answers, one of these is legal at each turn.
    typed = "\n".join(["9", *map(str, range(9)), *map(str, range(9))]) + "\n"
    played = CliRunner().invoke(play, [run], input=typed * 5)
    assert played.exit_code == 0, played.output
    assert "9 is not legal; legal: 0, 1, 2, 3, 4, 5, 6, 7, 8" in played.output
    assert "policy plays" in played.output
    watched = CliRunner().invoke(play, [run, "--watch", "--first"])
    lines = watched.output.splitlines()
    assert lines[1:4] == ["0 1 2", "3 4 5", "6 7 8"]
    assert lines[4].startswith("policy plays")
    assert lines[-1] in ("the policy wins", "a draw", "the policy loses")


def test_other_algorithms_play_no_games_at_the_table(tmp_path, rlcore_run):
    from rlcore.driver.table import play_game

    rlcore_run(write_manifest(tmp_path, stop={"timesteps": 600}))
    with pytest.raises(UnsupportedError, match="PPO on CartPole-v1 is no game to watch"):
        play_game(tmp_path / "runs" / "job", None, first=True, seed=0, show=print)


def test_nor_do_several_policies(tmp_path, rlcore_run):
    from rlcore.driver.table import play_game

    two = {"policies": {"same": {}, "other": {}}}
    rlcore_run(
        write_manifest(tmp_path, environment={"id": "tests.jobs:TwoAgents"}, multiAgent=two, stop={"timesteps": 600})
    )
    with pytest.raises(UnsupportedError, match=r"PPO on tests\.jobs:TwoAgents is no game to watch"):
        play_game(tmp_path / "runs" / "job", None, first=True, seed=0, show=print)


def test_the_game_in_the_documentation_is_sound_and_played():
    import re
    from pathlib import Path

    from rlcore.env.games.game import require_sound

    page = (Path(__file__).parents[2] / "docs" / "alphazero.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict = {}
    exec(code, names)
    require_sound(names["Nim"](), "the documentation's")


# bad input --------------------


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"environment": {"id": "CartPole-v1"}}, EnvironmentFailure, "CartPole-v1.*not a game"),
        ({"environment": {"id": "Pendulum-v1"}}, EnvironmentFailure, "Pendulum-v1.*not a game"),
        ({"environment": {"id": "tests.board_games:InPlaceNim"}}, EnvironmentFailure, "play changed the positions"),
        ({"environment": {**TIC_TAC_TOE, "vectorization": "sync"}}, UnsupportedError, "vectorization: sync"),
        ({"model": {"lstmSize": 8}}, UnsupportedError, "lstmSize: 8 is not supported by AlphaZero"),
        ({"config": {"replayCapacity": 10**10}}, UserError, "replayCapacity: 10,000,000,000 transitions"),
        ({"stop": {"episodeReward": 0.9}}, UserError, "episodeReward.*every: 0"),
        (
            {"stop": {"episodeReward": 0.9}, "evaluation": {"every": 5, "episodes": 5}},
            UserError,
            "episodeReward.*every: 5, episodes: 5",
        ),
    ],
)
def test_what_alpha_zero_cannot_train_is_said_before_anything_starts(changes, error, text):
    with pytest.raises(error, match=text):
        check_job(alpha_zero(**changes).spec)


def test_a_population_without_evaluation_could_not_compare_its_trials(tmp_path, rlcore_run):
    population = {
        "size": 2,
        "interval": 400,
        "mutations": [{"parameter": "learningRate", "minimum": 1e-4, "maximum": 1e-2}],
    }
    manifest = write_manifest(tmp_path, **fields_of(alpha_zero(population=population)))
    assert_user_error(rlcore_run(manifest), "spec.population: AlphaZero plays against itself", "evaluation.every to 1")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"optimizer": "SyncSamples"},
            'optimizer: "SyncSamples" cannot train AlphaZero; allowed: SyncReplay, AsyncReplay',
        ),
        ({"config": {"batchMode": "truncate"}}, "config.batchMode: truncate is not possible"),
        ({"config": {"observationFilter": "meanStd"}}, "config.observationFilter: meanStd is not possible"),
        ({"config": {"learningStarts": 6000}}, "config.learningStarts: 6000 is more than replayCapacity 5000"),
        ({"config": {"nStep": 3}}, "config.nStep"),
        (
            {"multiAgent": {"policies": {"one": {}}, "mapping": "tests.jobs:one_policy"}},
            "multiAgent: AlphaZero trains one policy",
        ),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_as_it_is_read(tmp_path, changes, text, rlcore_run):
    manifest = write_manifest(tmp_path, **fields_of(alpha_zero()))
    import yaml

    document = yaml.safe_load(manifest.read_text())
    document["spec"].update({name: value for name, value in changes.items() if name != "config"})
    document["spec"]["config"].update(changes.get("config", {}))
    manifest.write_text(yaml.safe_dump(document))
    assert_user_error(rlcore_run(manifest), text)


def test_another_action_space_is_refused():
    with pytest.raises(UnsupportedError, match="AlphaZero supports Discrete action spaces"):
        AlphaZeroPolicyGraph.require_action_space(gym.spaces.Box(-1, 1, (2,)), "AlphaZero")


def test_a_policy_without_a_game_says_so():
    with pytest.raises(EnvironmentFailure, match="here are none"):
        make_policy().act(np.zeros((1, 2, 3, 3), np.uint8), [], noise=None)
