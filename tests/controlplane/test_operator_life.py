"""A job's life under the operator, with a scripted driver: phases, conditions, events, and what is left at the end."""

import json

import pytest

from tests.controlplane.operated import Job
from tests.kube.wait import eventually

FAST = {"timestepsPerS": 100_000}
SLOW = {"timestepsPerS": 1_000}

pytestmark = pytest.mark.timeout(240)


def test_a_job_runs_to_its_end_and_leaves_its_checkpoints(job: Job) -> None:
    job.apply(script=FAST)
    status = job.reaches("Succeeded")
    assert status["training"]["timesteps"] >= 200_000
    assert status["attempt"] == 1
    assert status.get("restarts", 0) == 0
    assert job.condition("Complete")["status"] == "True"
    assert job.condition("Valid")["status"] == "True"
    assert job.condition("Checkpointed")["status"] == "True"
    job.kubectl("wait", "--for=condition=Complete", f"rlj/{job.name}", "--timeout=1s")
    for kind in ("rayjobs", "rayclusters", "pods"):
        job.gone(kind)
    assert job.get("pvc", f"{job.name}-checkpoints")
    reasons = [reason for reason, _ in job.events()]
    assert {"Creating", "PodsReady", "Training", "CheckpointWritten", "Succeeded"} <= set(reasons)


def test_while_it_runs_get_describe_and_scale_tell_the_truth(job: Job) -> None:
    job.apply(script=SLOW)
    job.comes(lambda s: s.get("phase") == "Running" and s.get("training"), "training")
    algorithm, environment, phase = job.kubectl("get", "rlj", job.name, "--no-headers").split()[1:4]
    assert (algorithm, environment, phase) == ("PPO", "CartPole-v1", "Running")
    status = job.comes(lambda s: s["evaluators"].get("ready") == 2, "two evaluators ready")
    assert status["learners"] == {"target": 1, "ready": 1}
    scale = json.loads(
        job.kubectl("get", "--raw", f"/apis/rlcore.io/v1alpha1/namespaces/{job.namespace}/rljobs/{job.name}")
    )
    assert scale["status"]["evaluators"]["selector"] == f"rlcore.io/job={job.name},rlcore.io/role=evaluator"
    assert "the driver trains" in job.kubectl("describe", "rlj", job.name)
    # The pods that the selector takes are those that are counted.
    assert len(job.kubectl("get", "pods", "-l", status["evaluators"]["selector"], "-o", "name").split()) == 2


def test_scaling_and_pool_limits_reach_the_running_cluster(job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    job.kubectl("scale", f"rlj/{job.name}", "--replicas=4")
    job.comes(lambda s: s["evaluators"].get("ready") == 4, "four evaluators")
    control = json.loads(job.get("configmap", f"{job.name}-run")["data"]["control.json"])
    assert control["evaluators"]["replicas"] == 4
    job.kubectl("scale", f"rlj/{job.name}", "--replicas=2")
    job.comes(lambda s: s["evaluators"].get("replicas") == 2, "two evaluators again")
    assert job.status["attempt"] == 1
    job.patch({"stop": {"timesteps": 1000, "episodeReward": 475}})
    job.reaches("Succeeded")


def test_suspend_writes_a_checkpoint_gives_the_pods_back_and_resumes_from_it(job: Job) -> None:
    job.apply(script=SLOW)
    job.comes(lambda s: (s.get("training") or {}).get("timesteps", 0) > 0, "training")
    job.patch({"suspend": True})
    status = job.reaches("Suspended")
    for kind in ("rayjobs", "rayclusters", "pods"):
        job.gone(kind)
    saved = job.status["checkpoint"]["timesteps"]
    assert saved > 0
    assert status["attempts"][-1]["reason"] == "Suspended"
    job.patch({"suspend": False})
    resumed = job.comes(lambda s: s.get("phase") == "Running" and s.get("attempt") == 2, "running again")
    assert resumed.get("restarts", 0) == 0
    later = job.comes(lambda s: s["training"]["timesteps"] > saved, "going on from the checkpoint")
    assert later["attempts"][0]["timesteps"] == saved


def test_a_failure_is_tried_again_and_counted_and_training_goes_on(job: Job) -> None:
    job.apply(
        script={**FAST, "timestepsPerS": 20_000, "failAfterS": 1, "failures": 1, "exitCode": 3, "message": "boom"},
        restartPolicy={"backoff": "1s"},
    )
    status = job.reaches("Succeeded", deadline_s=90)
    assert status["restarts"] == 1
    assert status["attempt"] == 2
    assert status["lastFailure"]["class"] == "ApplicationFailed"
    assert status["lastFailure"]["exitCode"] == 3
    assert "boom" in status["lastFailure"]["message"]
    assert [a["reason"] for a in status["attempts"]] == ["ApplicationFailed", "Succeeded"]


def test_failures_beyond_the_limit_end_the_job_with_the_drivers_last_words(job: Job) -> None:
    job.apply(
        script={"timestepsPerS": 100, "failAfterS": 0.2, "failures": 99, "exitCode": 3, "message": "the pole is gone"},
        restartPolicy={"backoff": "1s", "maxRestarts": 1},
    )
    status = job.reaches("Failed", deadline_s=90)
    failed = job.condition("Failed")
    assert failed["status"] == "True"
    assert failed["reason"] == "ApplicationFailed"
    assert "the pole is gone" in failed["message"]
    assert status["attempt"] == 2
    job.gone("rayjobs")


def test_a_failure_that_no_restart_can_mend_ends_the_job_at_once(job: Job) -> None:
    job.apply(
        script={"timestepsPerS": 100, "failAfterS": 0.2, "failures": 9, "exitCode": 2, "message": "no such module"}
    )
    status = job.reaches("Failed")
    assert status["attempt"] == 1
    assert "no such module" in job.condition("Failed")["message"]


def test_a_lost_head_shows_within_seconds_and_the_same_rayjob_goes_on(job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    (head,) = [pod for pod in job.list("pods") if pod["metadata"]["labels"]["rlcore.io/role"] == "head"]
    job.kubectl("delete", "pod", head["metadata"]["name"], "--wait=false")
    status = job.comes(lambda s: s.get("losses"), "the loss", deadline_s=10)
    assert status["losses"][0]["role"] == "head"
    job.comes(lambda s: s.get("phase") == "Running" and s.get("losses"), "running again")
    assert job.status["attempt"] == 1
    assert job.status.get("restarts", 0) == 0


def test_a_lost_head_finds_its_config_map_though_somebody_deleted_it(job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    run = job.get("configmap", f"{job.name}-run")
    job.kubectl("delete", "configmap", f"{job.name}-run")
    (head,) = [pod for pod in job.list("pods") if pod["metadata"]["labels"]["rlcore.io/role"] == "head"]
    job.kubectl("delete", "pod", head["metadata"]["name"], "--wait=false")
    job.comes(lambda s: s.get("losses") and s["phase"] == "Running", "training again")
    assert job.get("configmap", f"{job.name}-run")["data"]["job.yaml"] == run["data"]["job.yaml"]


def test_an_evicted_evaluator_is_a_preemption_and_training_goes_on(job: Job) -> None:
    job.apply(script=SLOW)
    job.comes(lambda s: s["evaluators"].get("ready") == 2, "two evaluators")
    victim = next(p for p in job.list("pods") if p["metadata"]["labels"]["rlcore.io/role"] == "evaluator")
    name = victim["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": job.namespace}}
    path = f"/api/v1/namespaces/{job.namespace}/pods/{name}/eviction"
    job.cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
    job.comes(lambda s: s.get("preemptions") == 1, "the preemption")
    status = job.comes(lambda s: s["evaluators"].get("ready") == 2 and s["phase"] == "Running", "at full size again")
    assert status.get("restarts", 0) == 0


def test_annotations_ask_for_a_checkpoint_a_restart_and_a_pause(job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    job.annotate(checkpoint="now")
    job.comes(lambda s: (s.get("requests") or {}).get("checkpoint") == "now", "the checkpoint")
    job.annotate(restart="1")
    status = job.comes(lambda s: s.get("attempt") == 2 and s["phase"] == "Running", "the restart")
    assert status.get("restarts", 0) == 0
    job.annotate(paused="true")
    job.comes(lambda s: any(c["type"] == "Paused" for c in s["conditions"]), "the pause")
    job.patch({"suspend": True})
    job.annotate(paused="false")
    job.reaches("Suspended")


def test_a_changed_image_makes_new_pods_and_goes_on_from_a_checkpoint(job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    job.patch({"image": "rlcore:other"})
    status = job.comes(lambda s: s.get("attempt") == 2 and s["phase"] == "Running", "new pods")
    assert status["attempts"][0]["reason"] == "SpecChanged"
    assert all(pod["spec"]["containers"][0]["image"] == "rlcore:other" for pod in job.list("pods"))


def test_deletion_takes_everything_but_the_checkpoints(job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    assert not job.get()["metadata"].get("finalizers")
    job.kubectl("delete", "rlj", job.name, "--timeout=20s")
    for kind in ("rayjobs", "rayclusters", "pods", "configmaps"):
        job.gone(kind)
    assert job.get("pvc", f"{job.name}-checkpoints")


def test_a_finished_job_is_deleted_after_its_time_to_live(job: Job) -> None:
    job.apply(script=FAST, ttlAfterFinished="1s")
    eventually(lambda: not job.get(), deadline_s=90, what="the RLJob deleted")


def test_a_new_goal_begins_a_complete_job_again_from_its_checkpoint(job: Job) -> None:
    job.apply(script=FAST, stop={"timesteps": 100_000})
    reached = job.reaches("Succeeded")["training"]["timesteps"]
    job.patch({"stop": {"timesteps": 10 * reached}})
    job.told("NewGoal")
    status = job.comes(lambda s: s["phase"] == "Succeeded" and s["attempt"] == 2, "success once more")
    assert status["training"]["timesteps"] >= 10 * reached
    assert status.get("restarts", 0) == 0


def test_a_job_that_is_deleted_and_made_again_starts_over(job: Job) -> None:
    job.apply(script=SLOW)
    job.reaches("Running")
    uid = job.get()["metadata"]["uid"]
    job.kubectl("delete", "rlj", job.name)
    job.apply(script=SLOW)
    status = job.reaches("Running")
    assert job.get()["metadata"]["uid"] != uid
    assert status["attempt"] == 1
