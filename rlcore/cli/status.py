"""`rlcore status`: how jobs in a cluster are doing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rlcore.cli.kube_options import Where, kube_options

if TYPE_CHECKING:
    from rlcore.cli.status_blocks import Block


@click.command()
@click.argument("name", required=False)
@click.option("-w", "--watch", is_flag=True, help="Follow until the job has finished: exit code 0 Succeeded, 1 Failed.")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@kube_options
@click.pass_context
def status(
    ctx: click.Context,
    name: str | None,
    watch: bool,
    all_namespaces: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Show the RLJob NAME; without a name, list all jobs of the namespace.

    With --watch in a terminal the page is live; elsewhere each change is a line, with -o json an object.
    """
    if all_namespaces and name:
        raise click.UsageError(f"--all-namespaces lists jobs: leave it out to see {name}, or leave out the name", ctx)
    if all_namespaces and namespace:
        raise click.UsageError("--all-namespaces and --namespace exclude each other", ctx)
    # After the usage was judged: what is wrong with a command line is shown at once.
    from rlcore.cli.follow import follow, for_programs
    from rlcore.cli.kube_config import connect
    from rlcore.cli.status_view import job_page, job_table

    with connect(Where(kubeconfig, context, namespace)) as kube:
        scope = "" if all_namespaces else kube.namespace
        if name:
            job = kube.get_job(name, scope)
            if watch:
                ctx.exit(follow(kube, scope, name, output))
            if output == "json":
                click.echo(json.dumps(for_programs(job), indent=2))
            else:
                show(job_page(job, datetime.now(UTC)))
            return
        if watch:
            ctx.exit(follow(kube, scope, "", output))
        jobs = kube.list_jobs(scope).get("items", [])
    if output == "json":
        click.echo(json.dumps({"items": [for_programs(job) for job in jobs]}, indent=2))
    elif jobs:
        show(job_table(jobs, datetime.now(UTC), all_namespaces=all_namespaces))
    else:
        click.echo(f"no RLJobs in {'any namespace' if all_namespaces else f'namespace {scope}'}", err=True)


def show(blocks: Sequence[Block]) -> None:
    """Print a page: with colors in a terminal, plain and never wrapped elsewhere."""
    from rich.console import Console

    from rlcore.cli.status_blocks import drawn, plain

    console = Console()
    if console.is_terminal:
        console.print(drawn(blocks), crop=False)
        return
    for line in plain(blocks):
        click.echo(line)
