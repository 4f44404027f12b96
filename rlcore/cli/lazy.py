"""A click group that imports a subcommand only when it is called, so that --help and validate stay fast."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import NamedTuple

import click

from rlcore.errors import UserError


class Subcommand(NamedTuple):
    """Where a subcommand is, and what --help says of it.

    Attributes:
        target: "package.module:attribute" of a click command.
        help: one line.
    """

    target: str
    help: str


class LazyGroup(click.Group):
    """A group over a table of subcommands; listing them imports none.

    Args:
        subcommands: by name, in the order of --help.
    """

    def __init__(self, *, subcommands: Mapping[str, Subcommand], name: str | None = None, help: str | None = None):  # noqa: A002
        super().__init__(name=name, help=help, context_settings={"help_option_names": ["-h", "--help"]})
        self.subcommands = subcommands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands, in the table's order."""
        return list(self.subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand; None where there is none of this name."""
        subcommand = self.subcommands.get(cmd_name)
        return None if subcommand is None else load_command(cmd_name, subcommand)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that the arguments begin with; name the nearest one where there is none."""
        if args and args[0] not in self.subcommands and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.subcommands, n=1)
            known = ", ".join(self.subcommands)
            raise click.UsageError(
                f"no such command {args[0]!r}; " + (f"did you mean {near[0]}?" if near else f"there are: {known}"), ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, subcommand.help) for name, subcommand in self.subcommands.items()])


def load_command(name: str, subcommand: Subcommand) -> click.Command:
    """Import a subcommand.

    Raises:
        UserError: it needs a package that is not installed.
    """
    module_name, attribute = subcommand.target.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in ("", "rlcore"):
            raise
        raise UserError(
            f"`rlcore {name}` needs {missing}, which is not installed", hint="pip install 'rlcore[train]'"
        ) from error
    command = getattr(module, attribute)
    assert isinstance(command, click.Command), f"{subcommand.target} is not a click command"
    return command
