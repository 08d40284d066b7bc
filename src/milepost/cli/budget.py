"""`milepost budget`: what the runs of a tenant, of a principal, or all together may spend."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from milepost.cli import options
from milepost.cli.opening import now_ms, opened, operator, wait_for
from milepost.cli.options import by_option, common
from milepost.cli.printing import heading, plain, say, say_json, short, table
from milepost.cli.settings import Settings
from milepost.operations.budgets import pools

if TYPE_CHECKING:
    from milepost.operations.budgets import PoolView
    from milepost.stores.api import Store

NONE = "none"


@click.group(invoke_without_command=True)
@common
@click.pass_context
def budget(context: click.Context, /, store: str | None, app: str | None, *, as_json: bool) -> None:
    """List what runs may spend together, and what of it is spent and reserved; `set` changes it.

    What one run may spend is shown by `milepost show`, widened by `grant` and narrowed by `revoke`.
    """
    if context.invoked_subcommand is not None:
        context.obj = (store, app, as_json)
        return
    with opened(Settings(store, app).url) as store_:
        found, over = wait_for(_read(store_))
    if as_json:
        say_json({"pools": [asdict(one) for one in found], "overspent": over})
        return
    if not found:
        say("No shared budget is set: each run has its own. Set one: milepost budget set total usd=100 --why …")
    else:
        rows = [(p.pool, p.per, p.unit, *map(exact, (p.ceiling, p.spent, p.reserved, p.left, p.over))) for p in found]
        table(("pool", "per", "unit", "ceiling", "spent", "reserved", "left", "over"), rows)
    say_overspent(over)


async def _read(store: Store) -> tuple[list[PoolView], dict[str, dict[str, Decimal]]]:
    return await pools(store, now_ms()), await store.overspent()


def say_overspent(over: dict[str, dict[str, Decimal]]) -> None:
    """Write which runs have spent more than was reserved."""
    if over:
        heading("Spent more than was reserved")
        for run_id, units in over.items():
            said = ", ".join(f"{exact(amount)} {plain(unit)}" for unit, amount in units.items())
            say(f"  {short(run_id)}  {said} over    milepost journal {short(run_id)}")


def exact(amount: Decimal) -> str:
    """Return an amount as people write it."""
    return f"{amount:f}"


@budget.command("set")
@click.argument("pool")
@click.argument("ceilings", nargs=-1, required=True, metavar="UNIT=AMOUNT…")
@click.option(
    "--per", type=click.Choice(["day", "ever"]), default="ever", show_default=True, help="UTC day, or in all."
)
@click.option("--why", required=True, help="Recorded.")
@by_option
@common
@click.pass_context
def set_(
    context: click.Context, /, pool: str, ceilings: tuple[str, ...], per: Any, why: str, by: str | None, **common_: Any
) -> None:
    """Set what all runs of a POOL may spend together, from now on: `total`, `tenant:NAME` or `principal:NAME`.

    Write a ceiling like usd=100; usd=none lifts it. Runs that wait for money look again at once.
    """
    where, app, as_json = context.obj
    settings = Settings(common_["store"] or where, common_["app"] or app)
    given = options.pairs("a ceiling like", ceilings)
    exact_ = options.amounts((f"{unit}={text}" for unit, text in given.items() if text != NONE), "a ceiling like")
    asked: dict[str, Decimal | int | None] = {unit: exact_.get(unit) for unit in given}
    with opened(settings.url) as store:
        woken = wait_for(operator(store).set_ceiling(pool, asked, per=per, by=options.user(by), why=why))
    if common_["as_json"] or as_json:
        say_json({"verb": "budget set", "pool": pool, "per": per, "ceilings": asked, "woken": woken})
        return
    period = "a day" if per == "day" else "in all"
    lifted = ", ".join(unit for unit, most in asked.items() if most is None)
    limited = ", ".join(f"{most} {unit}" for unit, most in asked.items() if most is not None)
    if limited:
        say(plain(f"{pool} may spend {limited} {period}, from now on."))
    if lifted:
        say(plain(f"{pool} has no ceiling of {lifted} {period} any more."))
    if woken:
        say(f"{woken} waiting run{'' if woken == 1 else 's'} will look again.")
