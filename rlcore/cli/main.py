"""The entry point of `rlcore`: the table of subcommands, and what an error looks like to the user.

Exit codes: 0 success; 1 the reader of the output went away; 2 the user's input or surroundings are wrong; 70 a bug in
rlcore; 130 interrupted. A subcommand may end with another code by `ctx.exit(code)`: `submit --wait` and
`status --watch` end with 1 where the job failed.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from rlcore import __version__
from rlcore.cli.lazy import LazyGroup, Subcommand
from rlcore.errors import RlcoreError, UserError

EXIT_USER_ERROR = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 1

SUBCOMMANDS = {
    "run": Subcommand("rlcore.cli.run:run", "Train a manifest on this machine, or resume it."),
    "validate": Subcommand("rlcore.cli.validate:validate", "Check manifests and say all that is wrong with them."),
    "eval": Subcommand("rlcore.cli.eval:evaluate", "Let a checkpoint's policy act, and report its reward."),
    "play": Subcommand("rlcore.cli.play:play", "Play a board game against a checkpoint's policy, or watch it."),
    "plot": Subcommand("rlcore.cli.plot:plot", "Draw the learning curve of a run."),
    "record": Subcommand("rlcore.cli.record:record", "Record what a checkpoint's policy does, to learn from."),
    "submit": Subcommand("rlcore.cli.submit:submit", "Train a manifest in a Kubernetes cluster."),
    "status": Subcommand("rlcore.cli.status:status", "Show how the jobs in a cluster are doing."),
    "logs": Subcommand("rlcore.cli.logs:logs", "Print the log of a job in a cluster."),
}

cli = click.version_option(__version__, prog_name="rlcore", message="%(prog)s %(version)s")(
    LazyGroup(
        name="rlcore",
        subcommands=SUBCOMMANDS,
        help="Distributed reinforcement learning from one RLJob manifest: here, or on Kubernetes.",
    )
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: without the program's name; None: those of the process.
    """
    sys.exit(run_cli(arguments))


def run_cli(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are printed to stderr."""
    try:
        # Without click's own handling: it would end the process with codes of its own.
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="rlcore", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        show_user_error(error)
        return EXIT_USER_ERROR
    except click.ClickException as error:
        error.show()
        return EXIT_USER_ERROR
    except (click.Abort, KeyboardInterrupt):
        click.secho("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at its end; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:
        show_bug(error)
        return EXIT_BUG
    return code if isinstance(code, int) else 0


def show_user_error(error: UserError) -> None:
    """Print what is wrong and what to do, in color on a terminal."""
    click.echo(click.style("error: ", fg="red", bold=True) + error.message, err=True)
    if error.hint:
        click.echo(click.style("  -> ", fg="cyan") + error.hint, err=True)


def show_bug(error: BaseException) -> None:
    """Print the traceback of an error that is nobody's input, and where to report it."""
    traceback.print_exception(error)
    what = "rlcore found a bug in itself" if isinstance(error, RlcoreError) else "this is a bug in rlcore"
    click.echo(click.style(f"error: {what}", fg="red", bold=True), err=True)
    click.echo(
        f"  -> please report it with the lines above, the manifest and `rlcore --version` ({__version__}) "
        "to the issues of the project's repository",
        err=True,
    )


if __name__ == "__main__":
    main()
