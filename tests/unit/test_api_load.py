"""Reading manifests: one line for each problem, with line number, path, value and what is allowed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rlcore.api import ALGORITHMS, ManifestError, RLJob, load_job, parse_job
from rlcore.api.explain import shown
from rlcore.api.problems import InvalidManifestError
from rlcore.errors import UserError

GOOD = """\
apiVersion: rlcore.io/v1alpha1
kind: RLJob
metadata: {name: cart}
spec:
  algorithm: PPO
  environment: {id: CartPole-v1}
  stop: {timesteps: 2e5, episodeReward: 475}
  config:
    learningRate: 1e-3
"""


def lines_of(text: str) -> list[str]:
    with pytest.raises(InvalidManifestError) as caught:
        parse_job(text, source="job.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_a_manifest_becomes_a_job(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    job = load_job(path)
    assert isinstance(job, RLJob)
    assert job.metadata.name == "cart"
    assert job.spec.config.learning_rate == 1e-3
    assert job.spec.stop.timesteps == 200_000
    assert isinstance(job.spec.stop.timesteps, int)
    assert isinstance(job.spec.stop.episode_reward, float)


def test_a_byte_order_mark_and_crlf_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_job(str(path)).spec.algorithm == "PPO"


def test_all_problems_come_at_once_in_the_order_of_the_lines() -> None:
    text = (
        GOOD
        + "    gamma: 1.5\n    gama: 0.9\n  seed: '1'\n  evaluators:\n    pools:\n      - {name: a, maxReplicas: 4}\n"
    )
    text += "      - name: b\n        minReplicas: 8\n        maxReplicas: 4\n"
    assert lines_of(text) == [
        "line 10: spec.config.gamma: 1.5 is out of range; allowed: 0 to 1",
        "line 11: spec.config.gama: PPO has no such field; did you mean gamma?",
        'line 12: spec.seed: "1" is not a whole number: write 1 without quotes',
        "line 17: spec.evaluators.pools[1].minReplicas: 8 is more than maxReplicas 4",
    ]


def test_the_message_names_the_file_and_counts() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_job(GOOD.replace("PPO", "PPPO"), source="some/job.yaml")
    assert isinstance(caught.value, UserError)
    assert str(caught.value).splitlines() == [
        "some/job.yaml is not a valid RLJob: 1 problem",
        f'  line 5: spec.algorithm: "PPPO" is not allowed; allowed: {", ".join(ALGORITHMS)}; did you mean PPO?',
    ]


def test_many_problems_still_fit_on_one_screen() -> None:
    text = GOOD + "".join(f"    zzz{index}: 1\n" for index in range(50))
    with pytest.raises(InvalidManifestError) as caught:
        parse_job(text, source="job.yaml")
    assert len(caught.value.problems) == 50
    assert str(caught.value).splitlines()[-1] == "  and 30 more"
    assert len(str(caught.value).splitlines()) == 22


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("  algorithm: PPO\n", "", "line 4: spec.algorithm: is required and missing"),
        ("learningRate: 1e-3", "learning_rate: 1e-3", "PPO has no such field; did you mean learningRate?"),
        ("learningRate: 1e-3", "LearningRate: 1e-3", "PPO has no such field; did you mean learningRate?"),
        ("learningRate: 1e-3", 'learningRate: "1e-3"', '"1e-3" is not a number: write 1e-3 without quotes'),
        ("learningRate: 1e-3", "learningRate: fast", '"fast" is not a number'),
        ("learningRate: 1e-3", "learningRate: 0", "0 is out of range; allowed: more than 0, at most 1"),
        ("learningRate: 1e-3", "learningRate: true", "true is not a number"),
        ("learningRate: 1e-3", "normalizeAdvantages: 'true'", '"true" is not true or false: write true without quotes'),
        (
            "learningRate: 1e-3",
            "minibatchSize: 8000",
            "minibatchSize: 8000 is more than trainBatchSize 4000 (the default)",
        ),
        ("timesteps: 2e5, ", "timesteps: 2.5, ", "spec.stop.timesteps: 2.5 is not a whole number"),
        ("timesteps: 2e5, ", "wallClock: 90, ", "90 has no unit; write 90s for seconds"),
        ("timesteps: 2e5, ", "wallClock: soon, ", '"soon" is not a duration'),
        ("{timesteps: 2e5, episodeReward: 475}", "{}", "spec.stop: needs at least one of timesteps, iterations"),
        ("{timesteps: 2e5, episodeReward: 475}", "soon", 'spec.stop: "soon" is not a mapping'),
        ("{id: CartPole-v1}", "{id: Cart Pole}", "a Gymnasium id such as CartPole-v1"),
        ("{id: CartPole-v1}", "{id: 5}", '5 is not text: write it in quotes, "5"'),
        ("{id: CartPole-v1}", "{name: CartPole-v1}", "spec.environment.id: is required and missing"),
        ("{id: CartPole-v1}", "{id: a, wrappers: atarii}", "allowed: none, atari; did you mean atari?"),
        ("spec:\n", "spec:\n  gamma: 0.9\n", "spec.gamma: unknown field; did you mean spec.config.gamma?"),
        ("spec:\n", "spec:\n  bananas: 1\n", "line 5: spec.bananas: unknown field"),
        ("{name: cart}", "{name: Cart_Pole}", 'lower-case letters, digits and "-"'),
        ("{name: cart}", "{name: " + "a" * 44 + "}", "has 44 characters; allowed: 1 to 43 characters"),
        ("{name: cart}", "{name: ''}", "metadata.name: is empty; allowed: 1 to 43 characters"),
        ("{name: cart}", "{}", "metadata.name: is required and missing"),
        ("{name: cart}", "{name: cart, lables: {}}", "metadata.lables: unknown field; did you mean labels?"),
        ("v1alpha1", "v1", 'apiVersion: "rlcore.io/v1" is not allowed; allowed: rlcore.io/v1alpha1'),
        ("kind: RLJob", "kind: RayJob", "line 2: kind: RayJob is not RLJob"),
        ("kind: RLJob", "knd: RLJob", "line 1: kind: is required and missing; write kind: RLJob"),
        ("kind: RLJob", "kind: RLJob\nkind: RLJob", 'line 3: the key "kind" is here twice, first on line 2'),
        ("spec:\n", "spec: [\n", "not valid YAML"),
    ],
)
def test_each_problem_is_said_in_one_line(old: str, new: str, line: str) -> None:
    assert old in GOOD
    found = lines_of(GOOD.replace(old, new))
    assert any(line in text for text in found), found
    assert not any("\n" in text for text in found)


def test_a_field_of_another_algorithm_names_all_that_have_it() -> None:
    owners = [name for name, info in ALGORITHMS.items() if "replay_capacity" in info.config.model_fields]
    assert {"DQN", "SAC", "ApexDDPG"} < set(owners)
    belongs = f"PPO has no such field; it belongs to {', '.join(owners)}"
    assert lines_of(GOOD + "    replayCapacity: 5\n") == [f"line 10: spec.config.replayCapacity: {belongs}"]


def test_other_objects_may_stand_beside_the_job() -> None:
    config_map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\ndata: {a.py: 'x = 1'}\n"
    assert parse_job(f"---\n{config_map}---\n{GOOD}---\n", source="job.yaml").metadata.name == "cart"


def test_two_jobs_in_one_file_are_refused() -> None:
    assert lines_of(f"{GOOD}---\n{GOOD}") == [
        "line 11: 2 RLJobs in one file, on lines 1 and 11: put each into a file of its own"
    ]


def test_lines_are_right_in_a_later_document() -> None:
    assert lines_of(f"apiVersion: v1\nkind: Secret\n---\n{GOOD}    gama: 1\n") == [
        "line 13: spec.config.gama: PPO has no such field; did you mean gamma?"
    ]


def test_what_is_no_mapping_is_refused() -> None:
    assert "the document is a list, not a mapping" in lines_of("- 1\n- 2")[0]
    assert "the document is a single value, not a mapping" in lines_of("hello")[0]


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "null"])
def test_an_empty_file_is_named_so(text: str) -> None:
    with pytest.raises(ManifestError, match=r"job\.yaml is empty"):
        parse_job(text, source="job.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"nope\.yaml does not exist"):
        load_job(tmp_path / "nope.yaml")

    (tmp_path / "a.yaml").write_text(GOOD)
    with pytest.raises(ManifestError, match="is a directory, not a manifest") as caught:
        load_job(tmp_path)
    assert caught.value.hint == "it holds a.yaml"

    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"spec: \xff\xfe")
    with pytest.raises(ManifestError, match=r"is not UTF-8 text: byte 6 is 0xff"):
        load_job(binary)

    large = tmp_path / "large.yaml"
    large.write_text("#" * (1024 * 1024 + 1))
    with pytest.raises(ManifestError, match="too large for a manifest"):
        load_job(large)

    with pytest.raises(ManifestError, match="cannot be read: "):
        load_job(tmp_path / "a.yaml" / "below-a-file")


def test_the_error_crosses_process_boundaries() -> None:
    with pytest.raises(InvalidManifestError) as caught:
        parse_job(GOOD + "    gama: 1\n", source="job.yaml")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.problems) == (str(caught.value), caught.value.problems)


def test_long_values_are_shortened() -> None:
    assert len(shown("x" * 1000)) == 60
