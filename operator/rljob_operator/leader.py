"""Leader election by a Lease: of several replicas one acts. Losing the Lease ends the process.

A holder that stays silent is judged by one's own clock: clocks of different machines are never compared. A graceful end
gives the Lease back, so that the next replica takes over at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rljob_operator.kube import ApiError, Kube
from rljob_operator.metrics import LEADER

logger = logging.getLogger("rljob_operator")

LEASES = "apis/coordination.k8s.io/v1"


class LeaderElection:
    """Takes, renews and gives back one Lease.

    Args:
        kube: the API server.
        namespace: of the Lease.
        name: of the Lease.
        identity: of this replica, unique.
        lease_s: a holder silent for so long has lost it; renewed every fifth of it, more often after a failure.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        lease_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._namespace, self._name, self._identity = kube, namespace, name, identity
        self._lease_s, self._clock = lease_s, clock
        self._seen: tuple[str, str] | None = None
        self._seen_s = 0.0
        self._renewed_s = float("-inf")
        self._lost = False

    @property
    def retry_s(self) -> float:
        """Seconds between two tries."""
        return self._lease_s / 5

    @property
    def leads(self) -> bool:
        """Whether nobody else can have the Lease by now; false the moment a renewal is overdue."""
        return not self._lost and self._clock() - self._renewed_s < self._lease_s

    async def acquire(self) -> None:
        """Waits until this replica leads."""
        waiting = False
        while not await self._try_safely():
            if not waiting:
                logger.info("standby: waiting for lease %s/%s", self._namespace, self._name)
                waiting = True
            await asyncio.sleep(self.retry_s)
        LEADER.set(1)
        logger.info("leading: identity=%s lease=%s/%s", self._identity, self._namespace, self._name)

    async def keep(self) -> None:
        """Renews until it cannot any more; returns then, and nothing may be done after it.

        It gives up after two thirds of the Lease: a third is left to end in.
        """
        wait_s = self.retry_s
        while (left_s := self._renewed_s + self._lease_s * 2 / 3 - self._clock()) > 0:
            await asyncio.sleep(min(wait_s, left_s))
            try:
                if not await asyncio.wait_for(self._try(), min(self.retry_s * 2, left_s)):
                    break  # somebody else has it
                wait_s = self.retry_s
            except (ApiError, TimeoutError) as error:
                logger.warning("lease not renewed: %s", error or "no answer in time")
                wait_s = self.retry_s / 3
        self._lost = True
        LEADER.set(0)
        logger.error("lease %s/%s lost", self._namespace, self._name)

    async def release(self) -> None:
        """Gives the Lease back, where it is ours."""
        LEADER.set(0)
        if self._lost:
            return
        self._lost = True
        try:
            lease = await self._kube.get(LEASES, "leases", self._namespace, self._name)
            if lease is None or (lease.get("spec") or {}).get("holderIdentity") != self._identity:
                return
            lease["spec"] = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._kube.replace(LEASES, "leases", lease)
        except ApiError as error:
            logger.warning("lease not given back: %s", error)

    async def _try_safely(self) -> bool:
        try:
            return await self._try()
        except ApiError as error:
            logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False

    async def _try(self) -> bool:
        """Takes or renews the Lease if that is allowed now."""
        begun_s = self._clock()
        if not await self._take_or_renew():
            return False
        self._renewed_s = begun_s
        return True

    async def _take_or_renew(self) -> bool:
        lease = await self._kube.get(LEASES, "leases", self._namespace, self._name)
        if lease is None:
            await self._kube.create(LEASES, "leases", {"metadata": self._metadata(), "spec": self._spec(0, None)})
            return True
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder and holder != self._identity and not self._is_silent(holder, str(spec.get("renewTime")), spec):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        acquired = spec.get("acquireTime") if holder == self._identity else None
        # 409 where another one was faster: the next try sees who.
        await self._kube.replace(LEASES, "leases", {**lease, "spec": self._spec(transitions, acquired)})
        return True

    def _is_silent(self, holder: str, renewed: str, spec: dict[str, Any]) -> bool:
        if (holder, renewed) != self._seen:
            self._seen, self._seen_s = (holder, renewed), self._clock()
            return False
        limit_s = max(self._lease_s, float(spec.get("leaseDurationSeconds") or 0))
        return self._clock() - self._seen_s > limit_s

    def _metadata(self) -> dict[str, Any]:
        return {"name": self._name, "namespace": self._namespace}

    def _spec(self, transitions: int, acquired: str | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._lease_s)),
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
