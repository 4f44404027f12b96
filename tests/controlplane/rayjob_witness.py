"""What became of a namespace's RayJobs, moment by moment, as a watch saw it."""

from __future__ import annotations

import json
from typing import Any, Self

from tests.kube.cluster import Cluster
from tests.kube.process import Daemon


class RayJobWitness:
    """A context manager; watches from the start of the with block to its end.

    Attributes:
        made: (name, uid) of every RayJob, in the order in which they were made.
        overlaps: (name, name) of RayJobs of which the second was made before the deletion of the first had begun.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.made: list[tuple[str, str]] = []
        self.overlaps: list[tuple[str, str]] = []
        watch = ("get", "rayjobs", "--watch", "--output-watch-events", "-o", "json", "-n", namespace)
        command = [cluster.binaries["kubectl"], "--kubeconfig", cluster.kubeconfig, *watch]
        self._log = cluster.workdir / f"rayjobs-{namespace}.json"
        self._daemon = Daemon("witness", command, log=self._log)

    def __enter__(self) -> Self:
        self._daemon.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._daemon.stop()
        self._judge(_documents(self._log.read_text()))

    def _judge(self, events: list[dict[str, Any]]) -> None:
        alive: dict[str, str] = {}
        for event in events:
            metadata = event["object"]["metadata"]
            name, uid = metadata["name"], metadata["uid"]
            if (name, uid) not in self.made:
                self.made.append((name, uid))
                self.overlaps += [(other, name) for other in alive.values()]
                alive[uid] = name
            if event["type"] == "DELETED" or metadata.get("deletionTimestamp"):
                alive.pop(uid, None)


def _documents(text: str) -> list[dict[str, Any]]:
    decoder, documents, position = json.JSONDecoder(), [], 0
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip())
        try:
            document, position = decoder.raw_decode(text, position)
        except ValueError:
            break  # the last one was cut short
        documents.append(document)
    return documents
