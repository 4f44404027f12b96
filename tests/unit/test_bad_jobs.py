"""A job that cannot be trained is refused before anything is started: what is wrong, what would do, and no Ray."""

import re

import pytest
import yaml

from rlcore.api import ManifestError, RLJob, load_job
from rlcore.api.algorithms import ALGORITHMS, OPTIMIZERS
from rlcore.api.load import parse_job
from rlcore.driver import population as populations
from rlcore.driver import run
from rlcore.driver.build import check_job
from rlcore.driver.run import RunOptions, run_job
from rlcore.errors import UserError
from tests.action_spaces import EVERY, KINDS, SUPPORTED, job_with
from tests.jobs import make_job, pools, write_cartpole_records
from tests.learning.gate import EXAMPLES, Silent
from tests.runs import assert_user_error, write_manifest


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Runs a job that is to start evaluators over Ray; gives the error, and fails where it came after Ray did."""

    def no_ray(**_options):
        pytest.fail("Ray was started for a job that cannot be trained")

    monkeypatch.setattr(run, "ray_session", no_ray)
    monkeypatch.setattr(populations, "ray_session", no_ray)

    def _refused(**spec) -> UserError:
        job = make_job(**{"config": {}, "evaluators": pools(2), **spec})
        with pytest.raises(UserError) as caught:
            run_job(job, RunOptions(root=tmp_path), Silent())
        return caught.value

    return _refused


def test_the_tables_name_every_algorithm():
    assert set(SUPPORTED) == set(ALGORITHMS)


# optimizers -----------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_an_optimizer_that_an_algorithm_does_not_support_is_refused_with_those_that_it_does(algorithm):
    document = make_job().model_dump(mode="json", by_alias=True, exclude_unset=True)
    allowed = ALGORITHMS[algorithm].optimizers
    assert set(allowed) < set(OPTIMIZERS)
    for optimizer in set(OPTIMIZERS) - set(allowed):
        document["spec"] |= {"algorithm": algorithm, "optimizer": optimizer, "config": {}}
        with pytest.raises(ManifestError) as caught:
            parse_job(yaml.safe_dump(document), source="job.yaml")
        text = f'spec.optimizer: "{optimizer}" cannot train {algorithm}; allowed: {", ".join(allowed)}'
        assert any(text in str(problem) for problem in caught.value.problems)


# action spaces --------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", list(SUPPORTED))
def test_an_action_space_that_an_algorithm_does_not_support_is_refused_with_what_does(refused, algorithm):
    for kind in set(KINDS) - SUPPORTED[algorithm]:
        error = refused(**job_with(algorithm, kind))
        assert error.permanent, kind
        if algorithm == "AlphaZero":  # plays games only, and a game's moves are Discrete
            assert "not a game" in error.message
            continue
        if kind == "Text":
            assert "the action space is a Text" in error.message
            assert error.hint.startswith("supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple")
            continue
        assert error.message.startswith(f"{algorithm} "), error.message
        if kind == "Box without bounds" and "Box" in SUPPORTED[algorithm]:
            assert "finite bounds" in error.hint
            continue
        for name in SUPPORTED[algorithm]:
            assert name in f"{error.message} {error.hint}", (kind, name)
        assert "PPO" in error.hint


@pytest.mark.parametrize("algorithm", sorted(set(SUPPORTED) - {"BC", "MARWIL", "AlphaZero"}))
def test_the_others_are_not_refused(algorithm):
    for kind in SUPPORTED[algorithm]:
        check_job(make_job(**job_with(algorithm, kind)).spec)


def test_somebody_acts_in_each_space_but_text():
    assert frozenset.union(*SUPPORTED.values()) == EVERY


# replay, policies, records --------------------------------------------------------


REPLAYING = [name for name, info in ALGORITHMS.items() if "replay_capacity" in info.config.model_fields]


@pytest.mark.parametrize("algorithm", REPLAYING)
def test_a_replay_that_cannot_fit_is_refused_with_the_estimate_and_what_fits(refused, algorithm):
    spec = job_with(algorithm, "Discrete" if "Discrete" in SUPPORTED[algorithm] else "Box")
    if algorithm == "AlphaZero":
        spec["environment"] = load_job(EXAMPLES / "tic-tac-toe-alphazero.yaml").spec.environment.model_dump()
    error = refused(**{**spec, "config": {"replayCapacity": 9_000_000_000}})
    assert re.match(
        r"spec\.config\.replayCapacity: 9,000,000,000 transitions of about [\d,]+ bytes need [\d.]+ GiB, "
        r"and [\d.]+ GiB are free here$",
        error.message,
    )
    assert re.match(r"about [\d,]+ fit", error.hint)


@pytest.mark.parametrize(
    ("mapping", "says", "hint"),
    [
        ("tests.jobs:unknown_policy", "maps agent 'same' to 'nobody', which is no policy", "has ['one', 'two']"),
        ("tests.jobs:no_such_function", "no_such_function", "must be module:function"),
        ("no_such_module:f", "No module named 'no_such_module'", "must be module:function"),
    ],
)
def test_a_mapping_that_leads_nowhere_is_refused(refused, mapping, says, hint):
    multi = {"policies": {"one": {}, "two": {}}, "mapping": mapping}
    error = refused(environment={"id": "tests.jobs:TwoAgents"}, multiAgent=multi)
    assert error.permanent
    assert error.message.startswith(f'spec.multiAgent.mapping "{mapping}": ')
    assert says in error.message
    assert hint in error.hint


@pytest.mark.parametrize("algorithm", ["BC", "MARWIL"])
def test_records_of_another_space_are_refused_with_both_spaces(refused, tmp_path, algorithm):
    write_cartpole_records(tmp_path / "records")
    config = {"input": str(tmp_path / "records")}
    error = refused(algorithm=algorithm, environment={"id": "Pendulum-v1"}, config=config)
    assert error.permanent
    assert error.message == (
        f"{tmp_path / 'records'} holds observations Box(4,) float32 and actions Discrete(2); "
        "Pendulum-v1 has observations Box(3,) float32 and actions Box(1,) float32"
    )
    assert "spec.environment" in error.hint
    assert "spec.config.input" in error.hint
    check_job(make_job(algorithm=algorithm, config=config).spec)


# where ----------------------------------------------------------------------------


def test_a_population_is_refused_before_its_trials_start(refused):
    mutations = [{"parameter": "learningRate", "minimum": 1e-4, "maximum": 1e-2}]
    population = {"size": 2, "interval": 1, "mutations": mutations}
    error = refused(algorithm="DQN", environment={"id": "Pendulum-v1"}, population=population)
    assert error.message.startswith("DQN supports Discrete action spaces")


def test_the_command_line_says_it_and_starts_nothing(tmp_path, rlcore_run):
    manifest = write_manifest(tmp_path, algorithm="TD3", config={})
    done = rlcore_run(manifest, in_process=False)
    assert_user_error(done, r"TD3 supports Box action spaces of floats", r"Discrete\(2\)", "PPO and IMPALA")
    assert "starting Ray" not in done.stdout + done.stderr


def test_a_cluster_is_asked_for_no_node():
    """Session checks the job before its Place connects, which in a cluster waits for evaluators and a learner."""
    from rlcore.driver.session import Place, Session

    class Nowhere(Place):
        def connect(self, *_arguments):
            pytest.fail("the cluster was asked for nodes")

        def describe(self, plan): ...
        def build(self, plan, seed, spaces): ...
        def evaluation(self, parts): ...

    job: RLJob = make_job(algorithm="TD3", config={})
    outputs = type("Outputs", (), {"display": Silent()})()
    with pytest.raises(UserError, match="TD3 supports Box"):
        Session(job, Nowhere(), outputs, None, None, None).train()
