"""MADDPG's graph: targets and losses against hand-worked numbers, agents that are gone, masks, exact saving."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlcore.api import ALGORITHMS, ModelSpec
from rlcore.env.joint import AgentGroup, JointBox, JointLayout
from rlcore.errors import UnsupportedError
from rlcore.policy.joint import ACTED, AGENT_REWARDS, GOES_ON
from rlcore.policy.maddpg import MADDPGPolicyGraph
from rlcore.sample_batch import ACTION_MASK, ACTIONS, NEXT_ACTION_MASK, NEXT_OBSERVATIONS, OBSERVATIONS, SampleBatch
from tests.runs import assert_equal_trees

gym = pytest.importorskip("gymnasium")

BOX = gym.spaces.Box(0, 2, (2,), np.float32)
# Two agents that share a policy and choose among three, and one with a policy of its own and two dimensions.
LAYOUT = JointLayout(
    (AgentGroup("team", ("a", "b"), 2, gym.spaces.Discrete(3), 1), AgentGroup("boss", ("c",), 1, BOX, 2))
)
SPACES = (JointBox(LAYOUT), gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Discrete(3), BOX]))


def graph(**config: Any) -> MADDPGPolicyGraph:
    made = ALGORITHMS["MADDPG"].config.model_validate({"gamma": 0.5, "actionPenalty": 0, **config})
    return MADDPGPolicyGraph(*SPACES, made, ModelSpec(hiddens=[4]), seed=1)


def batch(rows: int = 1, **columns: Any) -> dict[str, torch.Tensor]:
    found = {
        OBSERVATIONS: np.arange(rows * 5, dtype=np.float32).reshape(rows, 5),
        ACTIONS: np.tile(np.float32([2, 0, 2.0, 0.0]), (rows, 1)),
        NEXT_OBSERVATIONS: np.ones((rows, 5), np.float32),
        AGENT_REWARDS: np.tile(np.float32([1, 2, -3]), (rows, 1)),
        ACTED: np.ones((rows, 3), bool),
        GOES_ON: np.ones((rows, 3), bool),
        **columns,
    }
    return {name: torch.as_tensor(np.asarray(column)) for name, column in found.items()}


class SumCritic(nn.Module):
    """Values each agent by the sum of the joint action, times its factor."""

    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.factors = torch.tensor(factors)

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return actions.sum(-1) * self.factors


class FixedActor(nn.Module):
    """The same outputs whatever is observed."""

    def __init__(self, *outputs: float) -> None:
        super().__init__()
        self.outputs = torch.tensor(outputs)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.outputs.expand(*observations.shape[:-1], -1)


def with_known_target(policy: MADDPGPolicyGraph) -> MADDPGPolicyGraph:
    target = policy.model.target
    target.actor = nn.ModuleList([FixedActor(0.0, 0.0, 0.0), FixedActor(0.5, -0.25)])
    target.critics = nn.ModuleList([SumCritic(10.0, 20.0), SumCritic(1.0)])
    return policy


def test_actions_are_one_hot_or_between_minus_one_and_one() -> None:
    joint = graph().joint_actions(batch())
    assert joint.tolist() == [[0, 0, 1, 1, 0, 0, 1, -1]]


def test_each_agents_target_has_its_own_reward_and_all_agents_next_actions() -> None:
    targets = with_known_target(graph()).targets(batch())
    # Two one-hot actions sum to 2 whatever is drawn; tanh of the third agent's.
    total = 2 + np.tanh(0.5) + np.tanh(-0.25)
    expected = [1 + 0.5 * 10 * total, 2 + 0.5 * 20 * total, -3 + 0.5 * total]
    assert targets[:, 0].tolist() == pytest.approx(expected, rel=1e-5)


def test_who_is_gone_neither_acts_nor_is_worth_anything_in_the_target() -> None:
    targets = with_known_target(graph()).targets(batch(**{GOES_ON: [[True, False, True]]}))
    total = 1 + np.tanh(0.5) + np.tanh(-0.25)
    assert targets[:, 0].tolist() == pytest.approx([1 + 0.5 * 10 * total, 2, -3 + 0.5 * total], rel=1e-5)


def test_who_was_not_there_has_no_td_error_and_no_action() -> None:
    policy = with_known_target(graph())
    absent = batch(**{ACTED: [[True, False, True]]})
    assert policy.joint_actions(absent)[0, 3:6].tolist() == [0, 0, 0]
    values = policy.critic_values(absent)
    td = policy.td_errors(values, policy.targets(absent), absent)
    assert td[1].item() == 0
    assert td[0].item() == pytest.approx((values[0] - policy.targets(absent)[0]).item(), rel=1e-5)


def test_the_targets_actions_are_allowed_ones() -> None:
    policy = graph()
    policy.model.target.critics = nn.ModuleList([_ChoiceCritic(2), _ChoiceCritic(1)])
    mask = np.array([[False, False, True, True, False, False]] * 50)
    targets = policy.targets(batch(50, **{NEXT_ACTION_MASK: mask}))
    # The critic counts a's third choice by 1 and b's first by 10: both are the only ones allowed.
    assert targets[0].tolist() == pytest.approx([1 + 0.5 * 11] * 50)


class _ChoiceCritic(nn.Module):
    def __init__(self, agents: int) -> None:
        super().__init__()
        self.agents = agents

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return actions[..., 2] + 10 * actions[..., 3]


def test_an_actor_climbs_its_own_critic_and_moves_its_own_action_alone() -> None:
    policy = graph()
    policy.model.online.critics = nn.ModuleList([_NoCritic(2), _OwnCritic()])
    loss, _ = policy.actor_loss(batch(4))
    gradients = torch.autograd.grad(loss, list(policy.model.online.actor.parameters()), allow_unused=True)
    names = [name for name, _ in policy.model.online.actor.named_parameters()]
    moved = {name for name, g in zip(names, gradients, strict=True) if g is not None and g.abs().sum() > 0}
    assert moved
    assert all(name.startswith("1.") for name in moved), "only the boss's critic says anything"
    bias = gradients[names.index("1.head.bias")]
    assert bias[0] < 0, "uphill, for what minimises a loss"
    assert bias[1] == 0


def test_no_agents_action_is_moved_by_anothers_critic() -> None:
    policy = graph()
    policy.model.online.critics = nn.ModuleList([_EnviousCritic(), _OwnCritic()])
    loss, _ = policy.actor_loss(batch(4))
    gradients = torch.autograd.grad(loss, list(policy.model.online.actor[0].parameters()), allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


class _EnviousCritic(nn.Module):
    """a's worth is what b does, and b's is what a does."""

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.stack([actions[:, 0, 3:6].square().sum(-1), actions[:, 1, 0:3].square().sum(-1)], 1)


class _NoCritic(nn.Module):
    def __init__(self, agents: int) -> None:
        super().__init__()
        self.agents = agents

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return actions[..., 0] * 0


class _OwnCritic(nn.Module):
    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return actions[..., 6] + 100 * actions[..., 0]


def test_gradients_pass_through_discrete_actions_straight() -> None:
    policy = graph()
    out = torch.zeros(200, 2, 3, requires_grad=True)
    chosen = policy._chosen(0, out, None, differentiable=True)
    assert set(chosen.detach().round(decimals=5).unique().tolist()) == {0.0, 1.0}
    np.testing.assert_allclose(chosen.sum(-1).detach().numpy(), 1.0, atol=1e-5)
    chosen[..., 0].sum().backward()
    assert out.grad is not None
    assert (out.grad[..., 0] > 0).all()
    assert out.grad.sum().item() == pytest.approx(0, abs=1e-3), "a softmax's"


def test_discrete_actions_are_drawn_by_their_probabilities() -> None:
    policy = graph(randomTimesteps=0)
    policy.model.online.actor[0] = FixedActor(*np.log([0.7, 0.2, 0.1]).tolist())
    rows = 4000
    actions, _, _ = policy.act(np.zeros((rows, 5), np.float32), [], noise=policy.draw_noise(1, rows)[0])
    shares = np.bincount(actions[:, 0].astype(int), minlength=3) / rows
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    best, _, _ = policy.act(np.zeros((1, 5), np.float32), [], noise=None)
    assert best[0, :2].tolist() == [0, 0]


@pytest.mark.parametrize("timesteps", [0, 10**6])
def test_masked_actions_are_never_taken(timesteps: int) -> None:
    policy = graph()
    policy.on_global_timesteps(timesteps)
    mask = np.random.default_rng(0).random((500, 6)) < 0.5
    mask[:, [1, 4]] |= ~mask.reshape(500, 2, 3).any(-1)
    for noise in (policy.draw_noise(1, 500)[0], None):
        actions, _, _ = policy.act(np.zeros((500, 5), np.float32), [], noise=noise, action_mask=mask)
        for agent in range(2):
            assert mask.reshape(500, 2, 3)[np.arange(500), agent, actions[:, agent].astype(int)].all()
        assert ((actions[:, 2:] >= 0) & (actions[:, 2:] <= 2)).all()


def test_actors_see_their_own_part_alone() -> None:
    policy = graph()
    seen = np.random.default_rng(0).standard_normal((1, 5)).astype(np.float32)
    before = policy.actor_parts(seen)
    seen[0, 2:] += 1.0  # what b and the boss see
    after = policy.actor_parts(seen)
    np.testing.assert_array_equal(before[0][0, 0], after[0][0, 0])
    assert (before[0][0, 1] != after[0][0, 1]).any()
    assert (before[1] != after[1]).any()


def test_learning_on_one_batch_lowers_the_critics_loss_and_saving_is_exact() -> None:
    policy, columns = graph(learningRate=1e-2), batch(32)
    columns[ACTION_MASK] = columns[NEXT_ACTION_MASK] = torch.ones(32, 6, dtype=torch.bool)
    rows = SampleBatch({name: column.numpy() for name, column in columns.items()})
    losses = []
    for _ in range(30):
        gradient, stats = policy.gradients(rows)
        policy.apply_gradients(gradient)
        losses.append(stats["critic_loss"])
    assert losses[-1] < 0.5 * losses[0]
    twin = graph(learningRate=1e-2)
    twin.set_state(policy.get_state())
    assert_equal_trees(twin.get_state(), policy.get_state())
    for each in (policy, twin):
        each.apply_gradients(each.gradients(rows)[0])
    assert_equal_trees(twin.get_state(), policy.get_state())


def test_action_spaces_that_it_does_not_support_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="MADDPG supports Discrete and Box"):
        MADDPGPolicyGraph.require_action_space(gym.spaces.Tuple([gym.spaces.MultiBinary(2)]), "MADDPG")
