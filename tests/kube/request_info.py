"""What a request asks of a Kubernetes API: the verb and the resource, as RBAC and audit logs name them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class RequestInfo(NamedTuple):
    """`("patch", "rljobs/status")`; requests for no resource have their method and path: `("get", "/version")`."""

    verb: str
    resource: str


def request_info(method: str, path: str) -> RequestInfo:
    """Reads verb and resource off a method and a path with its query.

    >>> request_info("GET", "/apis/rlcore.io/v1alpha1/rljobs?watch=true")
    RequestInfo(verb='watch', resource='rljobs')
    >>> request_info("PATCH", "/apis/rlcore.io/v1alpha1/namespaces/ns/rljobs/job/status")
    RequestInfo(verb='patch', resource='rljobs/status')
    """
    url = urlsplit(path)
    parts = [part for part in url.path.split("/") if part]
    prefix = {"api": 2, "apis": 3}.get(parts[0] if parts else "")
    if prefix is None or len(parts) <= prefix:
        return RequestInfo(method.lower(), url.path)
    rest = parts[prefix:]
    # /namespaces/NAME/RESOURCE..., but /namespaces/NAME/status is the namespace's own.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    verb = VERBS.get(method, method.lower())
    if method == "GET" and parse_qs(url.query).get("watch", ["0"])[0].lower() in ("true", "1"):
        verb = "watch"
    elif method in ("GET", "DELETE") and not name:
        verb = {"GET": "list", "DELETE": "deletecollection"}[method]
    return RequestInfo(verb, f"{resource}/{subresource}" if subresource else resource)
