"""What a status page is made of: rows, tables and texts as data, drawn plain for a file and by rich for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import RenderableType

Tone = Literal["", "good", "bad", "warn", "info", "dim", "bold"]
STYLES: dict[Tone, str] = {
    "": "",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "info": "cyan",
    "dim": "dim",
    "bold": "bold",
}
GAP = "  "
LABEL_WIDTH = 12
"""Of every block of rows, so that blocks stand in line with each other."""


@dataclass(frozen=True)
class Cell:
    """A text and how it is meant."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Row:
    """A label and what is said of it; the cells are shown on one line, with commas between them."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Rows:
    """Labelled rows, the labels in one column."""

    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Grid:
    """A table with a head.

    Attributes:
        prose: the last column holds sentences; a terminal breaks these, and no other cell.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    prose: bool = False

    def widths(self) -> list[int]:
        """Of the columns, in characters."""
        lines = [self.head, *(tuple(cell.text for cell in cells) for cells in self.rows)]
        return [max(map(len, column)) for column in zip(*lines, strict=True)]


@dataclass(frozen=True)
class Lines:
    """A title and lines shown as they are."""

    title: str
    lines: tuple[str, ...]
    tone: Tone = "dim"


Block = Rows | Grid | Lines


def row(label: str, *cells: Cell | str) -> Row:
    """A row; texts that are empty are left out."""
    made = (cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)
    return Row(label, tuple(cell for cell in made if cell.text))


def plain(blocks: Iterable[Block]) -> list[str]:
    """The lines of a page for a file: nothing is cut or wrapped, one empty line between blocks."""
    lines: list[str] = []
    for block in blocks:
        if lines:
            lines.append("")
        lines += _plain_block(block)
    return lines


def _plain_block(block: Block) -> list[str]:
    if isinstance(block, Rows):
        return [
            f"{entry.label:{LABEL_WIDTH}}{GAP}{', '.join(cell.text for cell in entry.cells)}".rstrip()
            for entry in block.rows
        ]
    if isinstance(block, Grid):
        table = [block.head, *(tuple(cell.text for cell in cells) for cells in block.rows)]
        widths = block.widths()
        return [
            GAP.join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in table
        ]
    return [block.title, *(f"  {line}".rstrip() for line in block.lines)]


def drawn(blocks: Sequence[Block]) -> RenderableType:
    """The same page for a terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for block in blocks:
        if parts:
            parts.append(Text(""))
        parts.append(_drawn_block(block))
    return Group(*parts)


def _drawn_block(block: Block) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if isinstance(block, Rows):
        return _drawn_rows(block)
    if isinstance(block, Grid):
        return _drawn_prose(block) if block.prose else _drawn_grid(block)
    return Group(
        Text(block.title, style="bold"),
        *(Text(f"  {line}", style=STYLES[block.tone], overflow="fold") for line in block.lines),
    )


def _drawn_rows(block: Rows) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, len(GAP)))
    grid.add_column(style="dim", no_wrap=True, min_width=LABEL_WIDTH)
    grid.add_column(overflow="fold")
    for entry in block.rows:
        grid.add_row(entry.label, Text(", ").join(Text(cell.text, style=STYLES[cell.tone]) for cell in entry.cells))
    return grid


def _drawn_grid(block: Grid) -> RenderableType:
    """Lines as wide as they are: a terminal that is narrower breaks them itself, where rich would break each cell."""
    from rich.text import Text

    lines = [tuple(Cell(title, "dim") for title in block.head), *block.rows]
    text = Text(no_wrap=True, overflow="ignore")
    for number, cells in enumerate(lines):
        if number:
            text.append("\n")
        for cell, width in zip(cells, block.widths(), strict=True):
            text.append(cell.text, style=STYLES[cell.tone])
            text.append(" " * (width - len(cell.text) + len(GAP)))
    return text


def _drawn_prose(block: Grid) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, len(GAP), 0, 0), header_style="dim", pad_edge=False)
    for position, title in enumerate(block.head):
        table.add_column(Text(title), no_wrap=position < len(block.head) - 1, overflow="fold")
    for cells in block.rows:
        table.add_row(*(Text(cell.text, style=STYLES[cell.tone]) for cell in cells))
    return table
