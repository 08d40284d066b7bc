"""`milepost demo`: the refund desk, its worker killed again and again; the ledgers of the outside world judge."""

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.demo.failure import DemoFailed, DemoPartsMissing

if TYPE_CHECKING:
    from milepost.cli.demo.outcome import Outcome
    from milepost.cli.demo.run import Setting

_PARTS = ("aiosmtpd", "httpx")  # the extra `demo`


@click.command()
@click.option("--naive", is_flag=True, help="Run the desk with plain retries instead, and count its duplicates.")
@click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=1, show_default=True, help="Decides faults and kills."
)
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Leave the files in this new folder.")
@click.option(
    "--finish",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Let the desk of an earlier demo go on, unkilled, after you resolved what waited for you.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object, and no bar.")
@click.option("--tickets", type=click.IntRange(1, 48), default=48, hidden=True)
@click.option("--kills", type=click.IntRange(min=0), default=20, hidden=True)
@click.pass_context
def demo(
    context: click.Context,
    *,
    naive: bool,
    seed: int,
    keep: Path | None,
    finish: Path | None,
    as_json: bool,
    tickets: int,
    kills: int,
) -> None:
    """Run a refund desk whose worker is killed by SIGKILL again and again.

    A payment service and a mail server run as processes of their own; they lose answers, answer 500 after the money
    moved, and delay. What they did is counted in their own ledgers.

    Exit status: 0 when nothing was done twice or forgotten, 1 otherwise. With --naive: 0 when it came to its end.
    """
    missing = [name for name in _PARTS if find_spec(name) is None]
    if missing:
        raise DemoPartsMissing(missing)
    from milepost.cli.demo.run import Setting, begin, setting_of

    if finish is not None:
        folder, setting = finish, setting_of(finish)
    else:
        folder = keep or Path(tempfile.mkdtemp(prefix="milepost-demo-"))
        setting = Setting(seed, tickets, kills, kills // 2, naive)
        begin(folder, setting)
    try:
        outcome = _play(folder, setting, unkilled=finish is not None, as_json=as_json)
    except DemoFailed as failed:
        raise click.ClickException(str(failed)) from failed
    if outcome.problems() and not setting.naive:
        context.exit(1)


def _play(folder: Path, setting: "Setting", *, unkilled: bool, as_json: bool) -> "Outcome":
    from rich.console import Console

    from milepost.cli.demo.run import play
    from milepost.cli.demo.show import print_outcome, with_bar

    plan = setting.plan(unkilled=unkilled)
    if as_json:
        outcome = play(folder, setting, plan)
        print(json.dumps(outcome.as_data(), indent=2))
        return outcome
    console = Console()
    title = "naive desk" if setting.naive else "refund desk"
    outcome = with_bar(console, title, plan, lambda on_look: play(folder, setting, plan, on_look))
    print_outcome(console, outcome)
    return outcome
