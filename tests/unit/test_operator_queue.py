"""The work queue: each key once, one worker a key, dates that only come nearer, failures put off ever longer."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from rljob_operator.work_queue import WorkQueue

from tests.unit.operator_clock import now_s, run


def queue(*keys: str) -> WorkQueue[str]:
    made: WorkQueue[str] = WorkQueue(jitter=lambda: 1.0)
    for key in keys:
        made.add(key)
    return made


async def take(made: WorkQueue[str], count: int) -> list[str]:
    return [await made.get() for _ in range(count)]


async def is_empty(made: WorkQueue[str], for_s: float = 1e6) -> bool:
    """Whether nothing comes for a long time."""
    try:
        await asyncio.wait_for(made.get(), for_s)
    except TimeoutError:
        return True
    return False


def test_first_come_first_served_each_once():
    async def story() -> None:
        made = queue("a", "b", "a", "c", "b")
        assert len(made) == 3
        assert await take(made, 3) == ["a", "b", "c"]
        assert await is_empty(made)

    run(story())


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards_and_once():
    async def story() -> None:
        made = queue("a")
        key = await made.get()
        made.add(key)
        made.add(key)
        assert len(made) == 0, "never two workers on one key"
        made.done(key)
        assert await take(made, 1) == ["a"]
        made.done(key)
        assert await is_empty(made)

    run(story())


def test_a_worker_that_waits_is_woken():
    async def story() -> None:
        made = queue()
        waiting = [asyncio.create_task(made.get()) for _ in range(3)]
        await asyncio.sleep(1)
        for key in "abc":
            made.add(key)
        assert sorted(await asyncio.gather(*waiting)) == ["a", "b", "c"]

    run(story())


def test_a_key_comes_when_it_is_due_and_an_earlier_date_stays():
    async def story() -> None:
        made, begun_s = queue(), now_s()
        made.add_later("later", 50.0)
        made.add_later("sooner", 20.0)
        made.add_later("sooner", 70.0)
        made.add_later("later", 30.0)
        assert await take(made, 2) == ["sooner", "later"]
        assert now_s() - begun_s == pytest.approx(30.0)
        assert await is_empty(made)

    run(story())


def test_what_is_added_at_once_is_not_due_later():
    async def story() -> None:
        made = queue()
        made.add_later("a", 50.0)
        made.add("a")
        assert await take(made, 1) == ["a"]
        made.done("a")
        assert await is_empty(made)

    run(story())


def test_a_date_for_a_key_that_waits_already_means_nothing_and_one_that_is_worked_on_keeps_it():
    async def story() -> None:
        made, begun_s = queue("a"), now_s()
        made.add_later("a", 5.0)
        await made.get()
        made.add_later("a", 7.0)
        made.done("a")
        assert await take(made, 1) == ["a"]
        assert now_s() - begun_s == pytest.approx(7.0)

    run(story())


def test_a_key_that_is_due_while_it_is_worked_on_comes_afterwards():
    async def story() -> None:
        made = queue("a")
        await made.get()
        made.add_later("a", 3.0)
        await asyncio.sleep(10)
        assert len(made) == 0
        made.done("a")
        assert await take(made, 1) == ["a"]

    run(story())


def test_failures_are_put_off_ever_longer_up_to_a_minute_until_a_success():
    async def story() -> None:
        made, delays = queue("a"), []
        await made.get()
        for _ in range(11):
            failed_s = now_s()
            made.failed("a")
            await made.get()
            delays.append(now_s() - failed_s)
        assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 60.0])
        made.done("a")
        made.add("a")
        await made.get()
        assert made.failed("a") == pytest.approx(0.2)

    run(story())


def test_a_failure_is_put_off_as_long_as_the_api_server_asks():
    async def story() -> None:
        made = queue("a")
        await made.get()
        assert made.failed("a", at_least_s=17.0) == 17.0

    run(story())


def test_news_of_a_key_that_failed_does_not_wait():
    async def story() -> None:
        made, begun_s = queue("a"), now_s()
        await made.get()
        made.failed("a", at_least_s=60.0)
        made.add("a")
        assert await take(made, 1) == ["a"]
        assert now_s() == begun_s

    run(story())


def test_a_key_that_is_forgotten_comes_no_more():
    async def story() -> None:
        made = queue("a")
        await made.get()
        made.add_later("a", 5.0)
        made.done("a")
        made.forget("a")
        assert await is_empty(made)

    run(story())


def test_one_key_that_is_always_news_does_not_starve_the_others():
    async def story() -> None:
        made, worked = queue(*"abcdefgh"), Counter[str]()
        for _ in range(80):
            key = await made.get()
            worked[key] += 1
            made.add("a")
            made.done(key)
            made.add(key)
        assert max(worked.values()) - min(worked.values()) <= 1

    run(story())


def test_many_workers_never_have_the_same_key():
    async def story() -> None:
        made, busy, most, total = queue(), set[str](), 0, 0

        async def worker() -> None:
            nonlocal most, total
            while True:
                key = await made.get()
                assert key not in busy
                busy.add(key)
                most, total = max(most, len(busy)), total + 1
                await asyncio.sleep(0.01)
                busy.remove(key)
                made.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(4)]
        for index in range(300):
            made.add(f"k{index % 10}")
            if index % 7 == 0:
                await asyncio.sleep(0.005)
        await asyncio.sleep(10)
        assert most == 4
        assert total >= 10
        for task in workers:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    run(story())


def test_dates_are_spread_by_default():
    async def story() -> None:
        made: WorkQueue[str] = WorkQueue()
        begun_s = now_s()
        for index in range(50):
            made.add_later(f"k{index}", 100.0)
        times = []
        for _ in range(50):
            await made.get()
            times.append(now_s() - begun_s)
        assert 90.0 <= min(times) < max(times) <= 110.0

    run(story())
