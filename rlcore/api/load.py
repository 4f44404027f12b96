"""From a manifest's file to an RLJob, or to everything that is wrong with it."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from rlcore.api.problems import InvalidManifestError, Problem
from rlcore.api.rljob import KIND, RLJob
from rlcore.api.yaml_tree import Node, YamlTextError, parse_documents
from rlcore.errors import ManifestError

MAX_SIZE_BYTES = 1024 * 1024
"""The API server stores no object larger than about this."""


def load_job(path: str | Path) -> RLJob:
    """The RLJob in a YAML or JSON file.

    Raises:
        ManifestError: the file cannot be read, or it holds no valid RLJob; the text lists every problem.
    """
    return parse_job(_read(Path(path)), source=str(path))


def parse_job(text: str, *, source: str) -> RLJob:
    """The RLJob in a YAML or JSON text.

    Other Kubernetes objects, such as a ConfigMap with the environment's code, may stand beside it in the same stream.

    Args:
        text: the manifest.
        source: name of the file, for messages.

    Raises:
        ManifestError: there is not exactly one RLJob, or it is not valid; the text lists every problem.
    """
    try:
        node = _the_one_job(parse_documents(text), source)
    except YamlTextError as error:
        raise InvalidManifestError(source, [Problem("", error.message, error.line)]) from error
    try:
        # A manifest's names are camelCase only: the API server knows no others.
        return RLJob.model_validate(node.value, by_alias=True, by_name=False, context={"manifest": True})
    except ValidationError as error:
        from rlcore.api.explain import explain_all

        raise InvalidManifestError(source, explain_all(error, node)) from None


def _read(path: Path) -> str:
    """The text of a file, or a ManifestError that says why there is none."""
    try:
        if path.is_dir():
            raise ManifestError(f"{path} is a directory, not a manifest", hint=_directory_hint(path))
        data = path.read_bytes()
    except FileNotFoundError:
        raise ManifestError(f"{path} does not exist", hint="give the path of an RLJob manifest") from None
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_SIZE_BYTES:
        raise ManifestError(f"{path} has {len(data)} bytes, too large for a manifest; at most {MAX_SIZE_BYTES}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}") from None


def _directory_hint(path: Path) -> str:
    manifests = sorted(entry.name for entry in path.iterdir() if entry.suffix in (".yaml", ".yml", ".json"))
    return f"it holds {', '.join(manifests[:5])}" if manifests else "give the path of an RLJob manifest"


def _the_one_job(documents: list[Node], source: str) -> Node:
    """The only RLJob of a stream."""
    if not documents:
        raise ManifestError(f"{source} is empty", hint="see examples/cartpole-ppo.yaml for a manifest")
    jobs = [node for node in documents if isinstance(node.value, dict) and node.value.get("kind") == KIND]
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        lines = " and ".join(str(node.line) for node in jobs)
        message = f"{len(jobs)} RLJobs in one file, on lines {lines}: put each into a file of its own"
        raise InvalidManifestError(source, [Problem("", message, jobs[1].line)])
    raise InvalidManifestError(source, [_not_a_job(node) for node in documents])


def _not_a_job(node: Node) -> Problem:
    if not isinstance(node.value, dict):
        kind = "a list" if isinstance(node.value, list) else "a single value"
        return Problem("", f"the document is {kind}, not a mapping with apiVersion, kind, metadata and spec", node.line)
    if "kind" not in node.value:
        return Problem("kind", f"is required and missing; write kind: {KIND}", node.line)
    return Problem("kind", f"{node.value['kind']!s:.60} is not {KIND}", node.line_at(("kind",)))
