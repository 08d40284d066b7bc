"""All that is written to a terminal: plain text, tables, moments, JSON.

What a record holds was made by models, tools and strangers. It reaches the terminal only through `plain`, which leaves
no control character that could move the cursor, change a colour or turn the direction of the text around.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import click

from milepost.core.duration import from_ms

ID_SHOWN = 8
PIPE_WIDTH = 200
# C0, DEL, C1, line and paragraph separators, and what overrides the direction of text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLES = {
    "done": "green",
    "running": "cyan",
    "ready": "cyan",
    "parked": "yellow",
    "blocked": "bold red",
    "failed": "red",
    "killed": "red",
    "cancelled": "magenta",
    "confirmed": "green",
    "unknown": "bold yellow",
    "started": "yellow",
    "ok": "green",
    "note": "yellow",
    "wrong": "bold red",
}


def plain(text: object) -> str:
    """Return a text on one line that cannot act on a terminal; what it would have acted with is shown escaped."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def compact(value: object, most: int = 100) -> str:
    """Return a value as one line of JSON, cut after `most` characters."""
    text = plain(json.dumps(value, ensure_ascii=False, default=_written))
    return text if len(text) <= most else text[: most - 1] + "…"


def short(run_id: str) -> str:
    """Return a run's id as listings show it; any beginning that fits one run alone may be typed."""
    return run_id[:ID_SHOWN]


def moment(at: int) -> str:
    """Return a moment, given in milliseconds since 1970, as people read it."""
    return from_ms(at).strftime("%Y-%m-%d %H:%M:%S")


def iso(at: int | None) -> str | None:
    """Return a moment, given in milliseconds since 1970, as ISO 8601 in UTC."""
    return None if at is None else from_ms(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(ms: int) -> str:
    """Return how long something lasts, in its largest unit."""
    seconds = max(0, ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def ago(at: int) -> str:
    """Return how long ago a moment was, or how far ahead it is."""
    away = int(datetime.now(UTC).timestamp() * 1000) - at
    return f"in {span(-away)}" if away < 0 else span(away)


def say(text: str = "") -> None:
    """Write one line of our own."""
    click.echo(text)


def say_json(value: object) -> None:
    """Write a value as JSON. Escaped to ASCII, so that it is as safe in a terminal as in a pipe."""
    click.echo(json.dumps(value, indent=2, default=_written))


def note(text: str) -> None:
    """Write a remark that is no part of the answer."""
    click.secho(text, fg="yellow", err=True)


def heading(text: str) -> None:
    """Write the heading of a section."""
    click.echo()
    click.secho(text, bold=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, styled: str = "status") -> None:
    """Write a table. The column named `styled` is coloured by its value; cells are made plain here."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column != columns[-1])
    for row in rows:
        cells = [
            Text(plain(cell), style=_STYLES.get(cell, "") if column == styled else "")
            for column, cell in zip(columns, row, strict=True)
        ]
        made.add_row(*cells)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=sys.stdout.isatty(), markup=False, highlight=False)
    console.print(made)
    for line in written.getvalue().splitlines():
        click.echo(line.rstrip())


def _written(value: object) -> Any:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return str(value)
