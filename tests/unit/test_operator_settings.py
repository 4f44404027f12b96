"""The operator's settings file: every field has a default, every mistake is named."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from rljob_operator.settings import CONFIG_VARIABLE, Settings, load_settings

from rlcore.errors import UserError


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return str(path)


def test_without_a_file_all_is_default(monkeypatch):
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    assert load_settings() == Settings()


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "times: {}\n"])
def test_an_empty_file_is_all_default(tmp_path, text):
    assert load_settings(written(tmp_path, text)) == Settings()


def test_the_environment_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv(CONFIG_VARIABLE, written(tmp_path, "workers: 3\n"))
    assert load_settings().workers == 3


def test_every_field_as_the_chart_writes_it(tmp_path):
    text = """
image: mine:1
gpuImage: mine-gpu:1
rayVersion: 2.60.0
namespaces: [a, b]
host: 127.0.0.1
port: 0
leaderElection: {enabled: false, namespace: ops, name: one, leaseSeconds: 5}
placement:
  preset: gke
  preemptible:
    nodeSelector: {a: b}
    tolerations: [{key: t, operator: Exists}]
    nodeAffinity: [{key: k, operator: Exists}]
  onDemand: {nodeSelector: {c: d}}
gpuTolerations: []
defaultClaim: {size: 5Gi, storageClassName: fast, accessMode: ReadWriteMany}
autoscaler: {enabled: false, version: v1, resources: {limits: {cpu: 1}}}
authMode: disabled
times: {checkpointRequestSeconds: 1, drainSeconds: 2, pollSeconds: 0.5, spotRetrySeconds: 9}
workers: 4
logFormat: json
logLevel: DEBUG
"""
    settings = load_settings(written(tmp_path, text))
    assert settings.gpu_image == "mine-gpu:1"
    assert settings.leader_election.lease_s == 5
    assert settings.placement.preemptible.node_affinity == [{"key": "k", "operator": "Exists"}]
    assert settings.times.poll_s == 0.5
    assert settings.gpu_tolerations == []
    assert settings.default_claim.access_mode == "ReadWriteMany"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("wrokers: 3", "wrokers"),
        ("workers: many", "workers"),
        ("workers: 0", "workers"),
        ("times: {pollSecond: 1}", "times.pollSecond"),
        ("times: {pollSeconds: 0}", "times.pollSeconds"),
        ("placement: {preset: azure}", "placement.preset"),
        (
            "placement: {preemptible: {tolerations: [{operator: Maybe}]}}",
            "placement.preemptible.tolerations.0.operator",
        ),
        ("defaultClaim: {size: big}", "defaultClaim.size"),
        ("defaultClaim: {storageClassName: 'No Name'}", "defaultClaim.storageClassName"),
        ("authMode: none", "authMode"),
        ("port: 70000", "port"),
        ("- a\n- b", "settings"),
        ("just a text", "settings"),
        ("a: [", "cannot be read"),
        ("\x00", "cannot be read"),
    ],
)
def test_every_mistake_is_named(tmp_path, text, problem):
    with pytest.raises(UserError, match=r"settings .*settings\.yaml") as raised:
        load_settings(written(tmp_path, text))
    assert problem in raised.value.message.partition("settings.yaml")[2]


def test_all_mistakes_are_named_at_once(tmp_path):
    with pytest.raises(UserError, match="workers") as raised:
        load_settings(written(tmp_path, "workers: 0\nport: -1\n"))
    assert "port" in raised.value.message


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_settings(str(tmp_path / "none.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UserError, match="cannot be read"):
        load_settings(str(tmp_path / "bytes.yaml"))


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model and all below it."""
    found = {model}
    for info in model.model_fields.values():
        for kind in (info.annotation, *typing.get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= models(kind)
    return found


def test_every_setting_is_described_and_has_a_default_that_can_be_written_down(tmp_path):
    for model in models(Settings):
        for name, info in model.model_fields.items():
            assert info.description, f"{model.__name__}.{name}"
            assert not info.is_required(), f"{model.__name__}.{name}"
    text = yaml.safe_dump(Settings().model_dump(mode="json", by_alias=True))
    assert load_settings(written(tmp_path, text)) == Settings()
