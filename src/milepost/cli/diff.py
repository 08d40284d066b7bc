"""`milepost diff`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from milepost.cli.opening import find_run, opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import heading, plain, say, say_json, table
from milepost.cli.settings import Settings
from milepost.operations.comparing import compare

if TYPE_CHECKING:
    from milepost.operations.comparing import Compared, Comparison
    from milepost.stores.api import Store


@click.command()
@click.argument("run_a")
@click.argument("run_b")
@common
def diff(run_a: str, run_b: str, store: str | None, app: str | None, *, as_json: bool) -> None:
    """Compare two runs, boundary by boundary, and say where they part.

    A fork is compared with the run that it was made from, from there on. What differs in any two runs (ids, keys,
    times, chance) is not compared.
    """
    with opened(Settings(store, app).url) as store_:
        found = wait_for(_compare(store_, run_a, run_b))
    if as_json:
        say_json({"same": found.first is None, **asdict(found)})
        return
    say(f"A  {found.a}  {found.status_a}")
    say(f"B  {found.b}  {found.status_b}")
    say(plain(f"They are compared from {found.begins.removeprefix('at ')}."))
    say()
    click.secho(plain(found.first or "They are the same, boundary by boundary."), bold=True)
    say()
    table(
        ("boundary of A", "of B", "", "differs in"),
        [(one.a or "-", one.b or "-", "≠" if one.differences else "=", _in(one)) for one in found.boundaries],
    )
    for one in found.boundaries:
        if one.differences:
            heading(f"From boundary {plain(one.a or one.b or '')}")
            for difference in one.differences:
                say(plain(f"  {difference.said}"))


async def _compare(store: Store, a: str, b: str) -> Comparison:
    return await compare(store, await find_run(store, a), await find_run(store, b))


def _in(one: Compared) -> str:
    named = dict.fromkeys(difference.where.partition(".")[0].partition("[")[0] for difference in one.differences)
    return ", ".join(named)
