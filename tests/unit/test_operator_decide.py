"""The way of a job that nothing goes wrong with, and what people see of one that cannot start."""

from __future__ import annotations

import copy

import pytest
from rljob_operator import actions, names
from rljob_operator.settings import Settings

from tests.unit.operator_driver import Script
from tests.unit.operator_objects import (
    NOW_S,
    at,
    checkpoint,
    condition_of,
    decided,
    final,
    pod,
    raw_job,
    ray_cluster,
    ray_job,
    report,
    unscheduled,
)
from tests.unit.operator_world import World

ALL_PODS = [pod("head"), pod("evaluator", pool="spot"), pod("learner")]


def running(raw, **fields):
    """Decides on a job whose RayJob runs."""
    raw["status"] = {"attempt": 1, "attempts": [{"number": 1, "startedAt": at(0)}], "startedAt": at(0), **raw["status"]}
    made = ray_job(raw, jobDeploymentStatus="Running", jobStatus="RUNNING")
    return decided(raw, **{"ray_job": made, "ray_cluster": ray_cluster(made), "pods": ALL_PODS, **fields})


def test_a_job_trains_until_it_is_complete():
    world = World(raw_job(stop={"timesteps": 30_000})).run_to("Succeeded").run(5)
    assert world.phases == ["Provisioning", "Running", "Succeeded"]
    assert world.created == ["pong-1"]
    assert world.reasons() == ["Succeeded"]
    assert world.status["training"]["timesteps"] == 30_000
    assert condition_of(world.status, "Complete")["message"] == "the goal is reached"
    assert condition_of(world.status, "Provisioned")["status"] == "False"
    assert (world.ray_jobs, world.ray_clusters, world.pods) == ({}, {}, {})
    assert list(world.claims) == ["pong-checkpoints"]


def test_the_first_decision_makes_claim_config_and_ray_job_in_this_order():
    decision = decided(raw_job())
    assert [type(action) for action in decision.actions] == [
        actions.ApplyClaim,
        actions.ApplyConfigMap,
        actions.CreateRayJob,
    ]
    assert decision.status["phase"] == "Provisioning"
    assert decision.status["attempts"] == [{"number": 1, "rayJob": "pong-1", "startedAt": at(0), **NEW_ATTEMPT}]
    assert decision.status["observedGeneration"] == 1


NEW_ATTEMPT = {"reason": "", "counted": False}


def test_hyper_parameters_are_those_of_the_first_start():
    """An operator with other defaults changes nothing of a job that has begun."""
    frozen = {"config": {"gamma": 0.5}, "optimizer": "SyncSamples"}
    for raw in (raw_job(), raw_job(status={"attempt": 1, "attempts": [{"number": 1, "startedAt": at(0)}]})):
        decision = decided(raw, frozen=frozen)
        (config,) = [action for action in decision.actions if isinstance(action, actions.ApplyConfigMap)]
        assert "gamma: 0.5" in config.manifest["data"]["job.yaml"]
    kept = decided(raw_job(status={"resolvedConfigHash": "0123456789abcdef"}))
    assert kept.status["resolvedConfigHash"] == "0123456789abcdef"


# phases --------------------


@pytest.mark.parametrize(
    ("fields", "phase", "training"),
    [
        ({"report": None}, "Provisioning", ("False", "DriverStarting")),
        ({"report": report("Starting")}, "Provisioning", ("False", "DriverStarting")),
        ({"report": report("Running")}, "Running", ("True", "Training")),
        ({"report": report("Stopping")}, "Running", ("True", "Training")),
        ({"report": report("Recovering", message="no learner")}, "Recovering", ("False", "WaitingForActors")),
        ({"report": report("Running", when=-61.0)}, "Unknown", ("Unknown", "DriverSilent")),
        ({"report": report("Running", when=-59.0)}, "Running", ("True", "Training")),
        ({"report": report("Running", head="uid-another")}, "Provisioning", ("False", "DriverStarting")),
        ({"report": report("Running"), "pods": []}, "Recovering", ("False", "HeadLost")),
        ({"report": report("Running"), "pods": [pod("head", ready=False)]}, "Running", ("True", "Training")),
        ({"report": None, "pods": [pod("head", ready=False)]}, "Recovering", ("False", "HeadLost")),
        (
            {"report": report(head="uid-a"), "pods": [pod("head", ready=False)]},
            "Recovering",
            ("False", "HeadLost"),
        ),
        ({"report": report("Running"), "pods": [pod("head", deleted_at=0)]}, "Recovering", ("False", "HeadLost")),
    ],
    ids=[
        "no word",
        "starting",
        "running",
        "stopping",
        "recovering",
        "silent",
        "not silent yet",
        "a driver of an earlier head",
        "no head",
        "head not ready, and its driver answers",
        "head not ready, and no word",
        "head not ready, and the driver of an earlier one answers",
        "head being deleted",
    ],
)
def test_phase_of_a_job_whose_ray_job_runs(fields, phase, training):
    status = running(raw_job(), **fields).status
    assert status["phase"] == phase
    assert (condition_of(status, "Training")["status"], condition_of(status, "Training")["reason"]) == training


@pytest.mark.parametrize(
    ("cluster_status", "pods", "reason"),
    [
        ({}, [], "WaitingForPods"),
        ({}, [pod("head", phase="Pending", conditions=[unscheduled()])], "Unschedulable"),
        (
            {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: compute"}]},
            [],
            "QuotaExceeded",
        ),
    ],
)
def test_why_pods_are_not_there_yet_is_told(cluster_status, pods, reason):
    raw = raw_job(status={"attempt": 1, "attempts": [{"number": 1, "startedAt": at(0)}]})
    made = ray_job(raw, jobDeploymentStatus="Initializing")
    decision = decided(raw, ray_job=made, ray_cluster=ray_cluster(made, **cluster_status), pods=pods)
    assert decision.status["phase"] == "Provisioning"
    assert condition_of(decision.status, "Provisioned")["reason"] == reason


def test_an_attempt_after_a_failure_recovers_and_one_after_a_suspension_is_provisioned():
    for reason, phase in (("Stalled", "Recovering"), ("Suspended", "Provisioning"), ("SpecChanged", "Provisioning")):
        ended = {"number": 1, "startedAt": at(0), "endedAt": at(10), "reason": reason}
        assert decided(raw_job(status={"attempts": [ended]}), after=200).status["phase"] == phase


def test_numbers_of_a_driver_of_another_version_are_taken_as_far_as_they_make_sense():
    odd = report(iteration=-1, timesteps="many", episode_reward_mean=float("nan"), timesteps_per_s=1e3)
    odd.values["checkpoint"] |= {"timesteps": 7, "time_s": 1e300}
    status = running(raw_job(), report=odd).status
    assert status["training"] == {"timestepsPerSecond": 1000.0, "bottleneck": "", "observedAt": at(0)}
    assert status["checkpoint"] == {"latest": "", "timesteps": 7}


# success --------------------


def test_success_is_written_down_before_the_driver_is_told_that_it_was_seen():
    decision = running(raw_job(), report=report("Succeeded", final=final()))
    assert decision.status["attempts"][0]["reason"] == "Succeeded"
    assert condition_of(decision.status, "Complete") == {}
    (config,) = [action for action in decision.actions if isinstance(action, actions.ApplyConfigMap)]
    assert '"finalObserved": "1.uid-head.1"' in config.manifest["data"]["control.json"]
    assert actions.TouchPod("head") in decision.actions


SUCCEEDED = {"attempts": [{"number": 1, "startedAt": at(0), "reason": "Succeeded"}], "attempt": 1, "rayJob": "pong-1"}


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("spec", [{}, {"suspend": True}, {"activeDeadline": "1s"}], ids=["", "suspended", "too late"])
def test_a_ray_job_that_vanishes_after_success_starts_nothing(spec, stopping):
    status = copy.deepcopy(SUCCEEDED) | {"startedAt": at(0)}
    if stopping:
        status["attempts"][0]["stoppingAt"] = at(5)
    decision = decided(raw_job(status=status, **spec), after=10)
    assert decision.status["phase"] == "Succeeded"
    assert not [action for action in decision.actions if isinstance(action, actions.CreateRayJob)]


@pytest.mark.parametrize("pods", [ALL_PODS, []], ids=["", "head gone"])
def test_success_does_not_depend_on_what_kuberay_makes_of_it(pods):
    status = {**copy.deepcopy(SUCCEEDED), "conditions": [condition("Training", "False", at(0))]}
    waiting = running(raw_job(status=status), after=100, pods=pods)
    assert waiting.status["attempts"] == [{**NEW_ATTEMPT, **SUCCEEDED["attempts"][0], "rayJob": ""}]
    over = running(raw_job(status=status), after=121, pods=pods)
    assert over.status["phase"] == "Succeeded"
    assert actions.DeleteRayJob("pong-1", "uid-pong-1") in over.actions


def condition(kind: str, status: str, since: str) -> dict:
    return {"type": kind, "status": status, "reason": "Reason", "message": "", "lastTransitionTime": since}


def test_the_driver_does_not_wait_in_vain_for_its_final_status_to_be_seen():
    world = World(raw_job(stop={"timesteps": 10_000})).run_to("Succeeded")
    assert world.now_s - NOW_S < 30
    assert world.touched, "the kubelet is made to bring the ConfigMap at once"


@pytest.mark.parametrize(
    ("field", "ttl", "phase"), [("ttlAfterFinished", "30s", "Succeeded"), ("ttlAfterFailed", "40s", "Failed")]
)
def test_a_finished_job_is_deleted_when_its_time_to_live_is_over(field, ttl, phase):
    script = Script(failures=1, exit_code=2) if phase == "Failed" else Script()
    world = World(raw_job(stop={"timesteps": 10_000}, **{field: ttl}), script=script).run_to(phase)
    finished_s = world.now_s
    world.run(300, lambda world: world.raw is None)
    assert world.raw is None
    assert world.now_s - finished_s == pytest.approx(int(ttl[:-1]), abs=1)


def test_a_job_without_time_to_live_stays():
    world = World(raw_job(stop={"timesteps": 10_000})).run_to("Succeeded").run(5)
    decision = decided(world.raw, after=1e7)
    assert decision.actions == ()


# what keeps a job from running --------------------


def test_an_invalid_manifest_is_told_field_by_field():
    raw = raw_job()
    raw["spec"]["environment"] = {}
    decision = decided(raw)
    assert decision.status["phase"] == "Pending"
    told = condition_of(decision.status, "Valid")
    assert (told["status"], told["reason"]) == ("False", "InvalidManifest")
    assert "spec.environment.id" in told["message"]
    assert decision.actions == ()


def test_a_pod_template_that_cannot_be_merged_waits_to_be_mended():
    decision = decided(raw_job(head={"podTemplate": {"spec": {"containers": {}}}}))
    assert decision.status["phase"] == "Pending"
    told = condition_of(decision.status, "Valid")
    assert (told["status"], told["reason"]) == ("False", "InvalidPodTemplate")
    assert "spec.head.podTemplate.spec.containers" in told["message"]
    assert decision.actions == ()
    assert [event.reason for event in decision.events if event.kind == "Warning"] == ["InvalidPodTemplate"]


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ("headGroupSpec.template.spec.typo", "spec.head.podTemplate.spec.typo"),
        ("workerGroupSpecs[0].template.metadata", "spec.evaluators.pools[0].podTemplate.metadata"),
        ("workerGroupSpecs[0].template.spec.affinity.typo", "spec.evaluators.pools[0].affinity.typo"),
        ("workerGroupSpecs[9].template.spec.tolerations[0]", "spec.learner.tolerations[0]"),
    ],
)
def test_a_ray_job_that_the_api_server_refuses_waits_to_be_mended(place, field):
    raw = raw_job(status={"attempt": 1, "attempts": [{"number": 1, "startedAt": at(0)}]})
    decision = decided(raw, rejected=f'unknown field "spec.rayClusterSpec.{place}"')
    assert decision.status["phase"] == "Pending"
    told = condition_of(decision.status, "Valid")
    assert (told["status"], told["reason"]) == ("False", "RayJobRejected")
    assert told["message"] == f'unknown field "{field}"'
    assert decision.actions == ()
    again = decided({**raw, "status": decision.status}, rejected=f'unknown field "spec.rayClusterSpec.{place}"')
    assert again.events == ()


def test_what_a_quota_forbids_is_told_and_tried_again():
    raw = raw_job(status={"attempt": 1, "attempts": [{"number": 1, "startedAt": at(0)}]})
    decision = decided(raw, forbidden="rayjobs.ray.io is forbidden: exceeded quota: few")
    told = condition_of(decision.status, "Provisioned")
    assert (told["status"], told["reason"]) == ("False", "QuotaExceeded")
    assert any(isinstance(action, actions.CreateRayJob) for action in decision.actions)
    assert decision.requeue_s <= 10


def test_a_mistake_in_a_changed_manifest_costs_no_running_attempt_its_pods():
    raw = raw_job(head={"podTemplate": {"spec": {"typo": 1}}})

    def changed(**fields):
        made = ray_job(raw_job(), jobDeploymentStatus="Running", jobStatus="RUNNING")
        return running(copy.deepcopy(raw), report=report(), ray_job=made, **fields)

    tried = changed(accepted=False)
    (trial,) = [action for action in tried.actions if isinstance(action, actions.TryRayJob)]
    assert trial.manifest["metadata"]["name"] == "pong-2"
    refused = changed(accepted=False, rejected="unknown field")
    assert refused.status["phase"] == "Running"
    assert condition_of(refused.status, "Valid")["status"] == "False"
    for decision in (tried, refused):
        assert "stoppingAt" not in decision.status["attempts"][0]
    assert changed(accepted=True).status["attempts"][0]["reason"] == "SpecChanged"


def test_missing_kuberay_is_a_condition_and_the_job_starts_when_it_comes():
    world = World(raw_job(stop={"timesteps": 10_000}), kuberay=False).run(30)
    assert world.phases == ["Pending"]
    assert condition_of(world.status, "Provisioned")["reason"] == "KubeRayMissing"
    assert condition_of(world.status, "Valid")["status"] == "True"
    assert len(world.told("KubeRayMissing")) == 1
    world.kuberay = True
    world.run_to("Succeeded")


def test_kuberay_that_goes_away_during_training_ends_nothing():
    world = World(raw_job()).run_to("Running")
    world.kuberay = False
    world.run(60)
    assert world.reasons() == []
    world.kuberay = True
    world.run_to("Succeeded")
    assert world.created == ["pong-1"]


def test_a_queue_decides_when_the_job_starts_and_may_evict_it():
    world = World(raw_job(labels={names.QUEUE_LABEL: "gpus"}, provisioningDeadline="60s")).run(100)
    assert world.phases[-1] == "Pending"
    assert condition_of(world.status, "Provisioned")["reason"] == "Queued"
    assert "queue gpus" in condition_of(world.status, "Provisioned")["message"]
    ray_job = world.ray_jobs["pong-1"]
    ray_job["spec"]["suspend"] = False
    world.run_to("Running")
    ray_job["spec"]["suspend"] = True
    world.tell("ray_jobs", ray_job)
    world.run_to("Pending").run(500)
    assert condition_of(world.status, "Training")["status"] == "False"
    ray_job["spec"]["suspend"] = False
    world.run_to("Succeeded")
    assert (world.created, world.status.get("restarts", 0)) == (["pong-1"], 0)


def test_pods_that_do_not_come_in_time_fail_the_job():
    raw = raw_job(provisioningDeadline="60s", evaluators={"pools": [{"name": "base", "maxReplicas": 2}]})
    world = World(raw, no_nodes={"base"}).run_to("Failed")
    assert world.now_s - NOW_S == pytest.approx(61, abs=2)
    failed = condition_of(world.status, "Failed")
    assert failed["reason"] == "ProvisioningDeadlineExceeded"
    assert "no node" in failed["message"]
    world.run(5)
    assert not world.ray_jobs


def test_the_active_deadline_counts_from_the_first_start_over_all_attempts():
    world = World(raw_job(activeDeadline="40s"), script=Script(failures=99, fail_after_s=4)).run_to("Failed")
    assert world.now_s - NOW_S == pytest.approx(41, abs=2)
    assert condition_of(world.status, "Failed")["reason"] == "ActiveDeadlineExceeded"
    assert world.status["evaluators"]["replicas"] == 0


# people --------------------


def test_a_paused_job_is_left_alone():
    world = World(raw_job()).run_to("Running")
    world.annotate(names.ANNOTATION_PAUSED, "true")
    world.run(3)
    world.edit(suspend=True)
    world.run(60)
    assert world.ray_jobs
    assert condition_of(world.status, "Paused")["status"] == "True"
    world.annotate(names.ANNOTATION_PAUSED, None)
    world.run_to("Suspended")
    assert condition_of(world.status, "Paused") == {}
    assert len(world.told("PausedByAnnotation")) == len(world.told("Unpaused")) == 1


def test_nothing_is_done_about_a_job_that_is_being_deleted():
    raw = raw_job(status={"phase": "Running", "attempt": 1, "attempts": [{"number": 1, "startedAt": at(0)}]})
    raw["metadata"]["deletionTimestamp"] = at(0)
    decision = decided(raw, after=10)
    assert (decision.actions, decision.events, decision.status["phase"]) == ((), (), "Running")


def test_the_checkpoint_is_shown_with_its_place_and_time():
    status = running(raw_job(), report=report(checkpoint=checkpoint(4096, when=-5)), after=3).status
    assert status["checkpoint"] == {"latest": "/ckpt/1", "timesteps": 4096, "time": at(-5)}
    assert condition_of(status, "Checkpointed")["status"] == "True"


def test_pods_are_counted_by_pool():
    pods = [
        *ALL_PODS,
        pod("evaluator", "e2", pool="spot", phase="Pending", conditions=[unscheduled("no spot")]),
        pod("evaluator", "e3", pool="base", deleted_at=0),
        pod("evaluator", "e4", pool="base", attempt=7),
    ]
    status = running(raw_job(), pods=pods, report=report()).status
    spot, base = status["evaluators"]["pools"]
    assert (spot["target"], spot["replicas"], spot["ready"], spot["reason"]) == (2, 2, 1, "Unschedulable")
    assert (base["target"], base["replicas"], base["ready"]) == (1, 0, 0)
    assert (status["evaluators"]["target"], status["evaluators"]["replicas"]) == (3, 2)
    assert status["evaluators"]["selector"] == "rlcore.io/job=pong,rlcore.io/role=evaluator"
    assert status["learners"] == {"target": 1, "ready": 1}


def test_pods_of_an_earlier_job_of_the_same_name_are_not_ours():
    raw = raw_job()
    raw["metadata"]["creationTimestamp"] = at(100)
    decision = running(raw, pods=[pod("head", made_at=50)], after=200, report=report(when=200))
    assert decision.status["phase"] == "Recovering"


def test_the_shell_is_told_when_to_look_again():
    times = Settings().times
    assert running(raw_job(), report=report(when=-20)).requeue_s == times.driver_silent_s - 20
    assert decided(raw_job(suspend=True)).requeue_s == times.resync_s
