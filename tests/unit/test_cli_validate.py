"""`rlcore`, its lazy subcommands and its exit codes, and `rlcore validate`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore import __version__
from rlcore.cli.lazy import Subcommand
from rlcore.cli.main import SUBCOMMANDS, run_cli

HEAVY = ("ray", "torch", "numpy", "gymnasium", "matplotlib", "tensorboard", "lz4")


MANIFEST = """\
apiVersion: rlcore.io/v1alpha1
kind: RLJob
metadata: {name: cart}
spec:
  algorithm: PPO
  environment: {id: CartPole-v1}
  stop: {timesteps: 200000, episodeReward: 475}
  config:
    numEpochs: 4
    gamma: 0.98
"""


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(MANIFEST)
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.yaml"
    path.write_text(MANIFEST.replace("numEpochs", "numEpoch").replace("0.98", "98"))
    return str(path)


@pytest.fixture
def subcommands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subcommands that fail in every way, in a module of their own."""
    (tmp_path / "failing_commands.py").write_text(
        "import click\n"
        "from rlcore.errors import CheckpointError\n"
        "@click.command()\ndef user(): raise CheckpointError('the disk is full', hint='make room')\n"
        "@click.command()\ndef bug(): raise ZeroDivisionError('oh')\n"
        "@click.command()\ndef interrupt(): raise KeyboardInterrupt\n"
        "@click.command()\n@click.pass_context\ndef code(ctx): ctx.exit(7)\n"
    )
    (tmp_path / "needs_missing.py").write_text("import a_package_nobody_has.part\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("user", "bug", "interrupt", "code"):
        monkeypatch.setitem(SUBCOMMANDS, name, Subcommand(f"failing_commands:{name}", "-"))
    monkeypatch.setitem(SUBCOMMANDS, "missing", Subcommand("needs_missing:x", "-"))


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules in memory after a command line has run, in a process of its own."""
    code = (
        "import sys\nfrom rlcore.cli.main import run_cli\n"
        f"assert run_cli({list(arguments)!r}) == 0\n"
        "print('MODULES', *{name.split('.')[0] for name in sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split("MODULES ")[1].split())


def test_help_lists_the_subcommands_and_imports_none_of_them(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--help"]) == 0
    shown = capfd.readouterr().out
    for name, subcommand in SUBCOMMANDS.items():
        assert name in shown
        assert subcommand.help in shown
    assert not {*HEAVY, "pydantic", "yaml"} & modules_after("--help")


def test_validate_imports_nothing_heavy(good: str) -> None:
    modules = modules_after("validate", good)
    assert "pydantic" in modules
    assert not {*HEAVY} & modules


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--version"]) == 0
    assert capsys.readouterr().out == f"rlcore {__version__}\n"


def test_the_installed_command_and_no_arguments() -> None:
    result = subprocess.run([Path(sys.executable).with_name("rlcore")], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Usage: rlcore" in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validat"], "no such command 'validat'; did you mean validate?"),
        (["zzz"], "no such command 'zzz'; there are: run, validate, eval, play, plot"),
        (["validate"], "Missing argument 'FILE...'"),
        (["validate", "--outptu", "json", "x"], "No such option"),
        (["validate", "--output", "xml", "x"], "'xml' is not one of 'text', 'json'"),
    ],
)
def test_wrong_usage_says_what_is_right(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("subcommands")
def test_a_users_mistake_is_two_lines_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["user"]) == 2
    assert capsys.readouterr().err == "error: the disk is full\n  -> make room\n"


@pytest.mark.usefixtures("subcommands")
def test_a_bug_has_a_traceback_and_says_where_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["bug"]) == 70
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ZeroDivisionError: oh" in shown
    assert "please report it" in shown


@pytest.mark.usefixtures("subcommands")
def test_other_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["code"]) == 7
    assert run_cli(["interrupt"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.usefixtures("subcommands")
def test_a_missing_package_names_the_extra_that_brings_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["missing"]) == 2
    shown = capsys.readouterr().err
    assert "`rlcore missing` needs a_package_nobody_has, which is not installed" in shown
    assert "pip install 'rlcore[train]'" in shown


def test_a_reader_that_goes_away_is_no_error(good: str) -> None:
    code = f"import sys; from rlcore.cli.main import main; main(['validate', {good!r}])"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as errors:
        assert "Traceback" not in errors.read()
    assert process.wait() == 1


def test_a_valid_manifest_is_summed_up_in_a_line(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["validate", good]) == 0
    shown = capsys.readouterr()
    assert shown.out == (
        f"{good}: valid (PPO on CartPole-v1, LocalMultiGPU, 1 to 4 evaluator pods, "
        "until 200,000 timesteps or reward 475)\n"
    )
    assert shown.err == ""


def test_all_problems_of_all_files_are_shown(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["validate", good, bad, "nope.yaml"]) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{good}: valid (")
    lines = shown.err.splitlines()
    assert lines[0] == f"{bad}: not valid, 2 problems"
    assert lines[1] == "  line 9: spec.config.numEpoch: PPO has no such field; did you mean numEpochs?"
    assert lines[2] == "  line 10: spec.config.gamma: 98 is out of range; allowed: 0 to 1"
    assert lines[3:] == [
        "nope.yaml: not valid, 1 problem",
        "  nope.yaml does not exist: give the path of an RLJob manifest",
    ]


def test_json_for_programs(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["validate", "--output", "json", good, bad]) == 2
    valid, refused = json.loads(capsys.readouterr().out)["files"]
    assert (valid["valid"], valid["name"], valid["problems"]) == (True, "cart", [])
    assert refused["valid"] is False
    assert [problem["path"] for problem in refused["problems"]] == ["spec.config.numEpoch", "spec.config.gamma"]
    assert [problem["line"] for problem in refused["problems"]] == [9, 10]


def test_a_dash_reads_standard_input() -> None:
    command = [sys.executable, "-m", "rlcore.cli.main", "validate", "-"]
    result = subprocess.run(command, input=MANIFEST, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("-: valid (PPO on CartPole-v1")
