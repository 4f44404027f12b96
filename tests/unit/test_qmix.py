"""QMIX's graph: monotonic mixing, targets against hand-worked numbers, agents that are gone, masks, recurrence."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rlcore.api import ALGORITHMS, ModelSpec
from rlcore.env.joint import AgentGroup, JointBox, JointLayout
from rlcore.errors import UnsupportedError
from rlcore.policy.joint import ACTED, GOES_ON
from rlcore.policy.mixer import Mixer, picked
from rlcore.policy.qmix import QMIXPolicyGraph
from rlcore.sample_batch import (
    ACTION_MASK,
    ACTIONS,
    DISCOUNTS,
    NEXT_ACTION_MASK,
    NEXT_OBSERVATIONS,
    OBSERVATIONS,
    REWARDS,
    Fragment,
    SampleBatch,
)
from tests.runs import assert_equal_trees

LAYOUT = JointLayout(
    (
        AgentGroup("team", ("a", "b"), 2, gym.spaces.Discrete(3), 1),
        AgentGroup("boss", ("c",), 1, gym.spaces.Discrete(2), 1),
    ),
    state_size=2,
)
SPACES = (JointBox(LAYOUT), gym.spaces.Tuple([gym.spaces.Discrete(n) for n in (3, 3, 2)]))
WIDTH = 7


def graph(lstm: int | None = None, **config: Any) -> QMIXPolicyGraph:
    made = ALGORITHMS["QMIX"].config.model_validate({"gamma": 0.5, **config})
    return QMIXPolicyGraph(*SPACES, made, ModelSpec(hiddens=[8], lstm_size=lstm), seed=1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(-100, 100), st.integers(1, 6))
def test_the_teams_value_never_falls_with_an_agents_in_any_state(seed: int, scale: float, agents: int) -> None:
    torch.manual_seed(seed)
    mixer = Mixer(5, agents, embedding=8, hidden=16)
    for parameter in mixer.parameters():
        nn.init.normal_(parameter, std=2.0)
    values = (torch.randn(20, agents) * scale).requires_grad_()
    mixer(values, torch.randn(20, 5) * scale).sum().backward()
    assert values.grad is not None
    assert (values.grad >= 0).all()


def test_mixing_is_the_papers_formula() -> None:
    mixer = Mixer(1, 2, embedding=2, hidden=4)
    for parameter in mixer.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        mixer.first[2].bias.copy_(torch.tensor([1.0, -2.0, 3.0, 4.0]))  # agent by agent; the sign goes
        mixer.first_bias.bias.copy_(torch.tensor([0.5, -20.0]))
        mixer.last[2].bias.copy_(torch.tensor([-2.0, 1.0]))
        mixer.value[2].bias.fill_(7.0)
    total = mixer(torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    first, second = 1 * 1 + 3 * 2 + 0.5, 2 * 1 + 4 * 2 - 20
    assert total.item() == pytest.approx(2 * first + 1 * (np.exp(second) - 1) + 7)


def test_picked_values_are_those_of_each_agents_action() -> None:
    values = [torch.arange(6.0).reshape(1, 2, 3), torch.tensor([[[10.0, 20.0]]])]
    assert picked(values, torch.tensor([[2, 0, 1]])).tolist() == [[2, 3, 20]]


class SumMixer(nn.Module):
    """The plain sum of the values and of the state."""

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        return values.sum(-1) + states.sum(-1)


class TableNetwork(nn.Module):
    """Each agent's values are its observation's first entry times a table."""

    def __init__(self, *table: float) -> None:
        super().__init__()
        self.table = torch.tensor(table)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations[:, :1] * self.table


def known(policy: QMIXPolicyGraph) -> QMIXPolicyGraph:
    """Online the last action is best; the target's values are other ones."""
    online, target = policy.model.online, policy.model.target
    online.agents = nn.ModuleList([TableNetwork(1.0, 2.0, 3.0), TableNetwork(1.0, 2.0)])
    target.agents = nn.ModuleList([TableNetwork(50.0, 20.0, 10.0), TableNetwork(70.0, 30.0)])
    online.mixer, target.mixer = SumMixer(), SumMixer()
    return policy


def batch(**columns: Any) -> dict[str, torch.Tensor]:
    found = {
        # a sees 1, b 2, the boss 3; the state sums to 100.
        OBSERVATIONS: [[1.0, 0, 2, 0, 3, 60, 40]],
        ACTIONS: [[0, 1, 1]],
        REWARDS: [5.0],
        DISCOUNTS: [0.5],
        NEXT_OBSERVATIONS: [[1.0, 0, 1, 0, 1, 0, 1000]],
        ACTED: [[True, True, True]],
        GOES_ON: [[True, True, True]],
        **columns,
    }
    arrays = {name: torch.as_tensor(np.asarray(column)) for name, column in found.items()}
    return {name: a.float() if a.is_floating_point() else a for name, a in arrays.items()}


def errors(policy: QMIXPolicyGraph, columns: dict[str, torch.Tensor]) -> tuple[float, float]:
    value, td = policy.td_errors(columns)
    return value.item(), value.item() - td.item()


def test_double_targets_take_the_online_networks_choice_and_the_targets_value() -> None:
    value, target = errors(known(graph(clipped_double=False)), batch())
    assert value == 1 * 1 + 2 * 2 + 3 * 2 + 100
    assert target == 5 + 0.5 * (10 + 10 + 30 + 1000)


def test_clipped_targets_are_the_smaller_of_both_networks_estimates() -> None:
    # The online network's choice is worth 3 + 3 + 2 to itself, 10 + 10 + 30 to the target.
    policy = known(graph())
    assert errors(policy, batch())[1] == 5 + 0.5 * (3 + 3 + 2 + 1000)
    policy.model.target.agents = nn.ModuleList([TableNetwork(5.0, 2.0, 1.0), TableNetwork(7.0, 1.0)])
    assert errors(policy, batch())[1] == 5 + 0.5 * (1 + 1 + 1 + 1000)


def test_single_targets_take_the_targets_own_choice() -> None:
    _, target = errors(known(graph(double=False)), batch())
    assert target == 5 + 0.5 * (50 + 50 + 70 + 1000)


def test_the_targets_choice_is_an_allowed_one() -> None:
    mask = [[True, True, False, False, True, False, True, False]]
    _, target = errors(known(graph(clipped_double=False)), batch(**{NEXT_ACTION_MASK: mask}))
    assert target == 5 + 0.5 * (20 + 20 + 70 + 1000)


def test_who_is_gone_is_worth_nothing() -> None:
    columns = batch(**{ACTED: [[True, False, True]], GOES_ON: [[True, False, False]]})
    value, target = errors(known(graph(clipped_double=False)), columns)
    assert value == 1 * 1 + 3 * 2 + 100
    assert target == 5 + 0.5 * (10 + 1000)


def test_a_terminated_step_has_no_future() -> None:
    _, target = errors(known(graph(clipped_double=False)), batch(**{DISCOUNTS: [0.0]}))
    assert target == 5


def fragment(length: int, **changes: Any) -> Fragment:
    shape = (length, 1)
    agents = {
        "rewards": np.ones((*shape, 3), np.float32),
        "acted": np.ones((*shape, 3), bool),
        "goes_on": np.ones((*shape, 3), bool),
    }
    agents["goes_on"][1:, :, 0] = agents["acted"][2:, :, 0] = False  # a leaves with step 1
    return Fragment(
        observations=np.arange((length + 1) * WIDTH, dtype=np.float32).reshape(length + 1, 1, WIDTH),
        actions=np.zeros((*shape, 3), np.int64),
        rewards=np.arange(1, length + 1, dtype=np.float32)[:, None],
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        valid=np.ones(shape, bool),
        agents=agents,
        **changes,
    )


def test_rows_of_n_steps_say_who_goes_on_after_the_last_of_them() -> None:
    rows = graph(nStep=2).postprocess(fragment(4))
    assert rows[REWARDS][:3].tolist() == [1 + 0.5 * 2, 2 + 0.5 * 3, 3 + 0.5 * 4]
    assert rows[DISCOUNTS][:3].tolist() == [0.25] * 3
    assert rows[GOES_ON][:, 0].tolist() == [False] * 4
    assert rows[ACTED][:, 0].tolist() == [True, True, False, False]
    assert graph(nStep=1).postprocess(fragment(4))[GOES_ON][:, 0].tolist() == [True, False, False, False]


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_masked_actions_are_never_taken(epsilon: float) -> None:
    policy = graph(epsilonInitial=epsilon, epsilonFinal=epsilon)
    mask = np.random.default_rng(0).random((400, 8)) < 0.5
    mask[:, [0, 3, 6]] |= True
    seen = np.random.default_rng(1).standard_normal((400, WIDTH)).astype(np.float32)
    actions, _, _ = policy.act(seen, [], noise=policy.draw_noise(1, 400)[0], action_mask=mask)
    for agent, begin in enumerate((0, 3, 6)):
        assert mask[np.arange(400), begin + actions[:, agent]].all()
    if epsilon:
        assert len(np.unique(actions[:, 0])) == 3


def test_agents_act_by_their_own_observation_and_share_a_network_only_within_a_policy() -> None:
    policy = graph()
    seen = np.random.default_rng(0).standard_normal((1, WIDTH)).astype(np.float32)
    before, _ = policy.action_values(seen, [])
    seen[0, 2:] += 1.0
    after, _ = policy.action_values(seen, [])
    np.testing.assert_array_equal(before[0][0, 0], after[0][0, 0])
    assert (before[0][0, 1] != after[0][0, 1]).any()
    assert len(policy.model.online.agents) == 2


def test_recurrent_agents_unroll_to_what_they_acted_by() -> None:
    policy, length, slots = graph(lstm=4), 5, 3
    seen = np.random.default_rng(0).standard_normal((length, slots, WIDTH)).astype(np.float32)
    state = policy.initial_state(slots)
    assert [part.shape for part in state] == [(slots, 12), (slots, 12)]
    stepped = []
    for t in range(length):
        if t == 3:
            for part in state:
                part[1] = 0.0  # a new episode in slot 1
        values, state = policy.action_values(seen[t], state)
        stepped.append(values)
    starts = torch.zeros(length, slots, dtype=torch.bool)
    starts[3, 1] = True
    with torch.no_grad():
        begin = [torch.from_numpy(part) for part in policy.initial_state(slots)]
        unrolled = policy.model.online.unroll(torch.from_numpy(seen), begin, starts)
    for group in range(2):
        together = np.stack([values[group] for values in stepped])
        np.testing.assert_allclose(unrolled[group].numpy(), together, atol=1e-5)


def recurrent_batch(policy: QMIXPolicyGraph) -> SampleBatch:
    states = [np.zeros((2, 1, 12), np.float32) for _ in range(2)]
    return policy.postprocess(fragment(8, states=states, state_every=4))


def test_recurrent_targets_are_those_of_the_next_row() -> None:
    policy = graph(lstm=4)
    loaded = policy.minibatch(policy.load(recurrent_batch(policy)), slice(None))
    value, td = policy.unrolled_td_errors(loaded)
    assert value.shape == (8,)
    online = policy.model.online
    with torch.no_grad():
        begin = [loaded["state_in_0"], loaded["state_in_1"]]
        values = online.unroll(loaded[OBSERVATIONS], begin, loaded["starts"])
        best = picked(values, policy.best_actions(values, None))
        # The target network still equals the online one, and the best action's value is the maximum.
        t, s = 2, 0
        after = online.team_value(best[t + 1, s], loaded[GOES_ON][t, s], loaded[OBSERVATIONS][t + 1, s])
        taken = online.team_value(
            picked(values, loaded[ACTIONS])[t, s], loaded[ACTED][t, s], loaded[OBSERVATIONS][t, s]
        )
        expected = taken - (loaded[REWARDS][t, s] + 0.5 * after)
    assert td.reshape(4, 2)[t, s].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("lstm", [None, 4])
def test_learning_on_one_batch_lowers_the_loss_and_saving_is_exact(lstm: int | None) -> None:
    policy = graph(lstm, learningRate=1e-2, targetUpdateInterval=10**6)
    rows = policy.postprocess(fragment(6)) if lstm is None else recurrent_batch(policy)
    losses = []
    for _ in range(40):
        gradient, stats = policy.gradients(rows)
        policy.apply_gradients(gradient)
        losses.append(stats["loss"])
    assert losses[-1] < 0.5 * losses[0]
    twin = graph(lstm, learningRate=1e-2, targetUpdateInterval=10**6)
    twin.set_state(policy.get_state())
    for each in (policy, twin):
        each.apply_gradients(each.gradients(rows)[0])
    assert_equal_trees(twin.get_state(), policy.get_state())


def test_masks_are_columns_of_the_rows() -> None:
    mask = np.ones((5, 1, 8), bool)
    mask[2:, :, 0] = False
    rows = graph().postprocess(fragment(4, action_mask=mask))
    assert rows[ACTION_MASK][:, 0].tolist() == [True, True, False, False]
    assert rows[NEXT_ACTION_MASK][:, 0].tolist() == [True, False, False, False]


def test_action_spaces_that_it_does_not_support_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="QMIX supports Discrete"):
        QMIXPolicyGraph.require_action_space(gym.spaces.Tuple([gym.spaces.Box(0, 1, (2,))]), "QMIX")
