"""`milepost stop`: everything, at once; with the database if it answers, and without it if it does not."""

from __future__ import annotations

import click

from milepost.cli import options
from milepost.cli.opening import now_ms, opened, operator, wait_for
from milepost.cli.options import by_option, common
from milepost.cli.printing import plain, say, say_json
from milepost.cli.settings import Settings
from milepost.operations.switches import EVERYTHING
from milepost.stores import marks
from milepost.stores.places import local_of


@click.command()
@click.option("--hard", is_flag=True, help="By a file beside the store: works although the database does not answer.")
@click.option("--lift", is_flag=True, help="Let things go on: remove the file, and thaw everything.")
@click.option("--why", required=True, help="Recorded, and shown to who waits.")
@by_option
@common
def stop(
    why: str, by: str | None, store: str | None, app: str | None, *, hard: bool, lift: bool, as_json: bool
) -> None:
    """Stop everything: nothing starts any more, for any run of the store.

    Without --hard this freezes `all`. With --hard a file is written beside the store, which every worker looks at
    before each send, and whose supervisors then kill their processes: what was in flight is unknown, and found out
    once the file is gone.
    """
    if hard and lift:
        raise click.UsageError("say --hard or --lift, not both")
    url, who = Settings(store, app).url, options.user(by)
    place = local_of(url)
    if hard:
        marks.stop(place, marks.Stop(who, why, now_ms()))
        done = f"Stopped by {marks.stop_path(place)}. Nothing is sent; supervised workers are killed."
    elif lift:
        done = _lift(url, place, who, why)
    else:
        with opened(url) as store_:
            wait_for(operator(store_).freeze(EVERYTHING, by=who, why=why))
        done = "Froze everything. Nothing starts; what is in flight finishes."
    if as_json:
        say_json({"verb": "stop", "hard": hard, "lift": lift, "why": why, "by": who, "done": done})
        return
    say(plain(done))
    if not lift:
        say("Let things go on with: milepost stop --lift --why …")


def _lift(url: str, place: str, who: str, why: str) -> str:
    """Write down who stopped and who lifts it, in the store, and only then remove the file."""
    stood = marks.read(place)
    with opened(url) as store_:
        thawed = wait_for(operator(store_).lift_stop(stood, by=who, why=why))
    marks.lift(place)
    if stood is None:
        return "Thawed everything."
    return "Removed the stop file and thawed everything." if thawed else "Removed the stop file."
