"""`rlcore logs`: what the driver, or another part of a job in a cluster, writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rlcore.cli.kube_options import Where, kube_options

if TYPE_CHECKING:
    from rlcore.cli.kube import Kube
    from rlcore.cli.log_pods import Pod


@click.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, until the job has finished.")
@click.option(
    "--role",
    type=click.Choice(["head", "learner", "evaluator"]),
    help="Whose log: head is the driver's.  [default: head; with --pool, evaluator]",
)
@click.option("--pool", metavar="NAME", help="Only the evaluators of this pool.")
@click.option("-p", "--previous", is_flag=True, help="What is kept of the attempt, or container, before.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines.  [default: all]")
@kube_options
def logs(
    name: str,
    follow: bool,
    role: str | None,
    pool: str | None,
    previous: bool,
    tail: int | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Print the log of the RLJob NAME: that of its driver, or with --role that of its pods."""
    role = role or ("evaluator" if pool else "head")
    if pool and role != "evaluator":
        raise click.UsageError(f"--pool is a pool of evaluators; leave --role {role} out")
    if previous and follow:
        raise click.UsageError("--previous is over: there is nothing to --follow")
    from rlcore.cli.kube_config import connect
    from rlcore.cli.log_driver import follow_driver_log, print_driver_log, print_previous_log
    from rlcore.cli.log_pods import print_logs

    with connect(Where(kubeconfig, context, namespace)) as kube:
        if role == "head" and previous:
            print_previous_log(kube, name, kube.namespace, tail=tail, write=write, say=say)
        elif role == "head" and follow:
            follow_driver_log(kube, name, kube.namespace, tail=tail, write=write, say=say)
        elif role == "head":
            print_driver_log(kube, name, kube.namespace, tail=tail, write=write, say=say)
        else:
            pods = find_pods(kube, name, role, pool)
            print_logs(kube, kube.namespace, pods, follow=follow, previous=previous, tail=tail, write=write_line)


def find_pods(kube: Kube, name: str, role: str, pool: str | None) -> list[Pod]:
    """The pods of the newest attempt that have a log; says of the others why they have none.

    Raises:
        UserError: no pod has.
    """
    from rlcore.cli.log_pods import has_log, name_of, of_last_attempt, selector, why_not_running
    from rlcore.errors import UserError

    kube.get_job(name, kube.namespace)
    pods = of_last_attempt(kube.list_pods(kube.namespace, selector(name, role, pool)))
    for pod in pods:
        if not has_log(pod):
            say(f"pod {name_of(pod)} has no log: {why_not_running(pod)}")
    found = [pod for pod in pods if has_log(pod)]
    if not found:
        whose = f"{role} pods{f' of pool {pool}' if pool else ''}"
        what = f"none of the {len(pods)} {whose} runs" if pods else f"{name} has no {whose} now"
        raise UserError(what, hint=f"`rlcore status {name}` says why")
    return found


def write(data: bytes) -> None:
    """To standard output, as it is and at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_line(line: bytes) -> None:
    """A line to standard output."""
    write(line + b"\n")


def say(line: str) -> None:
    """A remark beside the log, to standard error: the log itself can go to a file."""
    click.echo(click.style(f"-- {line}", dim=True), err=True)
