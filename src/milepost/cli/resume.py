"""`milepost resume`: lift a block, where what blocked the run was checked again and holds no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli import options
from milepost.cli.delivering import look, tell, until_rested
from milepost.cli.opening import find_run, opened, operator, wait_for
from milepost.cli.options import by_option, common, waiting
from milepost.cli.printing import note, short
from milepost.cli.settings import Settings

if TYPE_CHECKING:
    from milepost.stores.api import Store

NOT_ASKED = (
    "Today's code was not asked: give --app to have the difference at once. The worker that takes the run asks its own "
    "code, and refuses where it may not go on."
)


@click.command()
@click.argument("run")
@click.option("--why", required=True, help="What you looked into. It is recorded.")
@by_option
@waiting
@common
def resume(run: str, why: str, by: str | None, **common_: Any) -> None:
    """Lift the block of a run, after what blocked it is checked again.

    Refused, with the difference, where today's code may not go on with the run: declare it compatible, migrate it, or
    deploy the code that made it. A failed segment is entered again with `milepost retry`.
    """
    where = Settings(common_["store"], common_["app"])

    async def work(store: Store) -> None:
        run_id = await find_run(store, run)
        if where.named_app is None:
            await operator(store).resume(run_id, by=options.user(by), why=why)
            if not common_["as_json"]:
                note(NOT_ASKED)
        else:
            async with where.app.client() as app:
                await app.resume(run_id, by=options.user(by), why=why)
        next_ = await until_rested(store, run_id, common_["timeout"]) if common_["wait"] else await look(store, run_id)
        done = f"Run {short(run_id)} will be resumed."
        tell(done, next_, {"verb": "resume", "done": done}, as_json=common_["as_json"])

    with opened(where.url) as store:
        wait_for(work(store))
