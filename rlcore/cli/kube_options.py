"""The options that choose a cluster, shared by the subcommands that need one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Where:
    """What the user said about the cluster; None: the kubeconfig's own."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None

    def arguments(self, namespace: str) -> str:
        """The options that lead other commands to the same place, with a leading blank; kubectl knows them too.

        Args:
            namespace: empty: that of the context.
        """
        options = [("--kubeconfig", self.kubeconfig), ("--context", self.context), ("-n", namespace)]
        return "".join(f" {option} {shlex.quote(value)}" for option, value in options if value)


def kube_options(command: Command) -> Command:
    """Gives a subcommand the options that choose the cluster; it takes them as kubeconfig, context, namespace."""
    for option in (
        click.option("-n", "--namespace", metavar="NAME", help="Namespace  [default: that of the context]"),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig  [default: the current one]"),
        click.option(
            "--kubeconfig", metavar="FILE", help="Kubeconfig  [default: $KUBECONFIG, else ~/.kube/config, as kubectl]"
        ),
    ):
        command = option(command)
    return command
