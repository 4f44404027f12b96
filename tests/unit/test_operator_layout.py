"""House rules of operator/: no code beside the package, a pure core, nothing heavy, and files of one idea."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "rljob_operator"
MODULES = sorted(PACKAGE.glob("*.py"))

LONGEST = 400


def test_no_code_lies_beside_the_package():
    assert [path.name for path in (ROOT / "operator").glob("*.py")] == []
    assert not [path for path in (ROOT / "operator").iterdir() if path.name in ("tests", "conftest.py", "__init__.py")]


@pytest.mark.parametrize("directory", [ROOT, ROOT / "operator", ROOT / "tests"])
def test_the_standard_librarys_operator_is_what_is_imported(directory):
    code = "import operator, sys; print(operator.__file__); assert operator.itemgetter(1)((1, 2)) == 2"
    done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=True)
    assert str(ROOT / "operator") not in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_has_one_idea_and_fits_on_a_few_screens(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST
    documented = ast.get_docstring(ast.parse(text))
    assert documented, "it says what it is for"
    assert documented.partition("\n")[0].endswith((".", ":", ",", "the"))


def _imports(path: Path) -> set[str]:
    """Modules, and names that may be modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _core() -> set[str]:
    """What `decide` is made of."""
    found, left = set[str](), {"decide"}
    while left:
        module = left.pop()
        found.add(module)
        imported = {name.rpartition(".")[2] for name in _imports(PACKAGE / f"{module}.py") if "rljob_operator" in name}
        left |= {name for name in imported if (PACKAGE / f"{name}.py").exists()} - found
    return found


IMPURE = {"time", "asyncio", "random", "threading", "socket", "subprocess", "logging", "aiohttp", "kubernetes", "kopf"}


@pytest.mark.parametrize("module", sorted(_core()))
def test_the_core_is_pure(module):
    """Decisions are made from what is given: no clock, no network, no threads."""
    assert not {name.partition(".")[0] for name in _imports(PACKAGE / f"{module}.py")} & IMPURE


def test_deciding_needs_neither_ray_nor_torch_nor_a_cluster():
    code = (
        "import sys; import rljob_operator.decide; "
        "print({'ray', 'torch', 'numpy', 'gymnasium', 'kubernetes', 'kopf', 'aiohttp'} & set(sys.modules))"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
