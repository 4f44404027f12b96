"""`python requirements.py PYPROJECT[:EXTRA,...] ...`: what these projects require, the projects themselves left out.

The images install it in layers below the code, so that a change of code does not move them again. Nothing but Python's
own library is needed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([\w,\s-]*)\])?")


def requirements(projects: Iterable[tuple[Path, tuple[str, ...]]]) -> list[str]:
    """Requirements of the projects with the extras, sorted; an extra that names others of its project is followed."""
    given = [(tomllib.loads(path.read_text())["project"], extras) for path, extras in projects]
    own = {project["name"] for project, _ in given}
    found: set[str] = set()
    for project, extras in given:
        groups = project.get("optional-dependencies", {})
        left, seen = list(extras), set(extras)
        lines = list(project["dependencies"])
        while left:
            extra = left.pop()
            if extra not in groups:
                raise SystemExit(f"{project['name']} has no extra {extra!r}; there are {sorted(groups)}")
            for line in groups[extra]:
                match = _REQUIREMENT.match(line)
                assert match, line
                if match[1] != project["name"]:
                    lines.append(line)
                    continue
                more = {name.strip() for name in (match[2] or "").split(",")} - seen - {""}
                left += sorted(more)
                seen |= more
        for line in lines:
            match = _REQUIREMENT.match(line)
            assert match, line
            if match[1] not in own:
                found.add(line)
    return sorted(found)


def main() -> None:
    """Prints one requirement a line."""
    projects = []
    for argument in sys.argv[1:]:
        path, _, extras = argument.partition(":")
        projects.append((Path(path), tuple(filter(None, extras.split(",")))))
    print("\n".join(requirements(projects)))


if __name__ == "__main__":
    main()
