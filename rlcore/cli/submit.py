"""`rlcore submit`: train a manifest in a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlcore.cli.kube_options import Where, kube_options

if TYPE_CHECKING:
    from rlcore.api import RLJob
    from rlcore.cli.apply import Applied, Object
    from rlcore.cli.kube import Kube


def _seconds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from rlcore.api.quantity import parse_duration

    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


@click.command()
@click.argument("manifest")
@click.option("--wait", is_flag=True, help="Follow until the job has finished: exit code 0 Succeeded, 1 Failed.")
@click.option(
    "--timeout", callback=_seconds, metavar="DURATION", help="With --wait: give up after this, such as 30m; code 124."
)
@click.option("--dry-run", is_flag=True, help="Let the API server judge the manifest, and change nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that kubectl or others have set.")
@kube_options
@click.pass_context
def submit(
    ctx: click.Context,
    manifest: str,
    wait: bool,
    timeout: int | None,
    dry_run: bool,
    force_conflicts: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Create the RLJob of MANIFEST in a cluster, or change the one that is there.

    MANIFEST is judged offline first, as `rlcore validate` does; - reads standard input. Objects that stand beside the
    RLJob, such as a ConfigMap with the environment's code, are applied before it. The namespace is that of -n, else of
    the manifest, else of the context.
    """
    if dry_run and wait:
        raise click.UsageError("--dry-run starts nothing that --wait could wait for", ctx)
    if timeout is not None and not wait:
        raise click.UsageError("--timeout is used only with --wait", ctx)
    job, text = read_manifest(manifest)
    # A manifest's mistakes are shown before anything is imported that a cluster needs.
    from rlcore.cli.follow import follow
    from rlcore.cli.kube_config import connect

    where = Where(kubeconfig, context, namespace)
    name = job.metadata.name
    with connect(where) as kube:
        target = choose_namespace(namespace, job.metadata.namespace, kube.namespace)
        applied = apply_all(kube, documents_of(text), target, name, dry_run=dry_run, force=force_conflicts)
        for line in [*change_lines(applied), *notes(applied)]:
            click.echo(line)
        for warning in kube.warnings:
            click.echo(click.style("warning: ", fg="yellow") + warning, err=True)
        if wait:
            click.echo("")
            ctx.exit(follow(kube, target, name, "text", timeout_s=timeout))
    if not dry_run:
        chosen = target if namespace or job.metadata.namespace else ""
        for line in next_commands(name, where.arguments(chosen)):
            click.echo(line)


def apply_all(
    kube: Kube, documents: Sequence[Object], namespace: str, name: str, *, dry_run: bool, force: bool
) -> Applied:
    """Apply the objects beside the RLJob, then the RLJob; what became of the RLJob."""
    from rlcore.cli.apply import apply, find_place, is_job, place_of_job

    for document in documents:
        if not is_job(document):
            place = find_place(kube, document, namespace)
            applied = apply(kube, document, place, dry_run=dry_run, force=force)
            click.echo(outcome_line(place.asked.kind, place.asked.name, place.asked.namespace, applied, dry_run))
    own = next(document for document in documents if is_job(document))
    applied = apply(kube, own, place_of_job(name, namespace), dry_run=dry_run, force=force)
    click.echo(outcome_line("rljob", name, namespace, applied, dry_run))
    return applied


def read_manifest(manifest: str) -> tuple[RLJob, str]:
    """The job, and the text it was read from.

    Raises:
        ManifestError: there is no valid RLJob; the text lists every problem.
    """
    from rlcore.api import ManifestError, load_job, parse_job

    path = Path(manifest)
    if manifest != "-" and (not path.exists() or path.is_file() or path.is_dir()):
        return load_job(path), path.read_text(encoding="utf-8-sig")
    # A pipe can be read only once.
    source = "<stdin>" if manifest == "-" else manifest
    data = sys.stdin.buffer.read() if manifest == "-" else path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{source} is not UTF-8 text: byte {error.start}") from None
    return parse_job(text, source=source), text


def documents_of(text: str) -> list[dict[str, Any]]:
    """The objects of a stream that holds one valid RLJob.

    Raises:
        UserError: a document beside it is no object.
    """
    from rlcore.api.yaml_tree import parse_documents
    from rlcore.errors import UserError

    documents = []
    for node in parse_documents(text):
        if not isinstance(node.value, dict):
            raise UserError(f"the document on line {node.line} is no Kubernetes object")
        documents.append(node.value)
    return documents


def choose_namespace(option: str | None, manifest: str | None, context: str) -> str:
    """Where the job goes: -n, else the manifest's namespace, else the context's.

    Raises:
        UserError: -n and the manifest disagree.
    """
    from rlcore.errors import UserError

    if option and manifest and option != manifest:
        raise UserError(
            f"metadata.namespace of the manifest is {manifest}, and -n says {option}",
            hint="leave one of them out",
        )
    return option or manifest or context


def outcome_line(kind: str, name: str, namespace: str, applied: Applied, dry_run: bool) -> str:
    """What happened to an object, or would happen."""
    where = f" in namespace {namespace}" if namespace else ""
    if dry_run:
        would = {"created": "would be created", "changed": "would be changed", "unchanged": "would not be changed"}
        return f"{kind} {name} {would[applied.outcome]}{where}"
    return f"{kind} {name} {applied.outcome}{where}"


def change_lines(applied: Applied) -> list[str]:
    """The changed fields, one a line."""
    from rlcore.cli.apply import MAX_CHANGES

    left_out = len(applied.changes) - MAX_CHANGES
    lines = [f"  {change}" for change in applied.changes[:MAX_CHANGES]]
    return [*lines, f"  and {left_out} more"] if left_out > 0 else lines


def notes(applied: Applied) -> list[str]:
    """What a user may not expect of a job that was there before."""
    from rlcore.cli.status_text import is_finished, mapping, phase_of

    job: Object = applied.job
    if mapping(job, "metadata").get("deletionTimestamp"):
        return ["  it is being deleted: submit it again when it is gone"]
    if applied.outcome == "unchanged" and is_finished(job):
        return [f"  it has {phase_of(job).lower()} already: to train it anew, delete it first or choose another name"]
    return []


def next_commands(name: str, options: str) -> list[str]:
    """What a user may want to do next, one command a line."""
    return [
        "",
        f"  watch    rlcore status {name}{options} --watch",
        f"  log      rlcore logs {name}{options} -f",
        f"  delete   kubectl delete rljob {name}{options}",
    ]
