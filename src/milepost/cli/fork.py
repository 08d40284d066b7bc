"""`milepost fork`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from milepost.cli import options
from milepost.cli.delivering import look
from milepost.cli.opening import find_run, now_ms, opened, operator, wait_for
from milepost.cli.options import by_option, common
from milepost.cli.printing import note, plain, say, say_json, short
from milepost.cli.settings import Settings
from milepost.core.authority import Authority
from milepost.core.duration import parse_ms

if TYPE_CHECKING:
    from milepost.cli.delivering import Next
    from milepost.operations.history import Forked
    from milepost.stores.api import Store


@click.command()
@click.argument("run")
@click.option("--at", metavar="BOUNDARY", help="By its name or number; else the latest.")
@click.option("--why", required=True, help="Recorded.")
@click.option("--key", help="Makes the fork idempotent: the same key and boundary are the same run.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="What the fork may do. Repeatable.")
@click.option("--principal", metavar="NAME", help="For whom it acts; else who forks.")
@click.option("--expires", type=options.Span(), metavar="SPAN", help="How long the authority lasts, such as 24h.")
@click.option(
    "--budget", "budgets", multiple=True, metavar="UNIT=AMOUNT", help="What it may spend, such as usd=5. Repeatable."
)
@click.option("--deadline", type=options.Span(), metavar="SPAN", help="After it nothing starts, such as 2h.")
@by_option
@common
def fork(
    run: str,
    at: str | None,
    why: str,
    key: str | None,
    scopes: tuple[str, ...],
    principal: str | None,
    expires: str | None,
    budgets: tuple[str, ...],
    deadline: str | None,
    by: str | None,
    store: str | None,
    app: str | None,
    *,
    as_json: bool,
) -> None:
    """Start a new run that goes on from a boundary of another one.

    It has what had happened there, and nothing that permits: scopes and money are given anew, approvals asked for anew.
    Its effects are its own. What the other run did since then, it may do again.
    """
    who = options.user(by)
    given: dict[str, Any] = {
        "authority": Authority(principal or who, scopes=scopes, expires=expires),
        "budget": options.amounts(budgets),
        "key": key,
        "deadline": None if deadline is None else now_ms() + parse_ms(deadline),
    }
    with opened(Settings(store, app).url) as store_:
        forked, next_ = wait_for(_fork(store_, run, {"at": at, "by": who, "why": why, **given}))
    if as_json:
        say_json({**asdict(forked), "run": forked.run_id, **next_.json()})
        return
    made = "Run" if forked.fresh else "It was forked before: run"
    say(plain(f"{made} {forked.run_id}, forked from {short(forked.origin)} at boundary {forked.boundary}"))
    say(plain(next_.said()))
    if forked.since:
        note(plain(f"It knows nothing of what {short(forked.origin)} did since, and may do it again: see below"))
        for what in forked.since:
            note(plain(f"  {what}"))


async def _fork(store: Store, prefix: str, told: dict[str, Any]) -> tuple[Forked, Next]:
    forked = await operator(store).fork(await find_run(store, prefix), **told)
    return forked, await look(store, forked.run_id)
