"""Two replicas of the operator: one acts, the other stands by, and never both act."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controlplane.conftest import fresh_namespace
from tests.controlplane.operated import Job, Stage
from tests.kube.operator_process import OperatorProcess
from tests.kube.proxy import FaultProxy
from tests.kube.wait import eventually

pytestmark = pytest.mark.timeout(240)

LEASE_S = 6.0
TAKE_OVER_S = LEASE_S * 1.2 + 4.0
"""A silent leader's Lease runs out; the standby looks five times a Lease, and then begins to work."""

AT_ONCE_S = LEASE_S - 2.0
"""A Lease that was given back is taken at the next look."""

LOST_LEASE = 3
WRITES = ("create", "update", "patch", "delete", "deletecollection")
SETTINGS: dict[str, Any] = {"leaderElection": {"leaseSeconds": LEASE_S}, "times": {"liveStatusSeconds": 3600}}
SLOW, FAST = {"timestepsPerS": 1_000}, {"timestepsPerS": 1_000_000}


@dataclass
class Replica:
    """One operator, behind a proxy of its own."""

    operator: OperatorProcess
    proxy: FaultProxy

    @property
    def leads(self) -> bool:
        return self.operator.alive and self.operator.metric("rljob_operator_leader") == 1.0

    @property
    def acts(self) -> int:
        """Writes so far, of anything but Leases."""
        counts = dict(self.proxy.counts)
        return sum(n for (verb, resource), n in counts.items() if verb in WRITES and resource != "leases")

    def comes_to_lead(self, deadline_s: float) -> None:
        eventually(lambda: self.leads, deadline_s, what=f"{self.operator.log.stem} leads")


@dataclass
class Replicas:
    """Both of them."""

    members: tuple[Replica, Replica]

    def both(self) -> tuple[Replica, Replica]:
        """Leader and standby; those that ended are started."""
        for member in self.members:
            member.proxy.heal()
            if not member.operator.alive:
                member.operator.start()
        eventually(lambda: any(member.leads for member in self.members), TAKE_OVER_S, what="a leader")
        leader, standby = sorted(self.members, key=lambda member: not member.leads)
        assert not standby.leads
        return leader, standby


@pytest.fixture(scope="module")
def replicas(stage: Stage) -> Iterator[Replicas]:
    """Two operators, started where they are wanted."""
    with ExitStack() as stack:
        members = []
        for name in ("replica-a", "replica-b"):
            proxy = stack.enter_context(FaultProxy(stage.cluster))
            operator = OperatorProcess(stage.cluster, SETTINGS, name=name, server=proxy.url)
            stack.callback(operator.stop)
            operator.start()
            members.append(Replica(operator, proxy))
        yield Replicas((members[0], members[1]))


@pytest.fixture
def job(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Job]:
    with fresh_namespace(stage.cluster, request.node.name) as namespace:
        job = Job(stage.cluster, namespace, "cartpole-ppo")
        yield job
        job.kubectl("delete", "rlj", "--all", "--wait=false")


def test_one_acts_and_the_other_stands_by_in_good_health(replicas: Replicas, job: Job) -> None:
    leader, standby = replicas.both()
    before = standby.acts
    job.apply(script=FAST)
    job.reaches("Succeeded")
    assert standby.acts == before
    assert leader.acts > 5
    for replica in (leader, standby):
        assert replica.operator.get("healthz") == "ok\n"
        assert replica.operator.get("readyz") == "ok\n"
    assert standby.operator.metric("rljob_operator_leader") == 0.0
    # It does not even read: what is only kept for the day on which it leads would cost every standby its memory.
    assert {resource for (_, resource), _ in standby.proxy.counts.items()} == {"leases"}


def test_a_leader_that_is_killed_is_replaced_and_running_jobs_notice_nothing(replicas: Replicas, job: Job) -> None:
    leader, standby = replicas.both()
    job.apply(script=SLOW)
    before = job.comes(lambda s: s.get("phase") == "Running" and s["evaluators"]["ready"] == 2, "running at full size")
    told = eventually(lambda: {r for r, _ in job.events()} >= {"Training", "CheckpointWritten"} and job.events())
    leader.operator.kill()
    standby.comes_to_lead(TAKE_OVER_S)
    job.annotate(checkpoint="by-the-new-leader")
    after = job.comes(lambda s: s.get("requests", {}).get("checkpoint") == "by-the-new-leader", "the checkpoint")
    assert after["conditions"] == before["conditions"]
    assert (after["phase"], after["attempt"], after.get("losses")) == ("Running", 1, None)
    (news,) = eventually(lambda: set(job.events()) - set(told), what="what the new leader tells")
    assert news[0] == "CheckpointWritten"


def test_a_leader_that_is_stopped_gives_the_lease_back_and_is_replaced_at_once(replicas: Replicas) -> None:
    leader, standby = replicas.both()
    leader.operator.stop()
    assert leader.operator.returncode == 0
    standby.comes_to_lead(AT_ONCE_S)


def test_a_standby_that_is_stopped_leaves_the_leader_alone(replicas: Replicas) -> None:
    leader, standby = replicas.both()
    standby.operator.stop()
    assert standby.operator.returncode == 0
    assert leader.leads


def test_a_leader_that_is_stopped_first_finishes_what_it_is_at(replicas: Replicas, job: Job) -> None:
    leader, standby = replicas.both()
    leader.proxy.latency_s = 0.3
    before, others = leader.proxy.counts["create", "rayjobs"], standby.proxy.counts["create", "rayjobs"]
    begun = leader.acts
    job.apply(script=SLOW)
    eventually(lambda: leader.acts > begun, what="the first write")
    leader.operator.stop()
    assert leader.operator.returncode == 0
    assert leader.proxy.counts["create", "rayjobs"] == before + 1
    assert job.get("rayjob", f"{job.name}-1")
    standby.comes_to_lead(AT_ONCE_S)
    job.reaches("Running")
    assert job.status["attempt"] == 1
    assert standby.proxy.counts["create", "rayjobs"] == others


def test_a_leader_that_is_cut_off_ends_itself_before_the_other_acts(replicas: Replicas, job: Job) -> None:
    leader, standby = replicas.both()
    job.apply(script=SLOW)
    job.reaches("Running")
    acted = standby.acts
    leader.proxy.cut()
    leader.proxy.cut_connections()
    eventually(lambda: not leader.operator.alive, LEASE_S, interval_s=0.02, what="the end of the one that is cut off")
    assert not standby.leads
    assert standby.acts == acted
    assert leader.operator.returncode == LOST_LEASE
    standby.comes_to_lead(TAKE_OVER_S)
    assert job.status["phase"] == "Running"


def test_a_leader_that_slept_through_its_lease_writes_nothing_more(replicas: Replicas, job: Job) -> None:
    leader, standby = replicas.both()
    os.kill(leader.operator.pid, signal.SIGSTOP)
    try:
        acted = leader.acts
        job.apply(script=SLOW)  # its watch has this waiting for it when it wakes up
        standby.comes_to_lead(TAKE_OVER_S)
        job.reaches("Running")
    finally:
        os.kill(leader.operator.pid, signal.SIGCONT)
    eventually(lambda: not leader.operator.alive, what="the end of the one that slept")
    assert leader.operator.returncode == LOST_LEASE
    assert leader.acts == acted
    assert standby.leads
