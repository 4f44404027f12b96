"""BC and MARWIL: losses by hand, the optimizer that reads records, and `rlcore record`."""

import json
import math

import numpy as np
import pytest
import torch

from rlcore.cli.main import run_cli
from rlcore.driver.build import build, probe_spaces
from rlcore.driver.plan import Machine, make_plan
from rlcore.errors import UnsupportedError, UserError
from rlcore.offline.records import read_info
from rlcore.sample_batch import DEFAULT_POLICY
from tests.jobs import make_evaluator_config, make_job
from tests.runs import assert_user_error, metrics, write_manifest


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The run directory of a barely trained CartPole policy, and records of it."""
    root = tmp_path_factory.mktemp("trained")
    manifest = write_manifest(root, stop={"timesteps": 1000})
    assert run_cli(["run", str(manifest), "--in-process", "--runs", str(root / "runs")]) == 0
    folder = root / "records"
    assert run_cli(["record", str(root / "runs" / "job"), "--timesteps", "3000", "--out", str(folder)]) == 0
    return root / "runs" / "job", folder


@pytest.fixture
def start(trained):
    """Builds the optimizer of a job that learns from the records."""

    def _start(algorithm="BC", *, config=None, **spec):
        fields = {"input": str(trained[1]), "trainBatchSize": 512, "minibatchSize": 128, **(config or {})}
        job = make_job(algorithm=algorithm, config=fields, **spec)
        return build(job.spec, make_plan(job.spec, Machine(cores=2, gpus=0)), seed=0, use_ray=False).optimizer

    return _start


def policy(algorithm: str, **config):
    made = make_evaluator_config(algorithm=algorithm, config=config)
    return made.build_policy(DEFAULT_POLICY, probe_spaces(made)[DEFAULT_POLICY])


def weights(optimizer) -> np.ndarray:
    return optimizer.learner.get_weights()[DEFAULT_POLICY]


# losses --------------------------------------------------------------------------


def test_bc_is_the_mean_negative_log_probability():
    batch = {"actions": torch.tensor([0, 1])}
    loss, stats = policy("BC").loss(torch.tensor([[0.0, 0.0], [math.log(3), 0.0]]), torch.zeros(2), batch)
    assert loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2, rel=1e-5)
    assert stats[0].item() == pytest.approx(loss.item())


def test_marwil_weighs_by_the_exponential_of_the_normalised_advantage():
    graph = policy("MARWIL", beta=0.5, valueLossCoefficient=2.0, advantageNormRate=0.1)
    graph.squared_norm[0] = 9.0
    batch = {"actions": torch.tensor([0, 1]), "value_targets": torch.tensor([5.0, 0.0])}
    inputs, values = torch.zeros(2, 2), torch.tensor([1.0, 2.0])
    loss, stats = graph.loss(inputs, values, batch)
    # advantages 4 and -2, their mean square 10: c² = 9 + 0.1 (10 - 9) = 9.1
    norm = math.sqrt(9.1)
    assert graph.squared_norm[0] == pytest.approx(9.1)
    weight = [math.exp(0.5 * 4 / norm), math.exp(0.5 * -2 / norm)]
    policy_loss = math.log(2) * sum(weight) / 2
    assert loss.item() == pytest.approx(policy_loss + 2.0 * 0.5 * 10, rel=1e-5)
    named = graph.named_stats(stats)
    assert named["mean_weight"] == pytest.approx(sum(weight) / 2, rel=1e-5)
    assert named["advantage_norm"] == pytest.approx(norm, rel=1e-5)


def test_the_first_minibatch_sets_the_norm():
    graph = policy("MARWIL")
    graph.loss(torch.zeros(1, 2), torch.zeros(1), {"actions": torch.tensor([0]), "value_targets": torch.tensor([3.0])})
    assert graph.squared_norm[0] == pytest.approx(9.0)


def test_weights_pass_no_gradient_and_are_bounded():
    graph = policy("MARWIL", beta=100.0, largestWeight=20.0, valueLossCoefficient=0.0)
    values = torch.tensor([0.0], requires_grad=True)
    batch = {"actions": torch.tensor([0]), "value_targets": torch.tensor([3.0])}
    loss, stats = graph.loss(torch.zeros(1, 2), values, batch)
    loss.backward()
    assert values.grad.item() == 0
    assert graph.named_stats(stats)["mean_weight"] == 20


def test_with_beta_0_marwil_clones_like_bc():
    inputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    batch = {"actions": torch.tensor([0, 1, 1, 0, 1]), "value_targets": torch.arange(5.0)}
    cloned, _ = policy("BC").loss(inputs, torch.zeros(5), batch)
    weighed, _ = policy("MARWIL", beta=0.0, valueLossCoefficient=0.0).loss(inputs, torch.zeros(5), batch)
    assert weighed.item() == pytest.approx(cloned.item())


def test_targets_are_returns_and_the_value_of_what_was_cut_off(start):
    optimizer = start("MARWIL")
    batch = optimizer.dataset.batch(np.arange(50), with_returns=True)
    graph = optimizer.learner.policies[DEFAULT_POLICY]
    prepared, _ = graph.prepare(batch)
    expected = batch["returns"] + batch["discounts"] * graph.values(batch["final_observations"], [])
    np.testing.assert_allclose(prepared["value_targets"], expected, rtol=1e-5)
    assert set(prepared) == {"observations", "actions", "value_targets"}


# the optimizer --------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["BC", "MARWIL"])
def test_a_step_learns_from_records_and_steps_no_environment(start, algorithm):
    optimizer = start(algorithm)
    before = weights(optimizer)
    optimizer.step()
    progress = optimizer.collect_metrics()
    assert progress.timesteps_sampled == progress.timesteps_trained == 512
    assert progress.episodes == []
    assert optimizer.evaluators.indices == []
    assert not np.array_equal(before, weights(optimizer))


def test_an_epoch_reads_every_transition_once(start):
    optimizer = start()
    size = optimizer.dataset.size
    read = 0
    while read < size:
        optimizer.step()
        read = optimizer.timesteps_sampled
    assert read == size
    assert optimizer._epoch == 0
    optimizer.step()
    assert optimizer._epoch == 1


@pytest.mark.parametrize("algorithm", ["BC", "MARWIL"])
def test_a_restored_optimizer_goes_on_exactly(start, algorithm):
    config = {"observationFilter": "meanStd"}
    one, two = start(algorithm, config=config), start(algorithm, config=config)
    for _ in range(8):
        one.step()
    two.restore(one.save())
    for _ in range(3):
        one.step()
        two.step()
    np.testing.assert_array_equal(weights(one), weights(two))
    assert one.save()["epoch"] == two.save()["epoch"] > 0


def test_the_filter_knows_all_records_from_the_start(start):
    optimizer = start(config={"observationFilter": "meanStd"})
    (filter_,) = optimizer.filters.values()
    assert filter_.count == optimizer.dataset.size
    np.testing.assert_allclose(filter_.mean, optimizer.dataset.rows["observations"].mean(axis=0), rtol=1e-3, atol=1e-4)


def test_a_recurrent_model_is_refused(start):
    with pytest.raises(UnsupportedError, match="lstmSize: 4"):
        start(model={"lstmSize": 4})


def test_records_of_another_environment_are_refused_before_anything_is_started(start):
    with pytest.raises(UserError, match=r"holds observations Box\(4,\).*Pendulum-v1 has observations Box\(3,\)"):
        start(environment={"id": "Pendulum-v1"})


# the command line -----------------------------------------------------------------


def test_a_run_learns_from_records_and_is_evaluated_in_the_environment(tmp_path, trained, rlcore_run, capsys):
    spec = {
        "algorithm": "BC",
        "config": {"input": str(trained[1]), "trainBatchSize": 1000, "minibatchSize": 100},
        "stop": {"timesteps": 6000},
        "evaluation": {"every": 2, "episodes": 4},
    }
    run = rlcore_run(write_manifest(tmp_path, **spec))
    assert run.returncode == 0, run.stderr
    assert f"from {trained[1]}" in run.stdout
    lines = metrics(tmp_path / "runs" / "job")
    assert lines[-1]["evaluation"]["episodes"] == 4
    assert lines[-1]["episode_reward_mean"] == pytest.approx(lines[-1]["evaluation"]["episode_reward_mean"])
    assert run_cli(["eval", str(tmp_path / "runs" / "job"), "--episodes", "1"]) == 0


def test_a_run_without_input_or_with_another_folder_says_what_to_do(tmp_path, rlcore_run):
    assert_user_error(rlcore_run(write_manifest(tmp_path, algorithm="BC", config={})), "spec.config.input is missing")
    spec = {"algorithm": "BC", "config": {"input": str(tmp_path / "nowhere")}}
    assert_user_error(rlcore_run(write_manifest(tmp_path, **spec)), "records.json is missing", "rlcore record")


def test_recording_counts_what_it_wrote(trained, tmp_path, capsys):
    run, folder = trained
    info = read_info(folder)
    assert 3000 <= info.timesteps < 3100
    assert info.episodes > 0
    assert info.environment == "CartPole-v1"
    out = tmp_path / "more"
    command = ["record", str(run), "--timesteps", "500", "--out", str(out), "--deterministic", "--seed", "3"]
    assert run_cli(command) == 0
    assert "holds 5" in capsys.readouterr().out
    assert run_cli(command) == 2
    assert "--append" in capsys.readouterr().err
    assert run_cli([*command, "--append"]) == 0
    assert len(json.loads((out / "records.json").read_text())["shards"]) >= 2


def test_two_recordings_with_one_seed_are_equal(trained, tmp_path):
    run, _ = trained
    for name in ("one", "two"):
        assert run_cli(["record", str(run), "--timesteps", "600", "--out", str(tmp_path / name), "--seed", "1"]) == 0
    one, two = (read_info(tmp_path / name) for name in ("one", "two"))
    assert [shard.sha256 for shard in one.shards] == [shard.sha256 for shard in two.shards]
