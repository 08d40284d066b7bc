"""What is stopped, and by whom: freezing, thawing, and the list of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli import options
from milepost.cli.opening import opened, operator, wait_for
from milepost.cli.options import by_option, common
from milepost.cli.printing import ago, iso, plain, say, say_json, table
from milepost.cli.settings import Settings
from milepost.operations.switches import OF_SWITCHES, history_of, standing
from milepost.stores import marks
from milepost.stores.places import local_of

if TYPE_CHECKING:
    from milepost.stores.api import Store, Thrown

SCOPE = "all|tool:NAME|workflow:NAME|tenant:NAME"


@click.command()
@click.argument("scope", metavar=SCOPE)
@click.option("--why", required=True, help="Recorded, and shown to who waits.")
@by_option
@common
def freeze(scope: str, why: str, by: str | None, store: str | None, app: str | None, *, as_json: bool) -> None:
    """Let nothing start for a tool, a workflow, a tenant, or at all.

    Once it has returned, nothing under the scope starts. What is in flight finishes; what comes to such a call waits.
    """
    who = options.user(by)
    with opened(Settings(store, app).url) as store_:
        wait_for(operator(store_).freeze(scope, by=who, why=why))
    if as_json:
        say_json({"verb": "freeze", "scope": scope, "why": why, "by": who})
    else:
        say(f"Froze {plain(scope)}. Nothing under it starts. Set it free with: milepost thaw {plain(scope)} --why …")


@click.command()
@click.argument("scope", metavar=SCOPE)
@click.option("--why", required=True, help="Recorded.")
@click.option("--held", is_flag=True, help="Also lift what contradictions hold: you have looked into each of them.")
@by_option
@common
def thaw(
    scope: str, why: str, by: str | None, store: str | None, app: str | None, *, held: bool, as_json: bool
) -> None:
    """Set free what was frozen, and let a tool's calls go on that its breaker holds.

    Runs that wait for it go on at once. What a contradiction holds stays held until it is resolved, unless you say
    --held.
    """
    who = options.user(by)

    async def work(store_: Store) -> Thrown:
        return await operator(store_).thaw(scope, by=who, why=why, held=held)

    with opened(Settings(store, app).url) as store_:
        thrown = wait_for(work(store_))
    if as_json:
        say_json({"verb": "thaw", "scope": scope, "why": why, "by": who, "lifted": thrown.lifted, "due": thrown.woken})
    else:
        say(f"Thawed {plain(scope)}.{f' Runs that go on: {thrown.woken}.' if thrown.woken else ''}")


@click.command()
@click.option("--history", is_flag=True, help="What was stopped and set free, by whom and why, oldest first.")
@common
def switches(store: str | None, app: str | None, *, history: bool, as_json: bool) -> None:
    """List what is stopped: frozen by a person, held by a contradiction or a breaker, or by a stop file."""
    url = Settings(store, app).url
    if history:
        _tell(url, as_json=as_json)
        return
    with opened(url) as store_:
        found = wait_for(standing(store_))
    halt = marks.read(local_of(url))
    if as_json:
        say_json(
            {
                "stop_file": None if halt is None else {"by": halt.by, "why": halt.why, "at": iso(halt.at)},
                "switches": [
                    {
                        "scope": one.switch.scope,
                        "kind": one.switch.kind,
                        "about": one.switch.about,
                        "why": one.switch.why,
                        "by": one.switch.by,
                        "at": iso(one.switch.at),
                        "until": iso(one.switch.until),
                        "waiting": one.waiting,
                    }
                    for one in found
                ],
            }
        )
        return
    if halt is not None:
        say(f"Everything is stopped by {plain(halt.by)}: {plain(halt.why)}. Lift it with: milepost stop --lift --why …")
    if not found:
        say("No switch stands." if halt is None else "No other switch stands.")
        return
    table(
        ("scope", "kind", "since", "by", "waiting", "why"),
        [(s.scope, s.kind, ago(s.at), s.by, str(one.waiting or ""), s.why) for one in found for s in [one.switch]],
        styled="kind",
    )


def _tell(url: str, *, as_json: bool) -> None:
    """Tell what the store's own journal says of switches and breakers."""
    with opened(url) as store_:
        told = [entry for entry in wait_for(history_of(store_)) if isinstance(entry, OF_SWITCHES)]
    names = {type(entry): str(entry.__struct_config__.tag).partition(".")[0] for entry in told}
    if as_json:
        say_json([{"entry": names[type(entry)], **_fields(entry)} for entry in told])
        return
    if not told:
        say("Nothing was ever stopped.")
        return
    rows = [(_fields(entry), names[type(entry)]) for entry in told]
    table(
        ("at", "entry", "scope", "by", "why"),
        [(ago(entry.at), name, fields["scope"], fields["by"], fields.get("why", ""))
         for entry, (fields, name) in zip(told, rows, strict=True)],
        styled="entry",
    )  # fmt: skip


def _fields(entry: Any) -> dict[str, Any]:
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    if "tool" in fields:
        fields["scope"] = f"tool:{fields.pop('tool')}"
    return {**fields, "at": iso(entry.at), **({"until": iso(entry.until)} if "until" in fields else {})}
