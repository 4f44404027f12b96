"""AlphaZero learns: with few simulations the search loses now and then, and with what it learned it does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rlcore.api import RLJob
from rlcore.driver.build import evaluator_config
from rlcore.driver.plan import Machine, make_plan
from rlcore.driver.play import open_player
from rlcore.driver.run import RunOptions, run_job
from rlcore.evaluation.policy_evaluator import PolicyEvaluator
from rlcore.policy.alpha_zero import AlphaZeroPolicyGraph, most_visited
from tests.learning.gate import NEEDED, SEEDS, Silent, load_example

pytestmark = pytest.mark.timeout(1500)

# Simulations of each move where players are judged: few, so that the network matters.
FEW = 8
GAMES = 200


def document(example: str, timesteps: int) -> dict:
    """An example manifest that ends earlier, judged with few simulations."""
    found = load_example(example, stop={"timesteps": timesteps}, evaluation={"every": 0})
    found["spec"]["config"]["evaluationSimulations"] = FEW
    return found


@contextmanager
def untrained(manifest: dict, seed: int) -> Iterator[PolicyEvaluator]:
    """The player that training begins with, against a random one."""
    job = RLJob.model_validate(manifest)
    config = evaluator_config(job.spec, make_plan(job.spec, Machine(cores=1, gpus=0)), seed)
    evaluator = PolicyEvaluator(config.judged)
    yield evaluator
    evaluator.close()


@contextmanager
def trained(manifest: dict, root: Path, seed: int) -> Iterator[PolicyEvaluator]:
    """The player that training ends with, against a random one."""
    name = f"{manifest['metadata']['name']}-{seed}"
    spec = {**manifest["spec"], "seed": seed}
    job = RLJob.model_validate({**manifest, "metadata": {"name": name}, "spec": spec})
    report = run_job(job, RunOptions(root=root, in_process=True), Silent())
    player = open_player(report.directory.path, seed=seed, environments=50)
    print(f"seed {seed}: trained on {player.timesteps:,} timesteps in {report.completion['elapsed_s']:.1f} s")
    yield player.evaluator
    player.evaluator.close()


@dataclass(frozen=True)
class Score:
    """Games won, drawn and lost."""

    won: int
    drawn: int
    lost: int

    @classmethod
    def of(cls, outcomes) -> "Score":
        signs = np.sign(outcomes).astype(int).tolist()
        return cls(signs.count(1), signs.count(0), signs.count(-1))


def against_random(evaluator: PolicyEvaluator) -> Score:
    """Games from both seats."""
    score = Score.of([episode.episode_return for episode in evaluator.evaluate(GAMES, seed=11)])
    print(score)
    return score


def policy_of(evaluator: PolicyEvaluator) -> AlphaZeroPolicyGraph:
    (policy,) = evaluator.policies.values()
    assert isinstance(policy, AlphaZeroPolicyGraph)
    return policy


def match(one: AlphaZeroPolicyGraph, other: AlphaZeroPolicyGraph, game, *, seed: int) -> Score:
    """What `one` makes of games against `other` that begin with two random moves, each opening from both seats."""
    rng = np.random.default_rng(seed)
    positions = game.initial(GAMES // 2)
    for _ in range(2):
        positions = game.play(
            positions, (game.legal(positions) * rng.random((GAMES // 2, game.num_actions))).argmax(1)
        ).positions
    positions = np.concatenate([positions, positions])
    seats = np.repeat([0, 1], GAMES // 2)
    outcomes, going = np.zeros(GAMES), np.ones(GAMES, bool)
    while going.any():
        turn = game.mover(positions) == seats
        for policy, view, rows in ((one, 1.0, going & turn), (other, -1.0, going & ~turn)):
            if not rows.any():
                continue
            played = game.play(positions[rows], most_visited(policy.look_ahead(positions[rows])))
            positions[rows] = played.positions
            outcomes[rows] = view * played.outcome
            going[rows] = ~played.over
    return Score.of(outcomes)


def assert_two_of_three(passed: Iterator[bool]) -> None:
    """Ends as soon as two seeds have passed, or two have not."""
    results: list[bool] = []
    for result in passed:
        results.append(result)
        if results.count(True) >= NEEDED:
            return
        if results.count(False) > len(SEEDS) - NEEDED:
            break
    raise AssertionError(f"fewer than {NEEDED} of {len(SEEDS)} seeds passed: {results}")


def test_tic_tac_toe_is_never_lost_to_a_random_player_after_training(tmp_path):
    manifest = document("tic-tac-toe-alphazero.yaml", 50_000)

    def judged() -> Iterator[bool]:
        for seed in SEEDS:
            with trained(manifest, tmp_path, seed) as evaluator:
                score = against_random(evaluator)
                yield score.lost == 0 and score.won > 0.85 * GAMES

    assert_two_of_three(judged())


def test_the_same_search_loses_now_and_then_before_training():
    for seed in SEEDS:
        with untrained(document("tic-tac-toe-alphazero.yaml", 50_000), seed) as evaluator:
            assert against_random(evaluator).lost >= 10


def test_connect_four_is_won_against_the_untrained_network_with_the_same_search(tmp_path):
    manifest = document("connect-four-alphazero.yaml", 30_000)

    def judged() -> Iterator[bool]:
        for seed in SEEDS:
            with trained(manifest, tmp_path, seed) as evaluator, untrained(manifest, seed) as before:
                game = evaluator.world.env.game
                score = match(policy_of(evaluator), policy_of(before), game, seed=seed)
                print(score)
                yield score.won >= 0.8 * GAMES

    assert_two_of_three(judged())


@pytest.mark.long
@pytest.mark.timeout(2 * 3600)
def test_connect_four_is_all_but_never_lost_to_a_random_player(tmp_path):
    manifest = load_example("connect-four-alphazero.yaml", evaluation={"every": 0})
    manifest["spec"]["config"]["evaluationSimulations"] = 32

    def judged() -> Iterator[bool]:
        for seed in SEEDS:
            with trained(manifest, tmp_path, seed) as evaluator:
                yield against_random(evaluator).lost == 0

    assert_two_of_three(judged())
