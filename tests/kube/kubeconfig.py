"""Kubeconfig files."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kube.pki import KeyPair


def write_kubeconfig(
    path: Path, server: str, authority: Path, identity: KeyPair | str, namespace: str = "default"
) -> Path:
    """Writes a kubeconfig for one server; the identity is a client certificate, or a bearer token."""
    if isinstance(identity, KeyPair):
        user = {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
    else:
        user = {"token": identity}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "test", "user": user}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))
    return path
