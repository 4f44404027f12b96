"""Columns for a checkpoint: LZ4 where it pays, arrays and JSON only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcore.compression import PackedColumn, pack_column, unpack_column


def save_columns(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Columns, packed."""
    return {name: _save(pack_column(column)) for name, column in columns.items()}


def load_columns(saved: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns that `save_columns` was given; they may be read-only views."""
    return {name: unpack_column(_load(entry)) for name, entry in saved.items()}


def _save(packed: PackedColumn) -> dict[str, Any]:
    return {
        "dtype": packed.dtype,
        "shape": list(packed.shape),
        "codec": packed.codec,
        "blocks": [np.array(block) for block in packed.blocks],
    }


def _load(entry: Mapping[str, Any]) -> PackedColumn:
    blocks = [np.asarray(block) for block in entry["blocks"]]
    return PackedColumn(entry["dtype"], tuple(entry["shape"]), entry["codec"], blocks)
