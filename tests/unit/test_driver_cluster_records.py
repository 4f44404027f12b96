"""Who owns the checkpoints, and what a failed attempt leaves beside them."""

import json

import pytest

from rlcore.checkpoint import (
    CheckpointStore,
    FailureRecord,
    Owner,
    Ownership,
    read_completion,
    write_completion,
    write_failure,
)
from rlcore.checkpoint.storage import open_storage
from rlcore.errors import FencedError

OLD = Owner(attempt=1, started_ns=100, pod="4f6c-1")
RESTARTED = Owner(attempt=1, started_ns=200, pod="4f6c-2")
NEXT = Owner(attempt=2, started_ns=150, pod="4f6c-3")


def owner_in(path) -> str:
    return json.loads((path / "owner.json").read_text())["token"]


@pytest.mark.parametrize(
    ("older", "newer"), [(OLD, RESTARTED), (OLD, NEXT), (RESTARTED, NEXT)], ids=["later", "attempt", "attempt first"]
)
def test_a_higher_attempt_is_newer_then_a_later_start(older, newer):
    assert newer > older
    assert not older > newer


def test_a_token_says_who_it_is_whatever_the_uid_looks_like():
    owner = Owner(attempt=12, started_ns=3, pod="a.b-c")
    assert owner.token == "12.a.b-c.3"
    assert Owner.parse(owner.token) == owner
    assert Owner.parse(owner.token).pod == "a.b-c"


def test_a_new_driver_takes_over_and_the_old_one_is_fenced(tmp_path):
    old, new = (Ownership(open_storage(str(tmp_path)), owner) for owner in (OLD, NEXT))
    old.claim()
    assert owner_in(tmp_path) == OLD.token
    new.claim()
    assert owner_in(tmp_path) == NEXT.token
    with pytest.raises(FencedError, match=f"{NEXT.token}; this one is {OLD.token}"):
        old.check()
    with pytest.raises(FencedError):
        old.claim()
    new.check()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token": 3}', b'{"token": "x.y.z"}', b'{"attempt": 1}'])
def test_an_owner_that_cannot_be_understood_is_replaced(tmp_path, content):
    (tmp_path / "owner.json").write_bytes(content)
    Ownership(open_storage(str(tmp_path)), OLD).check()
    assert owner_in(tmp_path) == OLD.token


def test_a_fenced_driver_publishes_neither_checkpoint_nor_completion(tmp_path):
    store = CheckpointStore(str(tmp_path), identity={})
    old = Ownership(store.storage, OLD)
    old.claim()
    store.guard = old.check
    store.save({"x": 1}, timesteps=10, iteration=1)
    Ownership(store.storage, NEXT).claim()
    with pytest.raises(FencedError):
        store.save({"x": 2}, timesteps=20, iteration=2)
    with pytest.raises(FencedError):
        write_completion(store, {"timesteps": 20})
    assert [path.name for path in tmp_path.glob("ckpt-*")] == ["ckpt-000000000010-1"]
    assert read_completion(store) is None


def test_a_failure_record_names_the_attempt(tmp_path):
    record = FailureRecord(7, "7.pod.1", 3, "ApplicationFailed", "the simulator crashed", "line 1\nline 2", 12.5)
    write_failure(open_storage(str(tmp_path)), record)
    assert json.loads((tmp_path / "failure-7.json").read_text()) == {
        "attempt": 7,
        "token": "7.pod.1",
        "exit_code": 3,
        "failure_class": "ApplicationFailed",
        "message": "the simulator crashed",
        "log_tail": "line 1\nline 2",
        "time_s": 12.5,
    }
