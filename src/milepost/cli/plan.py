"""`milepost plan`: what recovery would do next, without doing it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.delivering import look
from milepost.cli.opening import find_run, opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import ago, compact, iso, note, plain, say, say_json, short
from milepost.cli.settings import Settings
from milepost.core import codec
from milepost.core.decide import Decision, Enter, GoBack, Migrate, Release, Rest, Settle
from milepost.operations.inspection import Inspector

if TYPE_CHECKING:
    from milepost.app import App
    from milepost.operations.inspection import RunDetail
    from milepost.stores.api import Store
    from milepost.stores.fleet import WorkerRow

MOMENTS = {"at", "quiet_at", "retry_at", "ask_at", "until"}
OUTSIDE = {"started", "unknown"}
ENDED = {"done", "failed", "cancelled", "killed"}


@dataclass(frozen=True, slots=True)
class Plan:
    """The next act of a run. `sure` says whether the App was asked, or only the record."""

    run: str
    act: str
    said: str
    append: list[dict[str, Any]]
    effects: list[str]
    until: str | None
    sure: bool


@click.command()
@click.argument("run")
@common
def plan(run: str, store: str | None, app: str | None, *, as_json: bool) -> None:
    """Show what recovery would do next with a run, without doing it.

    With --app it is the decision itself. Without, it is what the record alone says.
    """
    settings = Settings(store, app)
    with opened(settings.url) as store_:
        detail, holder = wait_for(_look(store_, run))
    if holder is not None:
        said = f"nothing: worker {holder.id} holds it and drives it"
        planned = Plan(detail.row.id, "nothing", said, [], [], None, sure=True)
    elif settings.named_app is None:
        planned = from_record(detail)
    else:
        planned = from_decision(detail, wait_for(_decision(settings.app, detail.row.id)))
    if as_json:
        say_json(asdict(planned))
        return
    for entry in planned.append:
        fields = {name: value for name, value in entry.items() if name != "entry"}
        say(f"would record   {entry['entry'].replace('_', ' ')}  {compact(fields)}")
    say(f"would do next  {plain(planned.said)}")
    if not planned.sure:
        note("From the record alone: give --app to have today's code decide.")


async def _look(store: Store, prefix: str) -> tuple[RunDetail, WorkerRow | None]:
    detail = await Inspector(store).detail(await find_run(store, prefix))
    return detail, (await look(store, detail.row.id)).holder


async def _decision(app: App, run_id: str) -> Decision:
    async with app.client():
        return await app.plan(run_id)


def from_decision(detail: RunDetail, decision: Decision) -> Plan:
    """Return a decision as people read it."""
    run = detail.row.id
    append = [{"entry": codec.name_of(entry), **_fields(entry)} for entry in decision.append]
    paths = {effect.step: effect.path for effect in detail.effects}
    match decision.perform:
        case Enter(segment=segment):
            said = f"enter segment {segment!r} from its first line; {_from_record(detail)}"
            return Plan(run, "enter", said, append, [], None, sure=True)
        case Migrate(versions=versions):
            said = f"migrate it from version {' to '.join(versions)}, then enter the segment that it is led to"
            return Plan(run, "migrate", said, append, [], None, sure=True)
        case Settle(steps=steps):
            settled = [paths.get(step, step) for step in steps]
            return Plan(
                run, "settle", f"find out what became of {', '.join(settled)}", append, settled, None, sure=True
            )
        case GoBack(to=to):
            said = f"undo what was done since boundary {to}, newest first, and enter that boundary anew"
            return Plan(run, "go back", said, append, [], None, sure=True)
        case Rest(reason=reason, until=until, ask=ask):
            said = f"rest: it waits for {reason}" + (f", {ago(until)}" if until else "") + (f". {ask}" if ask else "")
            return Plan(run, "rest", said, append, [], iso(until), sure=True)
        case Release():
            return Plan(run, "nothing", _stopped(detail, append), append, [], None, sure=True)


def from_record(detail: RunDetail) -> Plan:
    """Return what the record says without the code: which tools can settle what is known to them alone."""
    row = detail.row
    unsettled = [effect.path for effect in detail.effects if effect.outcome in OUTSIDE]
    if unsettled:
        said = (
            f"find out what became of {', '.join(unsettled)}, as their tools declare; nothing is sent again before that"
        )
        act = "settle"
    elif row.status in ENDED or row.status == "blocked":
        said, act = _stopped(detail, []), "nothing"
    elif row.status == "parked" and row.due is None:
        said, act = f"rest: it waits for {row.reason or 'an event'}" + (f". {row.ask}" if row.ask else ""), "rest"
    elif row.status == "parked" and row.until:
        said, act = f"rest until {iso(row.until)}, then enter segment {detail.stage!r}", "rest"
    else:
        said, act = f"enter segment {detail.stage!r} from its first line; {_from_record(detail)}", "enter"
    return Plan(row.id, act, said, [], unsettled, iso(row.until), sure=False)


def _from_record(detail: RunDetail) -> str:
    settled = sum(effect.outcome in {"confirmed", "failed"} for effect in detail.effects)
    unsettled = [effect.path for effect in detail.effects if effect.outcome in OUTSIDE]
    said = (
        f"{settled} settled effect{'' if settled == 1 else 's'} answer from the record"
        if settled
        else "nothing of it is settled"
    )
    return f"{said}; first find out what became of {', '.join(unsettled)}" if unsettled else said


def _stopped(detail: RunDetail, append: list[dict[str, Any]]) -> str:
    if append:
        return f"stop: {append[-1].get('why', '')}"
    row = detail.row
    if row.status == "blocked":
        return f"nothing: it is blocked ({row.why}). Look, then: milepost resume {short(row.id)}"
    return f"nothing: it is {row.status}"


def _fields(entry: Any) -> dict[str, Any]:
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    told = {name: value for name, value in fields.items() if value not in ("", (), None)}
    return {name: iso(value) if name in MOMENTS else value for name, value in told.items()}
