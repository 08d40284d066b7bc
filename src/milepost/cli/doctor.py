"""`milepost doctor`: whether the store, its file and its workers stand as they should. It changes nothing.

Each finding is ok, a note (worth knowing, nothing is wrong), or wrong. What the store rests on it says itself; here is
added what the processes around it left behind.
"""

from __future__ import annotations

import stat
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from milepost.cli.code_asked import code_findings, explicit, held_up
from milepost.cli.delivering import is_alive
from milepost.cli.exits import FOUND_DAMAGE, OK, code_of
from milepost.cli.keys import standing
from milepost.cli.opening import now_ms, opened, wait_for
from milepost.cli.options import common, policy_option
from milepost.cli.printing import ago, plain, say, say_json, short, table
from milepost.cli.production import reasons
from milepost.cli.settings import Settings
from milepost.definitions.rules import PolicyFile, in_force
from milepost.errors import MilepostError, StoreError
from milepost.operations import keys
from milepost.operations.inspection import Inspector
from milepost.runtime import locks
from milepost.runtime.watchdog import STILL_MS
from milepost.stores import marks
from milepost.stores.api import Query
from milepost.stores.places import place_of

if TYPE_CHECKING:
    from milepost.stores.api import Store

OTHERS = stat.S_IRWXG | stat.S_IRWXO
START_WORKER = "milepost worker --app module:app"


@dataclass(frozen=True, slots=True)
class Found:
    """One finding; `todo` says what to type or mend where it is not ok."""

    what: str
    state: Literal["ok", "note", "wrong"]
    found: str
    todo: str = ""


@click.command()
@click.option("--production", is_flag=True, help="Report too what the App lacks for production.")
@policy_option
@click.option(
    "--trust", envvar="MILEPOST_TRUST", type=click.Path(dir_okay=False, path_type=Path),
    help="The trust file; else the App's own.",
)  # fmt: skip
@common
def doctor(
    policy: str | None, trust: Path | None, store: str | None, app: str | None, *, production: bool, as_json: bool
) -> None:
    """Check the SQLite library, the file, the clock, the disk, the policy, and what workers left behind.

    Changes nothing. Ends with code 1 where something is wrong. With --app typed out, the App's code is asked which
    waiting runs it would strand. With --production every reason why the App should not act in production is reported,
    each by a code that does not change.
    """
    settings = Settings(store, app, policy, trust)
    url = settings.url
    try:
        with opened(url) as store_:
            findings = wait_for(examine(store_))
            lacking = reasons(settings, store_) if production else []
        findings += _policy(settings)
        findings += _answers(settings)
        findings += [Found(*one) for one in code_findings(settings)]
        findings += [Found(f"{one.code} {one.about}".strip(), "wrong", one.why, one.todo) for one in lacking]
        code = FOUND_DAMAGE if any(one.state == "wrong" for one in findings) else OK
    except StoreError as error:
        findings, code = [Found("store", "wrong", error.code, str(error))], code_of(error)
    if as_json:
        say_json({"store": url, "ok": code == OK, "findings": [asdict(one) for one in findings]})
    else:
        table(("check", "state", "found"), [(one.what, one.state, one.found) for one in findings], styled="state")
        for one in findings:
            if one.todo and one.state != "ok":
                say(f"{one.what}: {plain(one.todo)}")
        say(f"{place_of(url)}: {'nothing is wrong' if code == OK else 'something is wrong'}.")
    click.get_current_context().exit(code)


def _policy(settings: Settings) -> list[Found]:
    """Return which policy decides; nothing where no file is named and no App was typed out that would say it."""
    named = settings.named_policy
    if named is None and not explicit():
        return []
    path = named if named is not None else settings.app.policy
    told = in_force(None if path is None else PolicyFile(path))
    return [Found("policy", "wrong" if told.error else "ok", str(told), f"milepost policy check {path}")]


def _answers(settings: Settings) -> list[Found]:
    """Return whether approvals are signed; nothing where no file is named and no App was typed out."""
    named = settings.named_trust
    if named is None and not explicit():
        return []
    path = named if named is not None else settings.app.trust
    if path is None:
        found = "answers are not signed: whoever can write to the store can approve"
        return [Found("approvals", "note", found, "milepost keys new NAME, then milepost worker --trust FILE")]
    try:
        trusted = keys.load(path).operators.values()
    except MilepostError as error:
        return [Found("approvals", "wrong", error.code, str(error))]
    may = sorted(one.name for one in trusted if "approve" in one.may and standing(one) == "ok")
    if not may:
        todo = f"milepost keys trust NAME.pub --may approve --trust {path}"
        return [Found("approvals", "wrong", f"{path} trusts nobody to approve: nothing can be approved", todo)]
    nobody = [power for power in ("grant", "resolve") if not any(power in one.may for one in trusted)]
    if nobody:
        found = f"signed, by {', '.join(may)}; nobody is trusted to {' or '.join(nobody)}"
        return [Found("approvals", "note", found, f"milepost keys trust NAME.pub --may {nobody[0]} --trust {path}")]
    return [Found("approvals", "ok", f"signed, by {', '.join(may)}")]


async def examine(store: Store) -> list[Found]:
    """Return every finding about a store and the processes around it."""
    basis = [
        Found(check.name, "ok" if check.ok else "wrong", check.found, "" if check.ok else check.todo)
        for check in await store.checks(now_ms())
    ]
    return [
        *basis,
        *await _workers(store),
        await _still(store),
        *await _mail(store),
        *await _people(store),
        *[Found(*one) for one in await held_up(store)],
    ]


async def _workers(store: Store) -> list[Found]:
    """What lives, what died while it held runs, and what it left on the disk."""
    rows = await store.workers()
    living = [worker for worker in rows if is_alive(store, worker)]
    alive = Found("workers", "ok", f"{len(living)} running" if living else "none running")
    held = []
    for holder in await store.holders():
        if not is_alive(store, holder):
            held += [(holder.id, run.id) for run in await store.held_by(holder.id)]
    findings = [alive, Found("takeover", "ok", "no run is held by a dead worker")]
    if held:
        shown = ", ".join(short(run_id) for _, run_id in held[:5]) + (", …" if held[5:] else "")
        what = f"{len(held)} held by workers that are gone: {shown}"
        findings[1] = Found("takeover", "note" if living else "wrong", what, "" if living else START_WORKER)
    stale = locks.leftovers(store.local)
    folder = locks.folder_of(store.local)
    if folder.is_dir() and stat.S_IMODE(folder.stat().st_mode) & OTHERS:
        findings.append(Found("lock files", "wrong", f"{folder} is open to others", f"chmod go= {folder}"))
    elif stale:
        findings.append(Found("lock files", "note", f"{len(stale)} of dead workers, harmless", ""))
    else:
        findings.append(Found("lock files", "ok", "none left behind"))
    return findings


async def _still(store: Store) -> Found:
    """What is held by a worker that lives and is not written to: worth a look, and nobody's to take away."""
    living = {worker.id for worker in await store.workers() if is_alive(store, worker)}
    rows = [one for one in await store.still(now_ms() - STILL_MS) if one.owner in living]
    if not rows:
        return Found("standstill", "ok", "no run sits still")
    shown = ", ".join(f"{short(one.id)} in {one.segment or '-'} for {ago(one.moved_at)}" for one in rows[:5])
    more = ", …" if rows[5:] else ""
    return Found("standstill", "note", f"{len(rows)} held and not written to: {shown}{more}", "milepost show RUN")


async def _mail(store: Store) -> list[Found]:
    waiting = await store.undelivered()
    if not waiting:
        return [Found("inbox", "ok", "every message was taken")]
    living = any([is_alive(store, worker) for worker in await store.workers()])  # noqa: C419  a generator would be async
    what = f"{sum(waiting.values())} waiting for {', '.join(short(run_id) for run_id in list(waiting)[:5])}"
    return [Found("inbox", "note" if living else "wrong", what, "" if living else START_WORKER)]


async def _people(store: Store) -> list[Found]:
    """What only a person can move: worth knowing, and no fault of the store's."""
    needy = await Inspector(store).runs(Query(needs_you=True, limit=sys.maxsize))
    switches = await store.switches()
    findings = [Found("needs you", "ok", "no run")]
    if needy:
        shown = ", ".join(short(row.id) for row in needy[:5]) + (", …" if needy[5:] else "")
        count = f"{len(needy)} run{'' if len(needy) == 1 else 's'}"
        findings[0] = Found("needs you", "note", f"{count}: {shown}", "milepost runs --needs-you")
    if switches:
        held = ", ".join(f"{switch.scope} ({switch.kind}: {switch.why})" for switch in switches)
        todo = "milepost switches; a hold is lifted by resolving what caused it"
        findings.append(Found("stopped", "note", held, todo))
    halt = marks.read(store.local)
    if halt is not None:
        found = f"{halt.by}: {halt.why} ({marks.stop_path(store.local)})"
        findings.append(Found("stop file", "note", found, "milepost stop --lift --why …"))
    return findings
