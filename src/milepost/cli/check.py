"""`milepost check`: what an App's code would do to the runs that wait, before it is deployed; and its boundaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import click

from milepost.cli.exits import FOUND_DAMAGE, OK
from milepost.cli.opening import opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import heading, note, plain, say, say_json, short
from milepost.cli.settings import Settings
from milepost.errors import MilepostError
from milepost.operations import placement
from milepost.stores.api import Query

if TYPE_CHECKING:
    from milepost.app import App
    from milepost.operations.placement import Smell
    from milepost.runtime.examining import Examined
    from milepost.stores.api import Store

ORDER = ("blocks", "needs_resume", "elsewhere", "migrates", "warns", "goes_on", "is_blocked")
SAID = {
    "blocks": "would be blocked",
    "needs_resume": "would be blocked until a person resumes them",
    "elsewhere": "would be left alone: this App does not have their workflow",
    "migrates": "would be migrated",
    "warns": "would go on, with differences",
    "goes_on": "would go on",
    "is_blocked": "blocked already",
}
STRANDS = frozenset({"blocks", "needs_resume", "elsewhere"})
SHOWN = 5
RUNS_READ = 50


@dataclass(frozen=True, slots=True)
class Group:
    """Runs with the same verdict for the same reasons."""

    verdict: str
    workflow: str
    version: str
    segment: str | None
    inside: bool
    path: tuple[str, ...]
    reasons: tuple[str, ...]
    runs: tuple[str, ...] = ()


@click.command()
@click.option(
    "--shared", is_flag=True, help="Other Apps drive this store, too: runs of workflows not here are no concern."
)
@common
def check(store: str | None, app: str | None, *, shared: bool, as_json: bool) -> None:
    """Say what the App's code would do with every run that waits, and which boundaries are badly placed.

    Type it before a deploy, with the new code. Changes nothing. Ends with code 1 where a run would be stranded: blocked
    or left alone. Badly placed boundaries are warnings, each with a stable code.
    """
    settings = Settings(store, app)
    with opened(settings.url) as store_:
        found = wait_for(examined(settings.app))
        smells = wait_for(smells_of(store_, settings.app))
    groups = grouped(found)
    stranded = sum(len(one.runs) for one in groups if strands(one.verdict, shared=shared))
    code = FOUND_DAMAGE if stranded else OK
    if as_json:
        say_json({
            "ok": code == OK,
            "waiting": len(found),
            "stranded": stranded,
            "groups": [asdict(one) for one in groups],
            "boundaries": [asdict(one) for one in smells],
        })  # fmt: skip
    else:
        _say(groups, smells, len(found), stranded)
    click.get_current_context().exit(code)


def _say(groups: list[Group], smells: list[Smell], waiting: int, stranded: int) -> None:
    say(f"{waiting} run{'' if waiting == 1 else 's'} that ha{'s' if waiting == 1 else 've'} not ended.")
    for verdict in ORDER:
        of_it = [one for one in groups if one.verdict == verdict]
        if of_it:
            heading(f"{sum(len(one.runs) for one in of_it)} {SAID[verdict]}")
        for one in of_it:
            say_group(one)
    if smells:
        heading("Boundaries that may be badly placed")
        for smell in smells:
            seen = f" (seen {smell.times} times)" if smell.times > 1 else ""
            say(f"  {smell.code}  {plain(f'{smell.workflow}/{smell.segment}: {smell.said}{seen}')}")
    say()
    if stranded:
        said = (
            f"{stranded} would be stranded: declare compatible_with=, or a migration, or let the old code finish them."
        )
        note(said)
    else:
        say("No run would be stranded.")


def say_group(one: Group) -> None:
    """Write one group: its runs, where they are, and why."""
    where = f"{one.workflow or '(attached)'} {one.version}".rstrip()
    stage = "" if one.segment is None else f", {'inside' if one.inside else 'before'} {one.segment}"
    ids = ", ".join(short(run) for run in one.runs[:SHOWN]) + (", …" if one.runs[SHOWN:] else "")
    way = f" {' → '.join(one.path)}" if one.path else ""
    say(f"  {plain(where + stage + way)}: {ids}")
    for reason in one.reasons:
        say(f"     {plain(reason)}")


async def examined(app: App) -> list[Examined]:
    """Ask an App's code about every run that has not ended."""
    async with app.client():
        return await app.check()


def strands(verdict: str, *, shared: bool = False) -> bool:
    """Say whether a verdict leaves a run where nothing automatic moves it."""
    return verdict in STRANDS and not (shared and verdict == "elsewhere")


def grouped(found: Iterable[Examined]) -> list[Group]:
    """Return runs by verdict and reason, the gravest first. What is blocked already is no fault of the new code."""
    groups: dict[Group, list[str]] = {}
    for one in found:
        verdict = "is_blocked" if one.status == "blocked" else one.verdict
        reasons = tuple(reason.replace(one.run, "RUN") for reason in one.reasons)
        if verdict == "is_blocked" and one.verdict not in {"blocks", "elsewhere"}:
            reasons = (*reasons, "the block may be lifted: milepost resume RUN --why …")
        group = Group(verdict, one.workflow, one.version, one.segment, one.inside, one.path, reasons)
        groups.setdefault(group, []).append(one.run)
    made = [replace(group, runs=tuple(runs)) for group, runs in groups.items()]
    return sorted(made, key=lambda one: (ORDER.index(one.verdict), one.workflow, one.version, one.segment or ""))


async def smells_of(store: Store, app: App) -> list[Smell]:
    """Return where the boundaries of an App's workflows may be badly placed: by its code, and by its latest runs."""
    smells: list[Smell] = []
    for workflow in app.workflows.values():
        runs = []
        for row in await store.runs(Query(workflow=workflow.name, limit=RUNS_READ)):
            try:
                runs.append(await placement.visits_of(store, row.id))
            except MilepostError:
                continue  # a damaged record is for verify to tell
        told = placement.of_runs(workflow.name, runs)
        known = {smell.segment for smell in told if smell.code == "empty_segment"}
        smells += [smell for smell in placement.of_code(workflow) if smell.segment not in known]
        smells += [smell for smell in told if smell.segment in workflow.segments]
    return smells
