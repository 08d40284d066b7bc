"""`milepost journal`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.opening import opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import compact, iso, moment, plain, say, say_json, table
from milepost.cli.settings import Settings
from milepost.operations.inspection import Inspector

if TYPE_CHECKING:
    from milepost.operations.inspection import Line
    from milepost.stores.api import Store

# Said otherwise in a line's gist, or too long for it; --full shows them.
_LEFT_OUT = {
    "step",
    "path",
    "plan",
    "boundary",
    "digest",
    "args",
    "key",
    "epoch",
    "deadline",
    "tool_version",
    "version",
}
_MOMENTS = {"quiet_at", "retry_at", "ask_at", "until"}
_BOUNDARIES = {"run_created", "checkpointed", "rewind_asked", "rewound", "run_done"}


@click.command()
@click.argument("run")
@click.option("--full", is_flag=True, help="Every field of every entry, and its hash.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N entries.")
@common
def journal(run: str, last: int | None, store: str | None, app: str | None, *, full: bool, as_json: bool) -> None:
    """Show the record of a run: its verified entries, oldest first."""
    with opened(Settings(store, app).url) as store_:
        lines = wait_for(_lines(store_, run))
    gists = gists_of(lines)
    shown = list(zip(lines, gists, strict=True))[-(last or 0) :]
    if as_json:
        say_json([_json(line) for line, _ in shown])
    elif full:
        for line, _ in shown:
            say(f"{line.seq:>5}  {moment(line.at)}  {line.name}")
            say(f"       {compact(line.fields, 100_000)}")
            say(f"       hash {line.hash}")
    else:
        table(
            ("seq", "time (UTC)", "entry", "gist"),
            [(str(line.seq), moment(line.at), line.name.replace("_", " "), gist) for line, gist in shown],
        )


async def _lines(store: Store, prefix: str) -> list[Line]:
    inspector = Inspector(store)
    return await inspector.journal(await inspector.id(prefix))


def _json(line: Line) -> dict[str, Any]:
    return {"seq": line.seq, "at": iso(line.at), "entry": line.name, "fields": line.fields, "hash": line.hash}


def gists_of(lines: list[Line]) -> list[str]:
    """Return each entry in a few words: which step it is about, and what became of it."""
    paths: dict[str, str] = {}
    gists = []
    for line in lines:
        fields = line.fields
        step = fields.get("step", "")
        told = {**fields.get("plan", {}), **fields}
        if told.get("path"):
            paths[step] = told["path"]
        parts = [paths.get(step, step)] if step else []
        if line.name in _BOUNDARIES:
            parts.append(_boundary(fields["boundary"]))
            paths = {}
        parts += [f"{name}={_value(name, value)}" for name, value in fields.items() if name not in _LEFT_OUT]
        gists.append(plain("  ".join(part for part in parts if part)))
    return gists


def _value(name: str, value: Any) -> str:
    return moment(value) if name in _MOMENTS and value else compact(value, 60)


def _boundary(boundary: dict[str, Any]) -> str:
    left, next_ = boundary.get("finished_segment"), boundary.get("segment")
    return " → ".join(name for name in (left, next_ or ("end" if left else None)) if name)
