"""`milepost verify`."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.exits import FOUND_DAMAGE, OK
from milepost.cli.opening import SYSTEM, find_run, now_ms, opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import iso, moment, note, plain, say, say_json
from milepost.cli.settings import Settings
from milepost.errors import UnknownRun
from milepost.operations.inspection import Inspector
from milepost.operations.recounting import recount
from milepost.stores.api import Check, Query

if TYPE_CHECKING:
    from milepost.operations.inspection import Verified
    from milepost.operations.sealing import Compared
    from milepost.operations.vouching import Vouched
    from milepost.stores.api import Store


WORDS = frozenset({"approve", "grant", "resolve"})


@click.command()
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run, and the pages of the file; the same as naming none.")
@click.option(
    "--seal", envvar="MILEPOST_SEAL", type=click.Path(dir_okay=False, path_type=Path),
    help="Compare with this seal, too: a cut, a rewrite, a run that is gone, an older copy.",
)  # fmt: skip
@click.option(
    "--trust", envvar="MILEPOST_TRUST", type=click.Path(dir_okay=False, path_type=Path),
    help="The trust file: whose seal counts, and whose approvals, grants and resolutions: each is looked at again.",
)  # fmt: skip
@common
def verify(
    run: str | None, seal: Path | None, trust: Path | None, store: str | None, app: str | None,
    *, every: bool, as_json: bool,
) -> None:  # fmt: skip
    """Check every hash, entry and chunk of one run, or of all; of all, also shared budgets against the journals.

    Ends with code 1 where anything is damaged or differs from the seal, and names the run and the entry.
    """
    if (every or seal is not None) and run is not None:
        raise click.UsageError("name one run, or --all, which a seal is compared with")
    with opened(Settings(store, app).url) as store_:
        compared = None if seal is None else wait_for(_compare(store_, seal, trust))
        found, pages = wait_for(_one(store_, run) if run is not None else _all(store_))
        damaged = [one for one in found if one.damage is not None]
        readable = not damaged and not any(one.hidden for one in found)
        budgets = wait_for(recount(store_)) if run is None and readable else []
        said = None if trust is None else wait_for(_vouch(store_, trust, [one for one in found if _told_of(one)]))
    agrees = compared is None or not compared.differences
    sound = not damaged and not budgets and pages.ok and agrees and (said is None or not said.doubts)
    if as_json:
        runs = [
            {
                "run": one.run_id,
                "entries": one.entries,
                "chunks": one.chunks,
                "damage": one.damage,
                "entry": one.seq,
                "hidden": one.hidden,
            }
            for one in found
        ]
        told = {} if compared is None else {"seal": _told(compared, trusted=trust is not None)}
        words = {} if said is None else {"words": asdict(said)}
        say_json({"sound": sound, "pages": pages.found, "runs": runs, "budgets": budgets, **told, **words})
    else:
        for differs in budgets:
            click.secho(f"DAMAGED  the shared budgets: {plain(differs)}", fg="red")
        _say(found, damaged, pages)
        if compared is not None:
            _say_compared(compared, trusted=trust is not None)
        if said is not None:
            _say_vouched(said)
    click.get_current_context().exit(OK if sound else FOUND_DAMAGE)


async def _compare(store: Store, seal: Path, trust: Path | None) -> Compared:
    from milepost.operations import keys, sealing  # the extra `crypto`: only who has a seal needs it

    return await sealing.compare(store, sealing.read(seal, None if trust is None else keys.load(trust)))


def _told_of(one: Verified) -> bool:
    return one.damage is None and not one.hidden and one.run_id != SYSTEM


async def _vouch(store: Store, trust: Path, found: list[Verified]) -> Vouched | None:
    """Look at what people said; None where the trust file is for seals and bundles alone."""
    from milepost.operations import keys, vouching  # the extra `crypto`, as above

    people, now, brought = keys.load(trust), now_ms(), await vouching.brought_in(store)
    if not any(one.may & WORDS for one in people.operators.values()):
        return None
    whole = vouching.Vouched()
    for one in found:
        whole.add(await vouching.vouch(store, one.run_id, people, now, brought=brought.get(one.run_id)))
    return whole


def _say_vouched(said: Vouched) -> None:
    for one in said.doubts:
        click.secho(f"UNPROVEN  run {plain(one.run_id)}, entry {one.seq}: {plain(one.why)} [{one.code}]", fg="red")
    say(f"{said.held:,} signatures of operators hold.")
    if said.lapsed:
        note(f"{said.lapsed} of them are by keys that were revoked or expired since: look at what they signed.")
    if said.elsewhere:
        note(f"{said.elsewhere} were made in a store that is not known here: look at them there.")


async def _one(store: Store, prefix: str) -> tuple[list[Verified], Check]:
    run_id = await find_run(store, prefix)
    return [await Inspector(store).verify(run_id)], Check("pages", ok=True, found="not read", todo="")


async def _all(store: Store) -> tuple[list[Verified], Check]:
    inspector = Inspector(store)
    ids = [row.id for row in await inspector.runs(Query(limit=sys.maxsize))]
    with suppress(UnknownRun):  # where nothing was ever stopped or held, the store has no journal of its own
        ids.append(await store.resolve_id(SYSTEM))
    return [await inspector.verify(run_id) for run_id in reversed(ids)], await store.pages()


def _say(found: list[Verified], damaged: list[Verified], pages: Check) -> None:
    for one in damaged:
        at = "" if one.seq is None else f", entry {one.seq}"
        click.secho(f"DAMAGED  run {plain(one.run_id)}{at}: {plain(one.damage)}", fg="red")
    if not pages.ok:
        click.secho(f"DAMAGED  the file: {plain(pages.found)}. Next: {pages.todo}", fg="red")
    hidden = sorted({one.hidden for one in found if one.hidden})
    if hidden:
        note(f"What is encrypted with key {', '.join(hidden)} was checked by its chain alone: MILEPOST_ENCRYPTION.")
    entries, chunks = sum(one.entries for one in found), sum(one.chunks for one in found)
    sound = f"{len(found) - len(damaged)} of {len(found)} run{'' if len(found) == 1 else 's'} sound"
    say(f"{sound}: {entries:,} entries, {chunks:,} chunks read.")


def _told(compared: Compared, *, trusted: bool) -> dict[str, Any]:
    facts = compared.seal.facts
    return {
        "sequence": facts.sequence,
        "at": iso(facts.at),
        "by": facts.by,
        "trusted": trusted,
        "grown": compared.grown,
        "pruned": [{"run": run, "by": by} for run, by in compared.pruned],
        "differences": [
            {"kind": one.kind, "run": one.run_id, "entry": one.seq, "why": one.why} for one in compared.differences
        ],
    }


def _say_compared(compared: Compared, *, trusted: bool) -> None:
    facts = compared.seal.facts
    for one in compared.differences:
        at = "" if one.seq is None else f", from entry {one.seq} on"
        click.secho(f"{one.kind.upper()}  run {plain(one.run_id)}{at}: {plain(one.why)}", fg="red")
    for run, by in compared.pruned:
        note(f"run {plain(run)} was pruned since, by {plain(by)}")
    agrees = f"agrees, {compared.grown:,} entries since" if not compared.differences else "differs"
    say(f"Seal {facts.sequence} of {moment(facts.at)} by {plain(facts.by)}: {agrees}.")
    if not trusted:
        note("Whose key signed it was not looked at: name a trust file with --trust.")
