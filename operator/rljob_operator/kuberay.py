"""Whether KubeRay's resources are served: they may come after the operator, go, and come again."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rljob_operator import names
from rljob_operator.kube import ApiError, Kube

logger = logging.getLogger("rljob_operator")

POLL_S, SEEN_POLL_S = 3.0, 15.0
"""Between two looks while it is missing, and while it is there."""

NEEDED = frozenset({"rayjobs", "rayclusters"})


class KubeRay:
    """What is known of it; looked up now and then, and at once where there is reason to doubt it."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._served: frozenset[str] = frozenset()
        self._doubted = asyncio.Event()

    @property
    def is_there(self) -> bool:
        """Whether RayJobs and RayClusters are both served."""
        return self._served == NEEDED

    def doubt(self) -> None:
        """Something was not found that should be there."""
        self._doubted.set()

    async def look(self) -> None:
        """Asks the API server. Raises ApiError."""
        # A group is listed a while after it is served, and watches begin with the list.
        groups = await self._kube.read("apis")
        listed = [group for group in groups.get("groups") or [] if group.get("name") == names.RAY_GROUP]
        versions = [version.get("version") for group in listed for version in group.get("versions") or []]
        served: set[str] = set()
        if names.RAY_VERSION in versions:
            found = await self._kube.read(f"apis/{names.RAY_GROUP}/{names.RAY_VERSION}")
            served = {str(resource.get("name")) for resource in found.get("resources") or []}
        self._served = NEEDED & served

    async def change(self) -> None:
        """Returns as soon as what is served is not what it was."""
        before = self._served
        while self._served == before:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._doubted.wait(), SEEN_POLL_S if self.is_there else POLL_S)
            self._doubted.clear()
            try:
                await self.look()
            except ApiError as error:
                logger.debug("cannot see whether KubeRay is there: %s", error)
        logger.info("KubeRay: served=%s", ",".join(sorted(self._served)) or "nothing")
