"""What a soak found, as one table: for a terminal, and for a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MOMENTS = ("start", "1/4", "1/2", "3/4", "end")


@dataclass
class Row:
    """One thing that was looked at: at the five moments, or at the end alone. `must` is what it must be."""

    what: str
    cells: list[str]
    must: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def held(self) -> str:
        """Whether it was as it must be."""
        return "" if not self.must else "violated" if self.problems else "held"

    @property
    def texts(self) -> list[str]:
        """Return its cells, one a column."""
        cells = [*([""] * (len(MOMENTS) - 1)), *self.cells] if len(self.cells) == 1 else self.cells
        return [self.what, *cells, self.must, self.held]


@dataclass
class Report:
    """All that was looked at."""

    title: str
    rows: list[Row] = field(default_factory=list)

    def add(self, what: str, *cells: object, must: str = "", problems: Iterable[str] = ()) -> None:
        """Add a row."""
        self.rows.append(Row(what, [said(cell) for cell in cells], must, list(problems)))

    @property
    def problems(self) -> list[str]:
        """Everything that must never be."""
        return [f"{row.what}: {problem}" for row in self.rows for problem in row.problems]

    def as_text(self) -> str:
        """Return the table for a terminal."""
        lines = [["what", *MOMENTS, "must be", ""], *(row.texts for row in self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
        aligned = [
            "  ".join(
                cell.rjust(width) if 0 < place <= len(MOMENTS) else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, "", *aligned])

    def as_markdown(self) -> str:
        """Return the table for a page."""
        head = f"| what | {' | '.join(MOMENTS)} | must be | |"
        rule = f"|---|{'---:|' * len(MOMENTS)}---|---|"
        return "\n".join([self.title, "", head, rule, *(f"| {' | '.join(row.texts)} |" for row in self.rows)])


def said(cell: object) -> str:
    """Return a cell as text; numbers with their thousands."""
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
