"""Installing, upgrading and uninstalling the chart: the CRD follows the chart's version, and no RLJob is ever lost.

The CRD belongs to the whole cluster, so these tests have one to themselves, without KubeRay.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.chart import CHART, CRD, NAMESPACE, RELEASE, Chart, one
from tests.kube.cluster import ROOT, Cluster
from tests.kube.wait import eventually

EXAMPLE = ROOT / "examples" / "cartpole-ppo.yaml"
WAIT = ("--namespace", NAMESPACE, "--wait", "--timeout", "120s")
CRD_NAME = "rljobs.rlcore.io"


@pytest.fixture(scope="module")
def own_cluster(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Beside `cluster`, which has seen to it that one can be built here."""
    with Cluster(tmp_path_factory.mktemp("chart-cluster"), kuberay=False) as running:
        yield running


@pytest.fixture
def fresh(own_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster without chart and CRD before and after."""
    yield own_cluster
    own_cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found")
    own_cluster.kubectl("delete", "crd", CRD_NAME, "--ignore-not-found")


def older_chart(folder: Path) -> Path:
    """The chart with a CRD that has no column `Environment` yet."""
    chart = Path(shutil.copytree(CHART, folder / "older"))
    path = chart / "files" / CRD.name
    crd = yaml.safe_load(path.read_text())
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    columns[:] = [column for column in columns if column["name"] != "Environment"]
    path.write_text(yaml.safe_dump(crd, sort_keys=False))
    return chart


def get(cluster: Cluster, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "-o", "json", *args).stdout)
    return found


def columns(cluster: Cluster) -> set[str]:
    version = get(cluster, "crd", CRD_NAME)["spec"]["versions"][0]
    return {column["name"] for column in version["additionalPrinterColumns"]}


def job_uid(cluster: Cluster) -> str:
    return str(get(cluster, "rljob", "cartpole-ppo", "-n", "default")["metadata"]["uid"])


def apply_example(cluster: Cluster) -> str:
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{CRD_NAME}", "--timeout=30s")
    eventually(lambda: cluster.kubectl("apply", "-n", "default", "-f", EXAMPLE), what="the RLJob")
    return job_uid(cluster)


def test_upgrade_and_uninstall_leave_crd_and_jobs(fresh: Cluster, tmp_path: Path) -> None:
    said = fresh.helm("install", RELEASE, older_chart(tmp_path), "--create-namespace", *WAIT).stdout
    assert "KubeRay IS MISSING" in said
    assert "Environment" not in columns(fresh)
    uid = apply_example(fresh)

    fresh.helm("upgrade", RELEASE, CHART, *WAIT)
    assert "Environment" in columns(fresh)
    assert job_uid(fresh) == uid

    fresh.helm("upgrade", RELEASE, CHART, "--set", "crds.install=false", *WAIT)
    assert job_uid(fresh) == uid

    fresh.helm("upgrade", RELEASE, CHART, "--set", "crds.install=true", *WAIT)
    fresh.helm("uninstall", RELEASE, "--wait", "--namespace", NAMESPACE)
    assert not get(fresh, "deployments", "-n", NAMESPACE)["items"]
    assert job_uid(fresh) == uid

    fresh.helm("install", RELEASE, CHART, *WAIT)
    assert job_uid(fresh) == uid

    # Nothing holds a job back, operator or not.
    fresh.helm("uninstall", RELEASE, "--namespace", NAMESPACE)
    fresh.kubectl("delete", "rljob", "cartpole-ppo", "-n", "default", "--timeout=30s")


def test_crd_applied_by_hand_can_be_left_or_taken_over(fresh: Cluster, tmp_path: Path) -> None:
    fresh.kubectl("apply", "--server-side", "-f", older_chart(tmp_path) / "files" / CRD.name)
    uid = apply_example(fresh)
    refused = fresh.helm("install", RELEASE, CHART, "--create-namespace", *WAIT, check=False)
    assert "invalid ownership metadata" in refused.stderr

    fresh.helm("upgrade", "--install", RELEASE, CHART, "--create-namespace", "--set", "crds.install=false", *WAIT)
    take = ("--set", "crds.install=true", "--take-ownership", "--force-conflicts")
    fresh.helm("upgrade", "--install", RELEASE, CHART, *take, *WAIT)
    assert "Environment" in columns(fresh)
    assert get(fresh, "crd", CRD_NAME)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert job_uid(fresh) == uid


def test_crd_upgraded_by_hand_does_not_hinder_helm(fresh: Cluster, tmp_path: Path) -> None:
    fresh.helm("install", RELEASE, older_chart(tmp_path), "--create-namespace", *WAIT)
    rendered = fresh.helm(
        "template", RELEASE, CHART, "--namespace", NAMESPACE, "--show-only", "templates/crd.yaml"
    ).stdout
    fresh.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=rendered)
    assert "Environment" in columns(fresh)
    fresh.helm("upgrade", RELEASE, CHART, *WAIT)
    assert "Environment" in columns(fresh)


def test_replicas_are_spread_over_nodes(fresh: Cluster) -> None:
    fresh.helm("install", RELEASE, CHART, "--create-namespace", *WAIT)
    pods = get(fresh, "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=operator")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2


def test_no_replicas_leave_rights_and_settings(fresh: Cluster) -> None:
    said = fresh.helm("install", RELEASE, CHART, "--create-namespace", "--set", "replicaCount=0", *WAIT).stdout
    assert "replicaCount is 0" in said
    assert not get(fresh, "pods", "-n", NAMESPACE)["items"]
    assert "workers: 8" in get(fresh, "configmap", RELEASE, "-n", NAMESPACE)["data"]["config.yaml"]
    assert fresh.kubeconfig_for(NAMESPACE, RELEASE).is_file()


def test_helm_test_asks_the_api_for_rljobs(fresh: Cluster, tmp_path: Path) -> None:
    fresh.helm("install", RELEASE, CHART, "--create-namespace", "--set", "replicaCount=0", *WAIT)
    hooks = [m for m in Chart(fresh, tmp_path).render({}) if m["metadata"].get("annotations", {}).get("helm.sh/hook")]
    pod = one(hooks, "Pod")
    hooks.remove(pod)
    fresh.apply(*hooks)
    # The nodes here run nothing: this process stands for the pod, with its command, its image's Python and its rights.
    python, *command = pod["spec"]["containers"][0]["command"]
    assert python == "python"
    environment = {
        **os.environ,
        "KUBECONFIG": str(fresh.kubeconfig_for(NAMESPACE, pod["spec"]["serviceAccountName"])),
        "POD_NAMESPACE": NAMESPACE,
    }

    def answer() -> str:
        run = [sys.executable, *command]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    assert eventually(answer, what="the API's answer") == "the API answers with RLJobList\n"
    fresh.kubectl("delete", "crd", CRD_NAME)
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
