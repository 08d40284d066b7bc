"""The part of `milepost show` about code and checkpoints: what differs, side by side, and what each boundary cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.cli.printing import heading, iso, moment, plain, say, span, table
from milepost.core.manifest import Manifest, differences

if TYPE_CHECKING:
    from milepost.operations.checkpoints import Checkpoints
    from milepost.operations.inspection import RunDetail

KILO = 1024


def code_json(detail: RunDetail) -> dict[str, Any]:
    """Return what differs between the code that made the run and what it met since."""
    return {
        "changes": list(detail.changes),
        "refused": detail.refused,
        "differences": [{"part": part, "recorded": was, "today": now} for part, was, now in _sides(detail)],
    }


def say_code(detail: RunDetail) -> None:
    """Write what differed in code that went on; and both sides where the code may not."""
    if detail.changes:
        heading("Went on under code that differs")
        for change in detail.changes:
            say(f"  {plain(change)}")
    sides = _sides(detail)
    if sides:
        heading("The run and the code that may not go on with it")
        table(("part", "the run", "the code"), [(part, was or "-", now or "-") for part, was, now in sides])
        say("  Declare what goes together (compatible_with=, a migration), or deploy the code that made the run.")


def _sides(detail: RunDetail) -> list[tuple[str, str, str]]:
    if detail.refused is None:
        return []
    return differences(_manifest(detail.manifest), _manifest(detail.refused))


def _manifest(plain_: dict[str, Any]) -> Manifest:
    return msgspec.convert(plain_, Manifest)


def checkpoints_json(made: Checkpoints) -> dict[str, Any]:
    """Return the latest checkpoints, with full moments."""
    return {"count": made.count, "latest": [{**asdict(one), "at": iso(one.at)} for one in made.latest]}


def say_checkpoints(made: Checkpoints) -> None:
    """Write what each of the latest checkpoints cost."""
    heading(
        f"Checkpoints ({made.count})" if made.count == len(made.latest) else f"The latest of {made.count} checkpoints"
    )
    rows = [
        (
            str(one.seq),
            one.finished or "(start)",
            one.following or "(end)",
            f"{moment(one.at)}",
            _took(one.took_ms),
            str(one.steps),
            _bytes(one.entry_bytes + one.chunk_bytes),
            _bytes(one.state_bytes),
        )
        for one in made.latest
    ]
    table(("entry", "finished", "enters", "written (UTC)", "after", "steps", "bytes written", "state"), rows)


def _took(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else span(ms)  # noqa: PLR2004


def _bytes(count: int) -> str:
    return f"{count} B" if count < KILO else f"{count / KILO:.1f} KiB"
