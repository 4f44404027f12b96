"""The ETA as tables; the display as its user sees it, in a terminal and in a log."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console

from rlcore.metrics.eta import ProgressPoint, StopEstimate, duration, estimates, nearest
from rlcore.metrics.progress import Progress
from rlcore.metrics.result import IterationResult


@dataclass(frozen=True)
class Stop:
    timesteps: int | None = None
    iterations: int | None = None
    episode_reward: float | None = None
    wall_clock_s: float | None = None


def run(rewards: list[float | None], seconds_each: float = 2.0) -> list[ProgressPoint]:
    """Points of a run that makes 1,000 timesteps an iteration."""
    return [ProgressPoint(seconds_each * n, 1000 * n, n, reward) for n, reward in enumerate(rewards, start=1)]


FLAT: list[float | None] = [20.0] * 10
RISING: list[float | None] = [10.0 * n for n in range(1, 11)]  # 5 a second
FALLING: list[float | None] = [100.0 - n for n in range(10)]


@pytest.mark.parametrize(
    ("stop", "rewards", "fraction", "eta_s"),
    [
        (Stop(timesteps=40_000), FLAT, 0.25, 60.0),
        (Stop(timesteps=10_000), FLAT, 1.0, 0.0),
        (Stop(timesteps=2_000), FLAT, 1.0, 0.0),
        (Stop(timesteps=4_000), FLAT[:1], 0.25, 6.0),  # one point: the rate since the beginning
        (Stop(iterations=15), FLAT, 10 / 15, 10.0),
        (Stop(wall_clock_s=50.0), FLAT, 0.4, 30.0),
        (Stop(wall_clock_s=10.0), FLAT, 1.0, 0.0),
        (Stop(episode_reward=200.0), RISING, 90 / 190, 20.0),
        (Stop(episode_reward=90.0), RISING, 1.0, 0.0),
        (Stop(episode_reward=200.0), FLAT, 0.0, None),
        (Stop(episode_reward=200.0), FALLING, 0.0, None),
        (Stop(episode_reward=200.0), RISING[:4], 30 / 190, None),  # too few to call it a trend
        (Stop(episode_reward=200.0), [None] * 10, 0.0, None),
        (Stop(episode_reward=200.0), [None] * 5 + RISING[:5], 40 / 190, 30.0),
        (Stop(episode_reward=-100.0), [-500.0 + 20 * n for n in range(10)], 180 / 400, 22.0),
        (Stop(episode_reward=0.0), RISING, 1.0, 0.0),
    ],
)
def test_estimate_of_one_condition(
    stop: Stop, rewards: list[float | None], fraction: float, eta_s: float | None
) -> None:
    [estimate] = estimates(stop, run(rewards))
    assert estimate.fraction == pytest.approx(fraction)
    assert estimate.eta_s == (None if eta_s is None else pytest.approx(eta_s))


def test_the_way_to_a_reward_begins_at_the_first_reward_of_the_run() -> None:
    [estimate] = estimates(Stop(episode_reward=200.0), run(RISING), reward_at_start=0.0)
    assert estimate.fraction == pytest.approx(0.5)


def test_without_points_there_is_no_estimate() -> None:
    assert estimates(Stop(timesteps=5), []) == []


def test_a_clock_that_stands_still_gives_no_estimate() -> None:
    [estimate] = estimates(Stop(timesteps=50_000), run(FLAT, seconds_each=0.0))
    assert estimate.eta_s is None
    [estimate] = estimates(Stop(episode_reward=500.0), run(RISING, seconds_each=0.0))
    assert estimate.eta_s is None


@pytest.mark.parametrize(
    ("stop", "rewards", "condition"),
    [
        (Stop(timesteps=100_000, episode_reward=120.0), RISING, "episode reward 120"),
        (Stop(timesteps=12_000, episode_reward=1000.0), RISING, "12,000 timesteps"),
        (Stop(timesteps=100_000, episode_reward=120.0), FLAT, "100,000 timesteps"),
        (Stop(timesteps=100_000, wall_clock_s=25.0), FLAT, "wall clock 25 s"),
        (Stop(iterations=11, wall_clock_s=25.0), FLAT, "11 iterations"),
        (Stop(episode_reward=120.0), FLAT, "episode reward 120"),
    ],
)
def test_the_soonest_condition_is_shown(stop: Stop, rewards: list[float | None], condition: str) -> None:
    soonest = nearest(estimates(stop, run(rewards)))
    assert soonest is not None
    assert soonest.condition == condition


def test_nearest_of_nothing_is_nothing() -> None:
    assert nearest([]) is None
    assert nearest([StopEstimate("a", 0.1, None), StopEstimate("b", 0.2, None)]) == StopEstimate("b", 0.2, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (3900, "1 h 05 min"),
        (47 * 3600, "47 h 00 min"),
        (51 * 3600, "2 d 3 h"),
        (1e9, "11574 d 2 h"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def make_result(iteration: int, **changes: Any) -> IterationResult:
    values: dict[str, Any] = {
        "iteration": iteration,
        "timesteps": 4000 * iteration,
        "timesteps_this_iteration": 4000,
        "episodes": 30 * iteration,
        "episode_reward_mean": 10.0 * iteration,
        "episode_reward_min": 9.0,
        "episode_reward_max": 20.0 * iteration,
        "timesteps_per_s": 8123.4,
        "sample_time_s": 0.2,
        "learn_time_s": 0.28,
        "wait_time_s": 0.02,
        "elapsed_s": 0.5 * iteration,
        "evaluators": 2,
    }
    return IterationResult(**(values | changes))


def log_of(updates: list[tuple[float, IterationResult]], stop: Stop) -> list[str]:
    """What a log file holds after `updates` of (seconds since the last one, result)."""
    clock, file = Clock(), io.StringIO()
    progress = Progress("cartpole-ppo", stop, Console(file=file, width=40), clock=clock)
    progress.start()
    for passed_s, result in updates:
        clock.now_s += passed_s
        progress.update(result)
    progress.stop()
    progress.stop()
    return file.getvalue().splitlines()


def test_a_log_gets_a_line_at_most_every_two_seconds_and_the_last() -> None:
    lines = log_of([(0.5, make_result(n)) for n in range(1, 12)], Stop(timesteps=100_000))
    assert [line.split()[1] for line in lines] == ["iteration=1", "iteration=5", "iteration=9", "iteration=11"]


def test_slow_iterations_get_a_line_each_and_the_last_only_one() -> None:
    assert len(log_of([(10.0, make_result(n)) for n in range(1, 5)], Stop(timesteps=100_000))) == 4


def test_a_log_line_is_one_line_of_key_and_value() -> None:
    evaluation = {"episode_reward_mean": 33.0, "episodes": 10, "timesteps": 8000}
    [line] = log_of([(0.0, make_result(3, evaluation=evaluation))], Stop(timesteps=120_000))
    fields = dict(field.split("=") for field in line.split(" "))
    assert fields == {
        "job": "cartpole-ppo",
        "iteration": "3",
        "timesteps": "12000",
        "timesteps_per_s": "8123",
        "episodes": "90",
        "episode_reward_mean": "30.0",
        "evaluation_reward_mean": "33.0",
        "sampling": "40%",
        "learning": "56%",
        "waiting": "4%",
        "progress": "10%",
        "eta_s": "14",
    }


def screen_of(results: list[IterationResult], stop: Stop, width: int = 100) -> str:
    """What is left on a terminal after `results`, as plain text."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=30, record=True)
    clock = Clock()
    progress = Progress("cartpole-ppo", stop, console, clock=clock)
    progress.start()
    progress.message("2 evaluators [of 4] asked for")
    for result in results:
        clock.now_s += 0.5
        progress.update(result)
    progress.stop()
    return console.export_text()


def test_a_terminal_shows_what_a_user_watches() -> None:
    evaluation = {"episode_reward_mean": 333.25, "episodes": 10, "timesteps": 80_000}
    results = [make_result(n, evaluation=evaluation) for n in range(1, 31)]
    screen = screen_of(results, Stop(timesteps=200_000, episode_reward=475.0))
    for text in (
        "2 evaluators [of 4] asked for",
        "cartpole-ppo  iteration 30  2 evaluators  15 s",
        "120,000  8,123 timesteps/s",
        "300.0 mean, 9.0 to 600.0, goal 475",
        "333.2 mean of 10 episodes at 80,000 timesteps",
        "40 % sampling, 56 % learning, 4 % waiting",
        "learning-bound: 56 % of the time in SGD; more evaluators will not help",
        "62 % to episode reward 475",
        "ETA 9 s",
    ):
        assert text in screen, f"{text!r} is not in\n{screen}"


def test_bar_and_eta_name_their_conditions_when_these_differ() -> None:
    """The reward is nearly there and hardly rises any more: the clock will run out first."""
    results = [make_result(n, episode_reward_mean=min(10.0 * n, 285.0 + 0.5 * n)) for n in range(1, 61)]
    screen = screen_of(results, Stop(episode_reward=330.0, wall_clock_s=40.0))
    assert "95 % to episode reward 330  ETA 10 s (to wall clock 40 s)" in screen


def test_before_the_first_iteration_and_the_first_episode_nothing_is_made_up() -> None:
    assert "cartpole-ppo" in screen_of([], Stop(timesteps=10))
    screen = screen_of(
        [make_result(1, episode_reward_mean=None, episode_reward_min=None, episode_reward_max=None)],
        Stop(episode_reward=475.0),
    )
    assert "no episode finished yet" in screen
    assert "ETA not known yet" in screen


def test_environment_failures_are_in_the_headline() -> None:
    assert "3 environment failures" in screen_of([make_result(1, environment_failures=3)], Stop(timesteps=10_000))


@pytest.mark.parametrize("width", [30, 60, 200])
def test_any_width_of_terminal_is_served(width: int) -> None:
    assert "iteration 1" in screen_of([make_result(1)], Stop(timesteps=10_000), width=width)
