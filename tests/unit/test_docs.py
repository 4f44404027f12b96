"""What the documents say is so: lists are the code's, tables are counted, links lead somewhere."""

import dataclasses
import re
from pathlib import Path

import pytest

from benchmarks import lines
from rlcore.api import load_job
from rlcore.api.algorithms import ALGORITHMS, OPTIMIZERS
from tests.action_spaces import BOX, DISCRETE, EVERY, SUPPORTED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
SPACES = {EVERY: "all", DISCRETE: "Discrete", BOX: "Box", BOX | DISCRETE: "Box, Discrete"}
AGENTS = {"any": "one or several", "one": "one", "many": "several"}


def sections(name: str) -> dict[str, str]:
    """Heading -> text, of the headings of second rank."""
    parts = re.split(r"^## (.+)$", (DOCS / name).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def item(section: str, name: str) -> str:
    found = re.search(rf"^- {name}: (.+(?:\n  .+)*)$", section, re.MULTILINE)
    assert found, f"no line '- {name}: ...'"
    return found.group(1)


def anchors(path: Path) -> set[str]:
    """GitHub's anchors of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(linked), f"{target} names no heading"


def test_every_document_can_be_reached_from_the_readme():
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        waiting += [(path.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+\.md)", path.read_text())]
    assert not [str(path.relative_to(ROOT)) for path in set(DOCUMENTS) - seen]


# algorithms ------------------------------------------------------------------------


def test_every_algorithm_has_its_section():
    assert [name for name in sections("algorithms.md") if not name.startswith("A population")] == sorted(
        ALGORITHMS, key=list(sections("algorithms.md")).index
    )


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_an_algorithms_section_says_what_the_code_does(name):
    section = sections("algorithms.md")[name]
    info = ALGORITHMS[name]
    assert item(section, "Optimizers") == ", ".join(info.optimizers)
    assert item(section, "Action spaces") == SPACES[SUPPORTED[name]]
    assert item(section, "Agents") == AGENTS[info.agents]
    assert "](https://" in item(section, "Paper")
    example = item(section, "Example")
    for file in re.findall(r"\]\(\.\./(examples/[^)]+)\)", example):
        algorithm = load_job(ROOT / file).spec.algorithm
        assert algorithm == name or example.startswith("none;")


# optimizers ------------------------------------------------------------------------


def test_every_optimizer_has_its_section():
    assert set(sections("optimizers.md")) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_an_optimizers_section_says_what_the_code_has(name):
    section = sections("optimizers.md")[name]
    pseudocode = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert pseudocode
    assert len(pseudocode.group(1).splitlines()) <= 6
    users = [info.config for info in ALGORITHMS.values() if name in info.optimizers]
    fields = {field.alias for config in users for field in config.model_fields.values()}
    named = set(re.findall(r"`([a-z]+[A-Z]\w*|input)`", section))
    assert named <= fields, named - fields
    item(section, "Queues")
    item(section, "Failures")


def test_counters_that_the_documents_name_are_counted():
    code = "\n".join(path.read_text() for path in (ROOT / "rlcore").rglob("*.py"))
    for name, section in sections("optimizers.md").items():
        for counter in re.findall(r"`([a-z]+(?:_[a-z]+)+|epochs|directions)`", item(section, "Counted")):
            assert f'"{counter}"' in code, f"{name}: nothing counts {counter}"


# lines -----------------------------------------------------------------------------


def test_the_tables_of_lines_are_what_is_counted():
    text = (DOCS / "architecture.md").read_text()
    assert lines.document(text) == text, "run `python -m benchmarks.lines --write`"


def test_every_optimizer_and_algorithm_is_counted():
    assert {part.name for part in lines.OPTIMIZERS} == set(OPTIMIZERS)
    assert {part.name for part in lines.ALGORITHMS} >= set(ALGORITHMS)
    for part in (*lines.OPTIMIZERS, *lines.ALGORITHMS):
        assert len(set(part.own) & set(part.shared)) == 0, dataclasses.asdict(part)


def test_what_a_line_of_code_is():
    source = '''"""A docstring
of two lines."""

import os  # a comment

# another


def function() -> str:
    """One more."""
    text = """not a docstring
    of two lines"""
    return (
        text
    )


limit = 3
"""Below an attribute."""
'''
    assert lines.code_lines(source) == 1 + 1 + 2 + 3 + 1
