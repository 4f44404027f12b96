"""A cache of all objects of one kind, kept by list and watch; it outlives restarts of the API server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import aiohttp

from tests.kuberay.api import Api, ApiError, Resource
from tests.kuberay.names import Object, key_of

Key = tuple[str, str]
Handler = Callable[[Object | None, Object | None], None]
"""Called with the object as it was (None: new) and as it is (None: deleted)."""

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_UNSERVED_S = 15.0
"""After so long a kind that is not served has no objects."""


class Informer:
    """Objects by (namespace, name). Own writes are put in at once, so that no decision rests on an older state."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        *,
        label_selector: str = "",
        group_by: Callable[[Object], Key | None] = lambda _: None,
        trim: Callable[[Object], Object] = lambda item: item,
    ) -> None:
        self._api, self._resource, self._label_selector = api, resource, label_selector
        self._group_by, self._trim = group_by, trim
        self._objects: dict[Key, Object] = {}
        self._groups: defaultdict[Key, set[Key]] = defaultdict(set)
        self._deleted: dict[str, int] = {}
        self.handlers: list[Handler] = []
        self.synced = asyncio.Event()

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def group(self, namespace: str, name: str) -> list[Object]:
        """The objects that `group_by` puts together, oldest first."""
        members = [self._objects[key] for key in self._groups.get((namespace, name), ())]
        return sorted(members, key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def put(self, item: Object) -> None:
        """Takes in an object as the server last answered; an older state than the known one changes nothing."""
        item["metadata"].pop("managedFields", None)
        key, known = key_of(item), self._objects.get(key_of(item))
        if item["metadata"]["uid"] in self._deleted or (known is not None and _version(known) >= _version(item)):
            return
        item = self._trim(item)
        self._objects[key] = item
        if group := self._group_by(item):
            self._groups[group].add(key)
        self._notify(known, item)

    def remove(self, item: Object) -> None:
        """The object is gone."""
        key, known = key_of(item), self._objects.get(key_of(item))
        self._deleted[item["metadata"]["uid"]] = _version(item)
        if known is None or known["metadata"]["uid"] != item["metadata"]["uid"]:
            return
        del self._objects[key]
        if group := self._group_by(known):
            self._groups[group].discard(key)
            if not self._groups[group]:
                del self._groups[group]
        self._notify(known, None)

    async def run(self) -> None:
        """Follows the server for ever."""
        pause_s, unserved_since_s = _FIRST_PAUSE_S, None
        while True:
            try:
                version = await self._list()
                pause_s, unserved_since_s = _FIRST_PAUSE_S, None
                while True:
                    version = await self._watch(version)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                if isinstance(error, ApiError) and error.status == 404:
                    unserved_since_s = unserved_since_s or time.monotonic()
                    self._not_served(time.monotonic() - unserved_since_s)
                elif not (isinstance(error, ApiError) and error.status == 410):
                    _LOG.info("list and watch of %s: %s", self._resource.plural, error or type(error).__name__)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _list(self) -> str:
        answer = await self._api.list(self._resource, self._label_selector)
        version = answer["metadata"]["resourceVersion"]
        present = set()
        for item in answer["items"]:
            # Items of a list of a built-in kind do not say what they are.
            item["apiVersion"], item["kind"] = self._resource.api_version, self._resource.kind
            present.add(item["metadata"]["uid"])
            self.put(item)
        for item in self:
            if item["metadata"]["uid"] not in present and _version(item) <= int(version):
                self.remove(item)
        self.synced.set()
        return version

    async def _watch(self, version: str) -> str:
        self._deleted = {uid: since for uid, since in self._deleted.items() if since > int(version)}
        async for event in self._api.watch(self._resource, version, self._label_selector):
            item = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(item.get("code", 500), item.get("reason", ""), item.get("message", ""))
            version = item["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                self.remove(item)
            elif event["type"] != "BOOKMARK":
                self.put(item)
        return version

    def _not_served(self, since_s: float) -> None:
        """There is no such CRD: for good, or for a moment after the API server has started."""
        self.synced.set()
        if since_s < _UNSERVED_S:
            return
        forgotten, self._objects = list(self._objects.values()), {}
        self._groups.clear()
        for item in forgotten:
            self._notify(item, None)

    def _notify(self, old: Object | None, new: Object | None) -> None:
        for handler in self.handlers:
            handler(old, new)


def _version(item: Object) -> int:
    """Resource versions of one kind grow: with etcd behind them they are its revisions."""
    return int(item["metadata"]["resourceVersion"])
