"""The benchmarks' arithmetic and tables. Nothing here is timed."""

from __future__ import annotations

import pytest

from benchmarks.figures import in_words, middle, one_after_the_other, ratio, steady_rate
from benchmarks.installation import environment_name, without_dependencies
from benchmarks.model import Benchmark, Beside, OneAfterTheOther, Row, Target
from benchmarks.runner import summarize
from benchmarks.suites import BENCHMARKS
from benchmarks.table import BEGIN, END, document, section


def measured(label: str, kind: str, values: list[float | None], error: str | None = None) -> dict[str, object]:
    return {"label": label, "kind": kind, "cores": 1, "threads": 1, "against": "ours", "values": values, "error": error}


BENCHMARK = Benchmark(
    name="example",
    title="An example",
    unit="timesteps/s",
    conditions="The same for all.",
    rows=(Row("ours", "us", "ours", "w"), Row("peer", "them", "peer", "w"), Row("env", "environment", "limit", "w")),
    computed=(OneAfterTheOther("both", "us, then environment", ("ours", "env")),),
    targets=(Target("ours", 2, of="peer"), Target("ours", 500), Target("env", 100, at_most=True)),
)


def record(peer: list[float | None], error: str | None = None) -> dict[str, object]:
    rows = {
        "ours": measured("us", "ours", [100.0, 400.0, 300.0]),
        "peer": measured("them", "peer", peer, error),
        "env": measured("environment", "limit", [300.0, 1200.0, 900.0]),
    }
    head = {"benchmark": "example", "title": "An example", "unit": "timesteps/s", "conditions": "The same for all."}
    machine = {"cpu": "a CPU", "cores": "2"}
    rest = {"date": "2026-01-02", "machine": machine, "load_average": [0.5, 1.25]}
    return {**head, **rest, **summarize(BENCHMARK, rows)}


def test_the_median_leaves_out_rounds_that_failed():
    assert middle([3.0, None, 1.0, 2.0]) == 2.0
    assert middle([None, None]) is None


def test_a_ratio_compares_figures_of_the_same_round():
    # The machine was ten times slower in the second round; the ratio is 2 in each.
    assert ratio([200.0, 20.0, 240.0], [100.0, 10.0, 120.0]) == 2.0
    assert ratio([200.0, None, 300.0], [100.0, 100.0, None]) == 2.0
    assert ratio([1.0], [None]) is None


def test_work_done_one_after_the_other_adds_up_its_time():
    assert one_after_the_other([[100.0, 10.0], [100.0, 30.0]]) == [50.0, 7.5]
    assert one_after_the_other([[100.0], [None]]) == [None]


def test_the_steady_rate_leaves_start_up_out():
    slow_start = [(0.0, 0.0), (10.0, 100.0), (11.0, 200.0), (12.0, 300.0)]
    assert steady_rate(slow_start) == 100.0


def test_too_few_iterations_give_no_rate():
    with pytest.raises(ValueError, match="2 iterations are too few"):
        steady_rate([(0.0, 0.0), (1.0, 100.0)])


@pytest.mark.parametrize(
    ("value", "text"), [(123456.7, "123,457 s"), (12.34, "12.3 s"), (0.0912, "0.09 s"), (None, "-")]
)
def test_figures_are_written_with_their_unit(value: float | None, text: str):
    assert in_words(value, "s") == text


def test_targets_are_judged_by_medians_and_ratios():
    summary = record([50.0, 100.0, 100.0])
    ratio_to_peer, absolute, at_most = summary["targets"]
    assert (ratio_to_peer["value"], ratio_to_peer["met"]) == (3.0, True)
    assert (absolute["value"], absolute["met"]) == (300.0, False)
    assert at_most["met"] is False
    assert {row["key"]: row["median"] for row in summary["rows"]}["both"] == 225.0


def test_the_table_shows_medians_units_and_ratios():
    text = section(record([50.0, 100.0, 100.0]))
    assert "| **rlcore** | us | 300 | 100 to 400 | 1 x 1 |  |  |" in text
    assert "| peer | them | 100 | 50.0 to 100 | 1 x 1 |  | 3.00x |" in text
    assert "median, timesteps/s" in text
    assert "- us: at least 2 times them: 3.00x, met" in text
    assert "load average 0.5 before and 1.25 after" in text


def test_one_run_may_give_several_figures_each_with_its_unit():
    benchmark = Benchmark(
        name="example",
        title="An example",
        unit="",
        conditions="",
        rows=(Row("time", "start", "ours", "w", unit="ms"),),
        beside=(Beside("memory", "memory", "time", "rss_mib", "MiB"), Beside("calls", "calls", "time", "calls")),
        targets=(Target("memory", 250, at_most=True), Target("calls", 5, at_most=True)),
    )
    time = {**measured("start", "ours", [10.0, None, 12.0]), "unit": "ms"}
    time["details"] = [{"rss_mib": 100.0, "calls": 7.0}, {"rss_mib": 110.0, "calls": 9.0}]
    summary = summarize(benchmark, {"time": time})
    assert [row["values"] for row in summary["rows"]] == [[10.0, None, 12.0], [100.0, None, 110.0], [7.0, None, 9.0]]
    text = section({**record([None] * 3), "unit": "", **summary})
    assert "| | | median | lowest to highest |" in text
    assert "| **rlcore** | memory | 105 MiB | 100 to 110 | 1 x 1 |  |  |" in text
    assert "- memory: at most 250 MiB: 105 MiB, met" in text
    assert "- calls: at most 5.00: 8.00, missed" in text


def test_a_peer_that_cannot_run_stays_in_the_table_with_the_reason():
    text = section(record([None, None, None], "cannot be installed: no | such version"))
    assert "| peer | them | not measured: cannot be installed: no / such version |  | 1 x 1 |  |  |" in text
    assert "- us: at least 2 times them: not measured" in text


def test_a_run_that_others_disturbed_shows_it():
    disturbed = record([50.0, 100.0, 100.0])
    disturbed["rows"][0]["details"] = [{"cpu_share": 0.98}, {"cpu_share": 0.49}, {}]
    assert "| **rlcore** | us | 300 | 100 to 400 | 1 x 1 | 49% |  |" in section(disturbed)


def test_only_what_is_between_the_markers_is_replaced():
    old = f"# Benchmarks\n\n{BEGIN}\nold\n{END}\n\nThe end.\n"
    new = document(old, [record([50.0, 100.0, 100.0])])
    assert new.startswith("# Benchmarks\n\n" + BEGIN)
    assert new.endswith(END + "\n\nThe end.\n")
    assert "old" not in new
    assert "Measured on: cpu a CPU, cores 2." in new
    assert document(new, [record([50.0, 100.0, 100.0])]) == new


def test_a_document_without_markers_is_refused():
    with pytest.raises(ValueError, match="no place for results"):
        document("# Benchmarks\n", [])


def test_other_requirements_make_another_environment():
    assert environment_name("sb3", "a==1\n") != environment_name("sb3", "a==2\n")
    assert without_dependencies("# a comment\n# --no-deps a==1\nb==2\n") == ["a==1"]


def test_rows_and_targets_name_what_exists():
    for benchmark in BENCHMARKS.values():
        beside = {one.key for one in benchmark.beside}
        keys = {row.key for row in benchmark.rows} | {limit.key for limit in benchmark.computed} | beside
        ours = {row.key for row in benchmark.rows if row.kind == "ours"}
        assert {row.against for row in benchmark.rows if row.kind != "ours"} <= ours, benchmark.name
        assert {one.of for one in benchmark.beside} <= {row.key for row in benchmark.rows}, benchmark.name
        assert {part for limit in benchmark.computed for part in limit.parts} <= keys, benchmark.name
        assert {key for target in benchmark.targets for key in (target.row, target.of or target.row)} <= keys
        assert benchmark.fewest_rounds >= 3
