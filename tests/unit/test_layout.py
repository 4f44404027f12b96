"""The house rules that no linter knows."""

import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.api import load_job

ROOT = Path(__file__).parents[2]
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
LONGEST = 500


def test_the_standard_library_keeps_its_operator_module():
    assert "site-packages" not in str(operator.__file__)
    assert not str(operator.__file__).startswith(str(ROOT))
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not [path for path in TRACKED if re.match(r"operator/[^/]*\.py$|tests/(operator|rlcore)/", path)]


def test_no_file_of_code_is_longer_than_500_lines():
    code = [ROOT / path for path in TRACKED if path.endswith(".py")]
    long = {path.name: lines for path in code if (lines := len(path.read_text().splitlines())) > LONGEST}
    assert not long


def test_test_files_have_unique_names():
    names = [Path(path).name for path in TRACKED if re.match(r"tests/.*test_\w+\.py$", path)]
    assert len(names) == len(set(names))


def test_importing_rlcore_is_cheap():
    heavy = "{'torch', 'ray', 'numpy', 'gymnasium', 'pydantic'} & set(sys.modules)"
    code = f"import rlcore, sys; print({heavy})"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"


def test_the_readmes_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("manifest", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_valid(manifest):
    assert load_job(manifest).metadata.name == manifest.stem


def test_the_readmes_manifest_is_valid(tmp_path):
    manifest = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert manifest
    path = tmp_path / "job.yaml"
    path.write_text(manifest.group(1))
    assert load_job(path).spec.algorithm == "PPO"


def test_no_file_names_a_registry_or_a_path_of_a_developers_machine():
    pattern = re.compile(r"((?<!/)/root/|/home/\w+/|--index-url|--extra-index-url|files\.pythonhosted)")
    texts = [ROOT / path for path in TRACKED if path and Path(path).suffix not in {".png", ".svg"}]
    assert not [
        str(p) for p in texts if p.is_file() and p != Path(__file__) and pattern.search(p.read_text(errors="replace"))
    ]
