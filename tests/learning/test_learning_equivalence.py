"""The same manifest and seeds under each optimizer that an algorithm allows: curves differ by less than seeds do.

What is compared, and why it would show a broken optimizer, is in equivalence.py. Each of these was broken by hand once,
on 8 to 16 of these seeds, and ended up this far from the right one:

- gradients applied twice (A3C), or twice as many gradient steps: PPO 5.9, PPO with minibatches 2.3, A3C 3.5 under
  AsyncGradients and 2.7 under ShardedParameterServer, IMPALA 2.2, DQN 2.4;
- weights that are far too old: A3C's after 50 gradients only 3.2, IMPALA's after 32 updates 4.2;
- advantages that are not normalised: PPO with minibatches 10.1.

Evaluators of AsyncReplay with old weights pass: DQN learns from what other policies did all the same.
"""

from itertools import combinations

import pytest

from tests.learning.equivalence import CASES, RANDOM_REWARD, areas, distance, spread

pytestmark = pytest.mark.timeout(600)

SEEDS = range(16)
# Equal optimizers are this far apart by chance in less than 1 % of such comparisons: the distance of two means of 16
# has a standard deviation of sqrt(2 / 16) = 0.35.
LARGEST_DISTANCE = 1.0


@pytest.mark.parametrize("name", list(CASES))
def test_every_optimizer_learns_alike(tmp_path, name):
    case = CASES[name]
    found = {optimizer: areas(case, optimizer, SEEDS, tmp_path) for optimizer in case.optimizers}
    for optimizer, values in found.items():
        print(f"{name} {optimizer}: {values.mean():.1f} +- {values.std(ddof=1):.1f}")
        assert values.mean() > 2 * RANDOM_REWARD, f"{optimizer} has learned too little to be compared"
    for one, other in combinations(found, 2):
        assert spread(found[one], found[other]) < 0.4 * found[one].mean(), "too wide to tell right from wrong"
        apart = distance(found[one], found[other])
        assert apart < LARGEST_DISTANCE, f"{name}: {one} and {other} are {apart:.2f} spreads apart"


def test_every_algorithm_with_several_optimizers_is_compared():
    from rlcore.api.algorithms import ALGORITHMS

    several = {name for name in ("PPO", "A3C", "DQN", "IMPALA") if len(ALGORITHMS[name].optimizers) > 1}
    assert several == {case.algorithm for case in CASES.values()}
