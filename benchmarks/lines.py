"""Lines of code per optimizer and per algorithm, beside the paper's and RLlib Flow's: `python -m benchmarks.lines`.

A line counts if it holds code: blank lines, comments and docstrings do not. `--write` puts the tables into
docs/architecture.md; a test fails where they are not what this counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- lines: written by `python -m benchmarks.lines --write`, do not edit -->"
END = "<!-- end of lines -->"
IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


@dataclass(frozen=True)
class Part:
    """One row.

    Attributes:
        name: of the optimizer or algorithm, as a manifest spells it.
        own: its own files, below rlcore.
        shared: files that it shares with a few others.
        theirs: the paper's figure, or RLlib's before and after RLlib Flow; "" for none.
    """

    name: str
    own: tuple[str, ...]
    shared: tuple[str, ...] = ()
    theirs: str = ""


def _optimizer(name: str, *own: str, shared: tuple[str, ...] = (), theirs: str = "") -> Part:
    return Part(name, _below("optimizers", own), _below("optimizers", shared), theirs)


def _algorithm(name: str, file: str, *policy: str, shared: tuple[str, ...] = (), theirs: str = "") -> Part:
    return Part(name, (f"algorithms/{file}", *_below("policy", policy)), _below("policy", shared), theirs)


def _below(folder: str, files: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder}/{file}.py" for file in files)


REPLAY = ("replay_config", "train_debt", "replay_shard")
# "x -> y": RLlib before and after RLlib Flow, of arXiv 2011.12719, table 2; "about": arXiv 1712.09381.
OPTIMIZERS = (
    _optimizer("SyncSamples", "sync_samples", theirs="A2C 154 -> 25"),
    _optimizer("LocalMultiGPU", "local_multi_gpu", theirs="PPO 386 -> 79"),
    _optimizer("SyncReplay", "sync_replay", shared=REPLAY, theirs="DQN 239 -> 87"),
    _optimizer("SyncBatchReplay", "sync_batch_replay", shared=REPLAY),
    _optimizer("AsyncGradients", "async_gradients", theirs="A3C 87 -> 11"),
    _optimizer("AsyncSamples", "async_samples", shared=("aggregation", "sample_replay"), theirs="IMPALA 694 -> 362"),
    _optimizer("AsyncReplay", "async_replay", shared=(*REPLAY, "replay_shards"), theirs="Ape-X about 200; 250 -> 126"),
    _optimizer("Allreduce", "allreduce", shared=("allreduce_group",)),
    _optimizer("ShardedParameterServer", "sharded_parameter_server", shared=("parameter_shard",)),
    _optimizer("Evolution", "evolution", shared=("aggregation", "perturbed")),
    _optimizer("OfflineSamples", "offline_samples"),
)
OFF_POLICY = ("off_policy", "with_target")
ACTOR_CRITIC = ("actor_critic",)
ALGORITHMS = (
    _algorithm("PG", "pg.py", "a2c", shared=ACTOR_CRITIC),
    _algorithm("A2C", "a2c.py", "a2c", shared=ACTOR_CRITIC),
    _algorithm("A3C", "a2c.py", "a2c", shared=ACTOR_CRITIC),
    _algorithm("PPO", "ppo.py", "ppo", "ppo_loss", shared=ACTOR_CRITIC),
    _algorithm("APPO", "impala.py", "impala", "vtrace", shared=ACTOR_CRITIC),
    _algorithm("IMPALA", "impala.py", "impala", "vtrace", shared=ACTOR_CRITIC),
    _algorithm("DQN", "dqn.py", "dqn", "dqn_loss", "q_network", shared=OFF_POLICY),
    _algorithm("ApexDQN", "dqn.py", "dqn", "dqn_loss", "q_network", shared=OFF_POLICY),
    _algorithm("DDPG", "ddpg.py", "ddpg", shared=("q_actor_critic", "critics", *OFF_POLICY)),
    _algorithm("TD3", "ddpg.py", "ddpg", shared=("q_actor_critic", "critics", *OFF_POLICY)),
    _algorithm("ApexDDPG", "ddpg.py", "ddpg", shared=("q_actor_critic", "critics", *OFF_POLICY)),
    _algorithm("SAC", "sac.py", "sac", "sac_actions", shared=("q_actor_critic", "critics", *OFF_POLICY)),
    _algorithm("ES", "evolution.py", "evolution", "evolution_weights", shared=("noise_table", "crowd")),
    _algorithm("ARS", "evolution.py", "evolution", "evolution_weights", shared=("noise_table", "crowd")),
    Part(
        "PPOES",
        ("algorithms/ppo_es.py", "policy/ppo_es.py", "optimizers/nested_ppo.py"),
        _below("policy", ("ppo", "ppo_loss", "actor_critic")),
        "about 50",
    ),
    _algorithm("BC", "offline.py", "marwil", shared=ACTOR_CRITIC),
    _algorithm("MARWIL", "offline.py", "marwil", shared=ACTOR_CRITIC),
    _algorithm("MADDPG", "maddpg.py", "maddpg", "joint", shared=OFF_POLICY),
    _algorithm("QMIX", "qmix.py", "qmix", "mixer", "joint", shared=OFF_POLICY),
    _algorithm("AlphaZero", "alpha_zero.py", "alpha_zero", "tree_search", theirs="AlphaGo Zero's loop about 70"),
    Part("PBT (`spec.population`)", ("driver/pbt.py",), ("driver/population.py", "driver/trial.py"), "about 15"),
)


def code_lines(source: str) -> int:
    """Lines of Python that hold code; those of a docstring do not."""
    docstrings = {line for node in ast.walk(ast.parse(source)) for line in _docstring(node)}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in IGNORED and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def _docstring(node: ast.AST) -> range:
    """The lines of a definition's docstring, or of the string below an attribute."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def table(title: str, parts: Sequence[Part]) -> list[str]:
    """One table in Markdown."""
    lines = [f"| {title} | its own | with what it shares | the paper; RLlib -> RLlib Flow |", "|---|---:|---:|---|"]
    for part in parts:
        own = _count(part.own)
        lines.append(f"| {part.name} | {own} | {own + _count(part.shared)} | {part.theirs} |")
    return lines


def _count(files: Iterable[str]) -> int:
    return sum(code_lines((ROOT / "rlcore" / name).read_text()) for name in files)


def document(text: str) -> str:
    """`text` with everything between its two markers counted anew.

    Raises:
        ValueError: a marker is missing.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text needs the lines {BEGIN!r} and {END!r}, in this order")
    tables = [*table("optimizer", OPTIMIZERS), "", *table("algorithm", ALGORITHMS)]
    return head + "\n\n".join([BEGIN, "\n".join(tables), END]) + tail


def main(argv: list[str] | None = None) -> int:
    """Prints the tables, or writes them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lines", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.relative_to(ROOT)}")
    if parser.parse_args(argv).write:
        DOCUMENT.write_text(document(DOCUMENT.read_text()))
    else:
        print(document(f"{BEGIN}\n{END}"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
