"""The HTTP endpoint over real sockets: three pages, read-only, and no client can hold it up."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rlcore.errors import UserError
from rlcore.metrics.exporter import MetricsExporter
from rlcore.metrics.result import IterationResult
from rlcore.metrics.server import MAX_CONNECTIONS, MetricsServer
from rlcore.metrics.status import StatusBoard, without_secrets

RESULT = IterationResult(
    iteration=4,
    timesteps=400,
    timesteps_this_iteration=100,
    episodes=9,
    episode_reward_mean=float("nan"),
    timesteps_per_s=1000.0,
    sample_time_s=0.02,
    learn_time_s=0.07,
    wait_time_s=0.01,
    elapsed_s=0.4,
    learner={"kl": float("inf")},
    checkpoint_timesteps=300,
)


@pytest.fixture
def exporter() -> MetricsExporter:
    return MetricsExporter(job="j", algorithm="PPO", environment="CartPole-v1")


@pytest.fixture
def board() -> StatusBoard:
    return StatusBoard(
        job="j", algorithm="PPO", environment="CartPole-v1", checkpoint_location="s3://key:secret@bucket/run?token=x"
    )


@pytest.fixture
def server(exporter: MetricsExporter, board: StatusBoard) -> Iterator[MetricsServer]:
    server = MetricsServer(exporter.registry, board.snapshot, request_deadline_s=0.5)
    server.start()
    yield server
    server.stop()


def request(server: MetricsServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=5)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_metrics_are_what_prometheus_reads(server: MetricsServer, exporter: MetricsExporter) -> None:
    exporter.observe(RESULT)
    status, headers, body = request(server, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    samples = {sample.name for family in text_string_to_metric_families(body.decode()) for sample in family.samples}
    assert "rlcore_timesteps_total" in samples


def test_openmetrics_is_given_to_those_who_ask(server: MetricsServer) -> None:
    _, headers, body = request(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_status_before_the_first_iteration(server: MetricsServer) -> None:
    _, headers, body = request(server, "/status?pretty=1")
    assert headers["Content-Type"] == "application/json"
    status = json.loads(body)
    assert (status["job"], status["phase"], status["timesteps"]) == ("j", "Starting", None)


def test_status_holds_the_newest_iteration_without_nan_or_secrets(server: MetricsServer, board: StatusBoard) -> None:
    board.set_phase("Running", "training")
    board.observe(RESULT)
    body = request(server, "/status")[2]
    status = json.loads(body, parse_constant=pytest.fail)
    assert status["phase"] == "Running"
    assert status["timesteps"] == 400
    assert status["episode_reward_mean"] is None
    assert status["learner"] == {"kl": None}
    assert status["bottleneck"].startswith("learning-bound: 70 %")
    assert status["checkpoint"] == {"location": "s3://bucket/run", "timesteps": 300}
    assert b"secret" not in body
    assert b"token" not in body


def test_healthz(server: MetricsServer) -> None:
    assert request(server, "/healthz")[::2] == (200, b"ok\n")


@pytest.mark.parametrize("path", ["/", "/metricsx", "/status/..", "/../etc/passwd"])
def test_there_is_nothing_else(server: MetricsServer, path: str) -> None:
    assert request(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_it_is_read_only(server: MetricsServer, method: str) -> None:
    status, headers, _ = request(server, "/status", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


def test_head_is_get_without_the_body(server: MetricsServer) -> None:
    status, headers, body = request(server, "/healthz", "HEAD")
    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == "3"


def test_a_bug_in_a_status_is_a_500_and_in_the_log(exporter: MetricsExporter, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> dict[str, Any]:
        raise ZeroDivisionError

    server = MetricsServer(exporter.registry, broken)
    server.start()
    try:
        assert request(server, "/status")[0] == 500
        assert request(server, "/metrics")[0] == 200
    finally:
        server.stop()
    assert "cannot answer /status" in caplog.text


def test_the_port_is_on_the_loopback_interface_only(server: MetricsServer) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}"
    assert server.port > 0


def test_ipv6_works_where_the_machine_has_it(exporter: MetricsExporter, board: StatusBoard) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        with pytest.raises(UserError, match="cannot serve metrics on ::1"):
            MetricsServer(exporter.registry, board.snapshot, host="::1")
        return
    server = MetricsServer(exporter.registry, board.snapshot, host="::1")
    server.start()
    try:
        assert request(server, "/healthz")[0] == 200
        assert server.url == f"http://[::1]:{server.port}"
    finally:
        server.stop()


def test_a_port_in_use_is_a_clear_error(server: MetricsServer, exporter: MetricsExporter, board: StatusBoard) -> None:
    with pytest.raises(UserError) as caught:
        MetricsServer(exporter.registry, board.snapshot, port=server.port)
    assert f"metrics port {server.port} on 127.0.0.1 is in use" in str(caught.value)
    assert "0 to take any free one" in (caught.value.hint or "")


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("192.0.2.1", 0)])
def test_a_host_or_port_that_cannot_be_used_is_a_clear_error(
    exporter: MetricsExporter, board: StatusBoard, host: str, port: int
) -> None:
    with pytest.raises(UserError, match=f"cannot serve metrics on {host} port {port}"):
        MetricsServer(exporter.registry, board.snapshot, host=host, port=port)


def closed_within(connection: socket.socket, seconds: float) -> bool:
    """True when the server closes the connection in that time."""
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_client_that_says_nothing_is_let_go(server: MetricsServer) -> None:
    with socket.create_connection((server.host, server.port)) as silent:
        assert closed_within(silent, 5.0)


def test_a_client_that_drips_is_let_go_too(server: MetricsServer) -> None:
    """Each byte restarts a socket's time-out; the deadline of the whole request does not care."""
    with socket.create_connection((server.host, server.port)) as dripping:
        dripping.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            try:
                dripping.sendall(b"y")
            except ConnectionError:
                break
            if closed_within(dripping, 0.05):
                break
        assert time.monotonic() < deadline


def answers_again(server: MetricsServer, deadline_s: float = 5.0) -> bool:
    """True once a place is free again; a connection without one is closed at once."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            return request(server, "/healthz")[0] == 200
        except (ConnectionError, http.client.HTTPException):
            continue
    return False


def test_many_stuck_clients_neither_pile_up_nor_stay(server: MetricsServer) -> None:
    stuck = [socket.create_connection((server.host, server.port)) for _ in range(MAX_CONNECTIONS + 5)]
    try:
        assert all(closed_within(connection, 5.0) for connection in stuck)
        assert answers_again(server)
    finally:
        for connection in stuck:
            connection.close()


def test_stop_does_not_wait_for_a_stuck_client(exporter: MetricsExporter, board: StatusBoard) -> None:
    server = MetricsServer(exporter.registry, board.snapshot, request_deadline_s=60.0)
    server.start()
    with socket.create_connection((server.host, server.port)) as stuck:
        assert request(server, "/healthz")[0] == 200  # so the stuck one was accepted before
        before = time.monotonic()
        server.stop(deadline_s=5.0)
        assert time.monotonic() - before < 4.0
        assert closed_within(stuck, 5.0)
    with pytest.raises(ConnectionError):
        socket.create_connection((server.host, server.port))


def test_stop_without_start_and_twice_is_no_error(exporter: MetricsExporter, board: StatusBoard) -> None:
    server = MetricsServer(exporter.registry, board.snapshot)
    server.stop()
    server.stop()


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("s3://bucket/run", "s3://bucket/run"),
        ("s3://key:secret@bucket/run", "s3://bucket/run"),
        ("s3://bucket/run?X-Signature=abc", "s3://bucket/run"),
        ("/data/a@b?c", "/data/a@b?c"),
        ("s3://bucket/user@host", "s3://bucket/user@host"),
    ],
)
def test_locations_are_shown_without_secrets(location: str, shown: str) -> None:
    assert without_secrets(location) == shown
