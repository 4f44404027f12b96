"""Durations and Kubernetes quantities."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rlcore.api.quantity import cores, format_duration, parse_duration, parse_quantity, size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("1h30m", 5400), ("1d2h3m4s", 93_784), ("0s", 0)],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 m", "1.5h", "m", "30m1h", "-5m", "5min", "5M", "1h1h"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: write .* 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59, "59s"), (5400, "1h30m"), (86_400, "1d"), (61, "1m1s")])
def test_a_duration_is_written_as_it_is_read(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", Fraction(2)),
        ("500m", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        ("4Gi", Fraction(4 * 2**30)),
        ("1k", 1000),
    ],
)
def test_a_quantity_is_exact(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "4GB", "4 Gi", "-1", "1e3", "Gi", "four", "4gi"])
def test_what_is_no_quantity_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity: .* 4Gi"):
        parse_quantity(text)


def test_cores_and_bytes() -> None:
    assert cores("1500m") == 1.5
    assert size_bytes("1Gi") == 2**30
    assert size_bytes("0.5") == 1, "part of a byte needs a whole one"
