"""What the API server's answers mean for a user: status codes and bodies to errors with hints. Pure functions.

KubeError(UserError)           an answer that is no success; `code` and `reason` tell which
└── Unreachable                no answer at all: nothing listens, a time-out, a certificate nobody trusts
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.api.crd import PLURAL
from rlcore.api.rljob import GROUP, KIND, VERSION
from rlcore.errors import UserError

INSTALL = "helm install rljob-operator charts/rljob-operator --namespace rljob-system --create-namespace"
MAX_CAUSES = 20

_RBAC = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"')
_STRICT = "strict decoding error: "
_NOT_TYPED = re.compile(r"^failed to create typed patch object \([^)]*\):\s*")
_KUBELET = re.compile(r"error dialing backend|dial tcp|/containerLogs/|proxy error from", re.IGNORECASE)
_REQUEST_LINE = re.compile(r'^.*(Get|Post) "[^"]*": ')


@dataclass(frozen=True)
class Asked:
    """What was asked of the API server.

    Attributes:
        verb: of RBAC: get, list, watch, patch, create.
        resource: plural name, with the subresource if any: "pods/exec".
        group: its API group; empty for the core one.
        namespace: empty: all of them.
        name: of the object; empty: several.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def kind(self) -> str:
        """For people: RLJob, pod, rayjob."""
        singular = self.resource.split("/")[0].removesuffix("s")
        return KIND if singular == KIND.lower() else singular

    @property
    def scope(self) -> str:
        """For people: in namespace training, in all namespaces."""
        return f"in namespace {self.namespace}" if self.namespace else "in all namespaces"


class KubeError(UserError):
    """The API server answered with something else than success.

    Args:
        code: HTTP status code; 0 where there was no answer.
        reason: the Status object's one word, such as NotFound, or empty.
    """

    def __init__(self, message: str, *, hint: str | None = None, code: int = 0, reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.reason = reason


class Unreachable(KubeError):  # noqa: N818 - it is the cluster that cannot be reached
    """No answer came."""


def refusal(code: int, body: bytes | str, asked: Asked) -> KubeError:
    """The error for an answer that is no success."""
    status = _status_object(body)
    message = str(status.get("message") or "") or _text(body)
    causes = _causes(status)
    reason = str(status.get("reason") or "")
    if code == 401:
        error = KubeError(
            "the cluster does not accept your credentials (401 Unauthorized)",
            hint="log in again; `kubectl auth whoami` says who you are to the cluster",
        )
    elif code == 403:
        error = _forbidden(message, asked)
    elif code == 404:
        error = _not_found(status, asked)
    elif code == 409 and any(cause.reason == "FieldManagerConflict" for cause in causes):
        error = _apply_conflict(causes, asked)
    elif code in (400, 422) or _NOT_TYPED.match(message):
        error = _invalid(message, causes, asked)
    elif code >= 500 and _KUBELET.search(message):
        error = KubeError(
            f"the API server cannot reach the kubelet of {asked.name}'s node: "
            f"{_REQUEST_LINE.sub('', _first_line(message))}",
            hint=f"is the node up? `kubectl get pod {asked.name} -n {asked.namespace} -o wide` names it",
        )
    else:
        what = _first_line(message) or "no reason given"
        error = KubeError(f"the API server refused to {asked.verb} {asked.resource} {asked.scope} ({code}): {what}")
    error.code, error.reason = code, reason
    return error


def no_such_job(name: str, namespace: str, names: Sequence[str], *, near: Sequence[str]) -> KubeError:
    """There is no RLJob of this name.

    Args:
        names: the RLJobs that there are in the namespace.
        near: those of them that look alike, nearest first.
    """
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        shown = ", ".join(sorted(names)[:10])
        hint = f"there are: {shown}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    else:
        hint = f"namespace {namespace} has no {KIND}; `rlcore status -A` lists those of all namespaces"
    return KubeError(f"there is no {KIND} {name} in namespace {namespace}", hint=hint, code=404, reason="NotFound")


@dataclass(frozen=True)
class Cause:
    """One entry of Status.details.causes."""

    reason: str
    message: str
    field: str


def _causes(status: Mapping[str, Any]) -> list[Cause]:
    details = status.get("details")
    entries = details.get("causes") if isinstance(details, dict) else None
    return [
        Cause(*(str(entry.get(key) or "") for key in ("reason", "message", "field")))
        for entry in entries or []
        if isinstance(entry, dict)
    ]


def _forbidden(message: str, asked: Asked) -> KubeError:
    rbac = _RBAC.search(message)
    if rbac is None:
        # Not RBAC: an admission policy, a quota, a namespace that is being deleted.
        return KubeError(f"the cluster refused to {asked.verb} {asked.resource} {asked.scope}: {_first_line(message)}")
    verb, resource = rbac["verb"], rbac["resource"]
    where = f" -n {asked.namespace}" if asked.namespace else " --all-namespaces"
    full = f"{resource}.{asked.group}" if asked.group and "/" not in resource else resource
    return KubeError(
        f'you ({rbac["user"]}) may not {verb} {resource} in API group "{asked.group}" {asked.scope}',
        hint=f"ask for a Role with this verb and resource; `kubectl auth can-i {verb} {full}{where}` checks it",
    )


def _not_found(status: Mapping[str, Any], asked: Asked) -> KubeError:
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    if details.get("kind") == "namespaces":
        namespace = details.get("name") or asked.namespace
        return KubeError(
            f"there is no namespace {namespace}",
            hint=f"make it with `kubectl create namespace {namespace}`, or choose another one with -n",
        )
    if details.get("name"):
        return KubeError(f"there is no {asked.kind} {details['name']} {asked.scope}")
    if asked.group == GROUP:
        return KubeError(
            f"the cluster does not know {KIND} ({GROUP}/{VERSION}): its CustomResourceDefinition "
            f"{PLURAL}.{GROUP} is not installed",
            hint=f"install the operator: {INSTALL}",
        )
    return KubeError(f'the cluster does not know {asked.resource} of API group "{asked.group}"')


def _apply_conflict(causes: Sequence[Cause], asked: Asked) -> KubeError:
    head = f"others have set fields of {asked.kind} {asked.name} that your manifest sets to something else"
    fields = [f"{field_path(cause.field)}: {_owner(cause.message)}" for cause in causes]
    return KubeError(
        "\n".join([head, *_indented(fields)]),
        hint="leave these fields out of the manifest to keep their values, or take them over with --force-conflicts",
    )


def _owner(message: str) -> str:
    """'conflict with "kubectl" using rlcore.io/v1alpha1' -> 'set by kubectl'."""
    match = re.search(r'conflict with "([^"]+)"', message)
    return f"set by {match[1]}" if match else message


def _invalid(message: str, causes: Sequence[Cause], asked: Asked) -> KubeError:
    """The server found the manifest wrong: one line for each field."""
    # Rules between fields wait until the fields themselves are right; the server says so at no field.
    lines = [_cause_line(cause) for cause in causes if cause.field != "<nil>"] or _untyped_problems(message)
    distinct = list(dict.fromkeys(lines))
    changed = any("cannot change after creation" in line for line in distinct)
    return KubeError(
        "\n".join([f"the API server refused {asked.kind} {asked.name}", *_indented(distinct)]),
        hint="delete the job first, or give the manifest another name: its checkpoints fit the old job only"
        if changed
        else None,
    )


def _cause_line(cause: Cause) -> str:
    text = cause.message.replace(f"{cause.field} in body ", "")
    return f"{field_path(cause.field)}: {text}" if cause.field else text


def _untyped_problems(message: str) -> list[str]:
    """The problems in a message without causes, one each: unknown fields, wrong types, or the message itself."""
    if _STRICT in message:
        return [part.strip() for part in message.split(_STRICT, 1)[1].split(", ") if part.strip()]
    text = _NOT_TYPED.sub("", message).removeprefix("errors:")
    return [line.strip().removeprefix(".") for line in text.splitlines() if line.strip()] or ["no reason given"]


def _indented(lines: Sequence[str]) -> list[str]:
    """The first lines of a list that may be long, and how many were left out."""
    left_out = len(lines) - MAX_CAUSES
    return [f"  {line}" for line in lines[:MAX_CAUSES]] + ([f"  and {left_out} more"] if left_out > 0 else [])


def field_path(field: str) -> str:
    """A field's path as manifests spell it, without a leading dot."""
    return field.removeprefix(".") or "the object"


def _status_object(body: bytes | str) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.get("kind") == "Status" else {}


def _text(body: bytes | str) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    return text.strip()[:500]


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
