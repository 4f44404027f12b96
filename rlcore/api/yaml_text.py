"""Manifests as YAML text that is read back as what it was."""

from __future__ import annotations

from typing import Any

import yaml

from rlcore.api.yaml_tree import YamlTextError, read_scalar

# libyaml takes a fifth of the time.
_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BASE):  # type: ignore[misc]
    """Quotes texts that `yaml_tree` would take for something else, such as N (no) or 1e5, which PyYAML leaves plain."""


def _represent(dumper: Any, text: str) -> Any:
    try:
        plain = isinstance(read_scalar(text, plain=True, tag=None, line=0), str)
    except YamlTextError:
        plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else "'")


_Dumper.add_representer(str, _represent)


def dump_yaml(document: Any) -> str:
    """Plain data as YAML, keys in their order."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False))
