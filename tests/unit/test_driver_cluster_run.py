"""`python -m rlcore.driver` as the operator runs it: whole attempts, on a Ray of several nodes."""

import json
import signal
import subprocess
import sys

import pytest

from rlcore.cli.main import run_cli
from tests.cluster_driver import ROOT, DriverProcess, RayNodes, environment_of_nodes
from tests.jobs import pools
from tests.runs import metrics

ENDLESS = {"stop": {"timesteps": 10**9}, "checkpoint": {"every": "1s"}}
NEWER = {"attempt": 2, "token": "2.pod-2.1"}


@pytest.fixture(scope="module")
def nodes():
    """A head, a learner, and one node with room for one evaluator."""
    with environment_of_nodes():
        made = RayNodes()
        made.named["learner"] = made.add_learner()
        made.named["first"] = made.add_evaluators(1)
        yield made
        made.close()


def owner_beside(driver: DriverProcess) -> dict:
    return json.loads((driver.checkpoints / "owner.json").read_text())


# without Ray ----------------------------------------------------------------------


@pytest.fixture
def without_ray(tmp_path):
    """A driver that has no Ray to connect to."""
    driver = DriverProcess(tmp_path, None)
    yield driver
    driver.kill()


def test_a_bad_manifest_is_said_over_the_status_and_beside_the_checkpoints(without_ray):
    text = without_ray.manifest.read_text()
    without_ray.manifest.write_text(text.replace("numEpochs", "numEpoch"))
    code, final = without_ray.start().finish()
    assert code == 2
    assert final["failure_class"] == "ConfigInvalid"
    assert "numEpochs" in final["message"]
    assert json.loads((without_ray.checkpoints / "failure-1.json").read_text())["exit_code"] == 2


def test_a_driver_that_a_newer_one_preceded_touches_nothing(without_ray):
    without_ray.checkpoints.mkdir(parents=True)
    (without_ray.checkpoints / "owner.json").write_text(json.dumps(NEWER))
    assert without_ray.start().exit_code() == 75
    assert [path.name for path in without_ray.checkpoints.iterdir()] == ["owner.json"]


# failures -------------------------------------------------------------------------


@pytest.fixture
def failing(tmp_path, nodes):
    """Starts an attempt with an environment, and gives its end."""
    made = []

    def run(**environment) -> tuple[DriverProcess, int, dict]:
        made.append(DriverProcess(tmp_path, nodes.address, attempt=3, environment=environment).start())
        return made[-1], *made[-1].finish()

    yield run
    for driver in made:
        driver.kill()


def test_an_environment_that_fails_is_worth_another_attempt(failing):
    attempt, code, final = failing(id="tests.jobs:FailingEnv", kwargs={"length": 100}, maxFailures=0)
    assert code == 3
    assert (final["failure_class"], final["reason"]) == ("ApplicationFailed", "EnvironmentFailure")
    assert "the simulator crashed" in final["message"]
    record = json.loads((attempt.checkpoints / "failure-3.json").read_text())
    assert (record["exit_code"], record["token"]) == (3, final["token"])
    assert "the simulator crashed" in record["log_tail"]
    assert "Traceback" not in attempt.log


def test_an_unknown_environment_is_not(failing):
    _, code, final = failing(id="CartPol-v1")
    assert code == 2
    assert final["failure_class"] == "ConfigInvalid"
    assert "CartPole-v1" in final["message"]


# one job --------------------------------------------------------------------------


@pytest.fixture(scope="class")
def first_attempt(tmp_path_factory, nodes):
    spec = {"evaluation": {"every": 5, "episodes": 2}, **ENDLESS}
    driver = DriverProcess(tmp_path_factory.mktemp("job"), nodes.address, **spec).start()
    driver.wait_for(lambda status: status["evaluation"])
    yield driver
    driver.kill()


@pytest.fixture(scope="class")
def second_attempt(first_attempt, nodes):
    driver = DriverProcess(first_attempt.directory, nodes.address, attempt=2)
    yield driver
    driver.kill()


class TestOneJob:
    """One after the other: the life of one job, from its first attempt to its end."""

    def test_the_status_says_who_trains_and_how_far_it_is(self, first_attempt):
        status = first_attempt.status()
        assert (status["phase"], status["attempt"], status["final"]) == ("Running", 1, None)
        assert status["token"].startswith("1.pod-1.")
        assert status["timesteps"] > 0
        assert [pod["evaluators"] for pod in status["evaluator_pods"]] == [1]
        assert owner_beside(first_attempt)["token"] == status["token"]

    def test_it_saves_when_asked_and_pauses(self, first_attempt):
        first_attempt.control(checkpointRequest="please", pause=True)
        status = first_attempt.wait_for(
            lambda status: status["phase"] == "Paused" and status["checkpoint"]["request"] == "please"
        )
        saved = status["checkpoint"]
        assert saved["timesteps"] == status["timesteps"]
        assert (first_attempt.checkpoints / saved["location"] / "manifest.json").exists()
        assert saved["time_s"] >= status["updated_s"] - 60

    def test_the_pods_hook_gets_a_checkpoint_too(self, first_attempt):
        asked = subprocess.run(
            [sys.executable, "-m", "rlcore.prestop"], cwd=ROOT, env={"RLCORE_RUNTIME_DIR": str(first_attempt.runtime)},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert asked.stderr.strip() == f"saved at {first_attempt.status()['timesteps']} timesteps"

    def test_a_half_written_control_file_changes_nothing(self, first_attempt):
        (first_attempt.config / "control.json").write_text("{")
        status = first_attempt.wait_for(lambda status: "is not understood" in first_attempt.log)
        assert status["phase"] == "Paused"

    def test_a_newer_owner_ends_it_before_it_publishes_anything(self, first_attempt):
        (first_attempt.checkpoints / "owner.json").write_text(json.dumps(NEWER))
        first_attempt.control()  # no pause any more: the next checkpoint is a second away
        assert first_attempt.exit_code() == 75
        assert "a newer driver owns" in first_attempt.log
        assert owner_beside(first_attempt) == NEWER
        assert not list(first_attempt.checkpoints.glob("failure-*"))

    def test_the_next_attempt_goes_on_and_takes_a_new_goal_while_it_runs(self, first_attempt, second_attempt):
        saved = max(int(path.name.split("-")[1]) for path in first_attempt.checkpoints.glob("ckpt-*"))
        second_attempt.start().wait_for(lambda status: (status["timesteps"] or 0) > saved)
        assert f"resumed at {saved:,} timesteps" in second_attempt.log
        goal = saved + 1000
        second_attempt.control(stop={"timesteps": goal})
        code, final = second_attempt.finish(stop={"timesteps": goal})
        assert code == 0
        assert (final["phase"], final["exit_code"], final["failure_class"]) == ("Succeeded", 0, "")
        assert final["message"].endswith(f"of {goal:,}")
        assert "Traceback" not in second_attempt.log

    def test_its_files_are_beside_the_checkpoints(self, second_attempt):
        recorded = [line["timesteps"] for line in metrics(second_attempt.checkpoints)]
        assert recorded == sorted(set(recorded))
        assert list((second_attempt.checkpoints / "tensorboard").iterdir())
        assert list((second_attempt.checkpoints / "logs" / "2").iterdir())
        assert run_cli(["eval", str(second_attempt.checkpoints), "--episodes", "2"]) == 0

    def test_a_complete_job_says_so_again_without_ray(self, second_attempt):
        again = DriverProcess(second_attempt.directory, None, attempt=3).start()
        try:
            status = again.wait_for(lambda status: status["final"])
            assert status["timesteps"] == metrics(again.checkpoints)[-1]["timesteps"]
            assert status["checkpoint"]["timesteps"] == status["timesteps"]
            code, final = again.finish()
        finally:
            again.kill()
        assert code == 0
        assert (final["phase"], final["exit_code"]) == ("Succeeded", 0)


# nodes that come and go --------------------------------------------------------


@pytest.fixture(scope="class")
def elastic(tmp_path_factory, nodes):
    evaluators = {**pools(1), "pools": [{"name": "pool", "minReplicas": 1, "maxReplicas": 4}]}
    driver = DriverProcess(tmp_path_factory.mktemp("elastic"), nodes.address, evaluators=evaluators, **ENDLESS)
    driver.start().wait_for(lambda status: status["evaluators"] == 1)
    yield driver
    driver.kill()


class TestNodesThatComeAndGo:
    """One after the other, on one run; the last of this file, for it leaves no nodes."""

    def test_evaluators_join_from_a_new_node(self, elastic, nodes):
        nodes.named["second"] = nodes.add_evaluators(2)
        status = elastic.wait_for(lambda status: status["evaluators"] == 3)
        assert sorted(pod["evaluators"] for pod in status["evaluator_pods"]) == [1, 2]

    def test_training_goes_on_without_a_killed_node(self, elastic, nodes):
        before = elastic.status()["timesteps"]
        nodes.kill(nodes.named["first"])
        status = elastic.wait_for(lambda status: status["evaluators"] == 2 and status["timesteps"] > before)
        assert status["phase"] == "Running"
        assert status["optimizer"]["evaluators_lost"] == 1

    def test_fewer_pods_allowed_drains_whole_pods(self, elastic, nodes):
        third = nodes.add_evaluators(1)
        elastic.wait_for(lambda status: status["evaluators"] == 3)
        elastic.control(evaluators={"pools": {"pool": {"minReplicas": 1, "maxReplicas": 1}}})
        status = elastic.wait_for(lambda status: sorted(p["evaluators"] for p in status["evaluator_pods"]) == [0, 2])
        assert status["optimizer"]["evaluators_lost"] == 1  # nothing was lost by it
        nodes.kill(third)

    def test_with_no_evaluator_left_it_waits_and_still_saves(self, elastic, nodes):
        nodes.kill(nodes.named["second"])
        elastic.wait_for(lambda status: status["phase"] == "Recovering")
        elastic.control(checkpointRequest="while nobody samples")
        before = elastic.wait_for(lambda status: status["checkpoint"]["request"] == "while nobody samples")
        nodes.named["fourth"] = nodes.add_evaluators(1)
        elastic.wait_for(lambda status: status["phase"] == "Running" and status["timesteps"] > before["timesteps"])

    def test_a_lost_learner_goes_back_to_the_newest_checkpoint(self, elastic, nodes):
        nodes.kill(nodes.named["learner"])
        lost = elastic.wait_for(lambda status: status["phase"] == "Recovering" and status["learners_lost"] == 1)
        nodes.add_learner()
        elastic.wait_for(lambda status: status["phase"] == "Running" and status["timesteps"] > lost["timesteps"])
        recorded = [line["timesteps"] for line in metrics(elastic.checkpoints)]
        assert recorded == sorted(set(recorded))  # what came after the checkpoint was recorded anew

    def test_sigterm_is_answered_while_nobody_samples(self, elastic, nodes):
        nodes.kill(nodes.named["fourth"])
        elastic.wait_for(lambda status: status["phase"] == "Recovering")
        elastic.signal(signal.SIGTERM)
        assert elastic.exit_code() == 128 + signal.SIGTERM
        saved = max(int(path.name.split("-")[1]) for path in elastic.checkpoints.glob("ckpt-*"))
        assert saved == metrics(elastic.checkpoints)[-1]["timesteps"]
