"""Which resources are served: KubeRay's and our own may come after the operator, go, and come again.

kopf could follow CustomResourceDefinitions, but a resource is served and listed a while after its definition changed
for the last time, and whoever looks too early never looks again. It also takes rights in the whole cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rljob_operator import names
from rljob_operator.kube import ApiError, Kube

logger = logging.getLogger("rljob_operator")

MISSING_POLL_S, POLL_S = 3.0, 15.0
"""Between two looks where something is missing, and where nothing is."""

KUBERAY = frozenset({"rayjobs", "rayclusters"})
WATCHED = {
    f"{names.RAY_GROUP}/{names.RAY_VERSION}": KUBERAY,
    f"{names.GROUP}/{names.VERSION}": frozenset({names.PLURAL}),
}
EVERYTHING = frozenset().union(*WATCHED.values())


class Served:
    """What is known of it; looked up from time to time, and at once where there is reason to doubt it."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._served: frozenset[str] = frozenset()
        self._doubted = asyncio.Event()

    @property
    def kuberay(self) -> bool:
        """Whether RayJobs and RayClusters are both there."""
        return self._served >= KUBERAY

    def doubt(self) -> None:
        """Something was not found that should be there."""
        self._doubted.set()

    async def look(self) -> None:
        """Asks the API server. Raises ApiError."""
        # A group is listed a while after it is served, and watches begin with the list.
        listed = {
            str(version.get("groupVersion"))
            for group in (await self._kube.read("apis")).get("groups") or []
            for version in group.get("versions") or []
        }
        served: set[str] = set()
        for group_version in listed & WATCHED.keys():
            found = await self._kube.read(f"apis/{group_version}")
            served |= WATCHED[group_version] & {str(resource.get("name")) for resource in found.get("resources") or []}
        self._served = frozenset(served)

    async def change(self) -> None:
        """Returns as soon as what is served is not what it was."""
        before = self._served
        while self._served == before:
            with contextlib.suppress(TimeoutError):
                wait_s = POLL_S if before == EVERYTHING else MISSING_POLL_S
                await asyncio.wait_for(self._doubted.wait(), wait_s)
            self._doubted.clear()
            try:
                await self.look()
            except ApiError as error:
                logger.debug("cannot see what is served: %s", error)
        logger.info("resources are served or missing anew: served=%s", ",".join(sorted(self._served)) or "none")
