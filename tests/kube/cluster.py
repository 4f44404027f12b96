"""A cluster of one test run: a real control plane, nodes played by kwok, tools, and clients of any rights."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config

from tests.kube import binaries as built
from tests.kube.control_plane import HOST, ControlPlane
from tests.kube.kubeconfig import write_kubeconfig
from tests.kube.kuberay_crds import OPENAPI_PATH, kuberay_crds
from tests.kube.nodes import NODE_KINDS, NodeKind, node_manifest
from tests.kube.wait import eventually

ROOT = Path(__file__).parents[2]
KUBERAY_CRDS = ROOT.parent / "shared" / "kuberay-crds"
"""Where KubeRay's own CRDs are looked for."""
KUBERAY_CRD_NAMES = ("rayclusters.ray.io", "rayjobs.ray.io")
NODE_LETTERS = "ab"
"""The cluster begins with a node of each kind for each letter: spot-gpu-a, spot-gpu-b."""


class CommandFailed(subprocess.CalledProcessError):
    """A command line tool failed; says what it said."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stdout or ''}{self.stderr or ''}"


class Cluster:
    """A context manager: started on entry; on exit everything is stopped, and its files go (logs too, unless kept).

    On an address other than the loopback there are no played nodes: real ones have to join.

    with Cluster() as cluster:
        cluster.kubectl("apply", "-f", "-", input=manifest)
    """

    def __init__(
        self,
        workdir: Path | None = None,
        *,
        kuberay: bool = True,
        keep: bool = False,
        host: str = HOST,
        binaries: Iterable[str] = built.CONTROL_PLANE,
    ) -> None:
        self._own_workdir = workdir is None
        self._keep = keep
        self._kuberay = kuberay
        self.workdir = workdir or Path(tempfile.mkdtemp(prefix="rlcore-cluster-"))
        self.binaries: Mapping[str, Path] = built.ensure(binaries)
        self.control_plane = ControlPlane(self.workdir, self.binaries, host=host)
        self._played = host == HOST
        self.kubeconfig = self.control_plane.kubeconfig
        self.server = self.control_plane.server
        self.api: client.ApiClient = _api_client(self.kubeconfig)
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything; pods can be made and land on nodes when this returns."""
        try:
            self.control_plane.start()
            if self._played:
                self.apply(_storage_class(), *_first_nodes())
            if self._kuberay:
                self.install_kuberay_crds()
            eventually(self._usable, 120, what="a usable cluster")
        except BaseException as error:
            error.add_note(self.control_plane.tails())
            self.stop()
            raise

    def stop(self) -> None:
        """Stops everything and removes what is on the disk; only the logs stay, in a workdir that was given."""
        with contextlib.suppress(Exception):
            self._remove_volumes()
        self.api.close()
        self.control_plane.stop()
        if self._keep:
            return
        shutil.rmtree(self.workdir / "etcd", ignore_errors=True)
        if self._own_workdir:
            shutil.rmtree(self.workdir, ignore_errors=True)

    def stop_api_server(self) -> None:
        """The API server is gone, as in a crash."""
        self.control_plane.api_server.kill()

    def start_api_server(self) -> None:
        """It is back, on the same port, and ready."""
        self.control_plane.start_api_server()

    def restart_api_server(self) -> None:
        """A crash, and a start on the same port; the data are kept."""
        self.stop_api_server()
        self.start_api_server()

    def kubectl(
        self,
        *args: str | Path,
        input: str | None = None,  # noqa: A002  (as in subprocess.run)
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl, as admin unless another kubeconfig is given. Raises CommandFailed."""
        return self._tool("kubectl", args, input, check, kubeconfig)

    def helm(
        self,
        *args: str | Path,
        input: str | None = None,  # noqa: A002
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs helm, as admin unless another kubeconfig is given. Raises CommandFailed."""
        return self._tool("helm", args, input, check, kubeconfig)

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Server-side apply of objects, as admin."""
        items = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(items))

    def token_for(self, namespace: str, service_account: str) -> str:
        """A token of that ServiceAccount, as a pod would get it; good for a day."""
        request = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=24 * 3600)
        )
        answer = client.CoreV1Api(self.api).create_namespaced_service_account_token(service_account, namespace, request)
        assert answer.status
        return str(answer.status.token)

    def kubeconfig_for(self, namespace: str, service_account: str, server: str | None = None) -> Path:
        """A kubeconfig of that ServiceAccount (which must exist), for this server or a proxy in front of it."""
        return write_kubeconfig(
            self.workdir / "kubeconfigs" / f"{namespace}-{service_account}-{next(self._numbers)}",
            server or self.server,
            self.control_plane.authority.certificate,
            self.token_for(namespace, service_account),
            namespace,
        )

    def create_namespace(self, name: str) -> None:
        """Makes a namespace; pods can be made in it when this returns."""
        core = client.CoreV1Api(self.api)
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
        eventually(lambda: core.read_namespaced_service_account("default", name), what=f"service account of {name}")

    def add_node(self, kind: NodeKind, name: str | None = None) -> str:
        """Adds a node of a kind; pods can land there soon after. Returns its name."""
        name = name or f"{kind}-{next(self._numbers)}"
        self.apply(node_manifest(kind, name))
        return name

    def remove_node(self, name: str) -> None:
        """Removes a node as a cloud takes one back: its pods are left behind, without anyone to run them."""
        client.CoreV1Api(self.api).delete_node(name)

    def install_kuberay_crds(self) -> None:
        """Installs RayCluster and RayJob: KubeRay's own where they are at hand, else ones made for the purpose."""
        documents = [path.read_bytes() for path in sorted(KUBERAY_CRDS.glob("ray.io_*.yaml"))]
        if not documents:
            openapi = json.loads(self.control_plane.request(OPENAPI_PATH))
            documents = [json.dumps(crd).encode() for crd in kuberay_crds(openapi)]
        for document in documents:
            # A megabyte each: kubectl would take seconds over what the server reads in a fraction of one.
            self.create_unless_there("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
        eventually(self._serves_kuberay, 60, what="RayCluster and RayJob in the API")

    def remove_kuberay_crds(self) -> None:
        """Removes RayCluster and RayJob, and with them every object of these kinds."""
        self.kubectl("delete", "crd", "--ignore-not-found", *KUBERAY_CRD_NAMES)

    def create_unless_there(self, path: str, yaml_document: bytes) -> None:
        """Posts one YAML document to a path of the API, as admin; one that is there already stays as it is."""
        try:
            self.control_plane.request(path, body=yaml_document, content_type="application/yaml")
        except urllib.error.HTTPError as error:
            with error:
                if error.code != HTTPStatus.CONFLICT:
                    raise AssertionError(f"POST {path}: {error}: {error.read().decode()}") from None

    def _serves_kuberay(self) -> bool:
        served = json.loads(self.control_plane.request("/apis/ray.io/v1"))["resources"]
        return {"rayclusters", "rayjobs"} <= {resource["name"] for resource in served}

    def _tool(
        self, name: str, args: Iterable[str | Path], text: str | None, check: bool, kubeconfig: Path | None
    ) -> subprocess.CompletedProcess[str]:
        command = [str(self.binaries[name]), *map(str, args)]
        home = self.workdir / "home"
        environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            # What they remember of other clusters on the same port must not be believed.
            "KUBECACHEDIR": str(home / "kube-cache"),
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }
        done = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if check and done.returncode:
            raise CommandFailed(done.returncode, command, done.stdout, done.stderr)
        return done

    def _usable(self) -> bool:
        """All nodes are ready and free of the taints of a new node, and the first service account is there."""
        core = client.CoreV1Api(self.api)
        core.read_namespaced_service_account("default", "default")
        nodes = [node.spec for node in core.list_node().items if node.spec]
        taints = [taint.key for node in nodes for taint in node.taints or ()]
        new = [key for key in taints if key.startswith("node.kubernetes.io/")]
        return not self._played or (len(nodes) == len(_first_nodes()) and not new)

    def _remove_volumes(self) -> None:
        """Removes the empty folders that the controller manager made on this machine for claims."""
        for volume in client.CoreV1Api(self.api).list_persistent_volume(_request_timeout=5).items:
            source = volume.spec and volume.spec.host_path
            if source and Path(source.path).parent.name == "hostpath_pv":
                with contextlib.suppress(OSError):
                    Path(source.path).rmdir()


def _api_client(kubeconfig: Path) -> client.ApiClient:
    settings = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=settings)
    settings.proxy = None
    return client.ApiClient(settings)


def _first_nodes() -> list[dict[str, Any]]:
    return [node_manifest(kind, f"{kind}-{letter}") for kind in NODE_KINDS for letter in NODE_LETTERS]


def _storage_class() -> dict[str, Any]:
    """The default class: claims of it are bound at once, to folders that the controller manager makes."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "test", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/host-path",
        "volumeBindingMode": "Immediate",
        "reclaimPolicy": "Delete",
    }
