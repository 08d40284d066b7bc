"""`milepost export` and `milepost import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli import options
from milepost.cli.exits import OK, REFUSED
from milepost.cli.keys import key_option, trust_option
from milepost.cli.opening import find_run, now_ms, opened, wait_for, writing
from milepost.cli.options import by_option, common
from milepost.cli.printing import note, plain, say, say_json, short
from milepost.cli.settings import Settings
from milepost.errors import MilepostError
from milepost.operations import keys, transfer

if TYPE_CHECKING:
    from milepost.operations.transfer import Exported
    from milepost.stores.api import Store
    from milepost.stores.keeping import TakenIn


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option("--to", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Where the bundle goes.")
@key_option
@common
def export(runs: tuple[str, ...], to: Path, key: str, store: str | None, app: str | None, *, as_json: bool) -> None:
    """Write whole runs into a signed bundle, for an archive or another store.

    The runs stay where they are, and go on.
    """
    signer = keys.find_private(key)

    async def work(store_: Store) -> Exported:
        ids = [await find_run(store_, prefix) for prefix in runs]
        return await transfer.export(store_, ids, signer, to, now_ms())

    with opened(Settings(store, app).url) as opened_:
        exported = wait_for(work(opened_))
    if as_json:
        told = [{"run": run, "entries": entries} for run, entries in exported.runs]
        say_json({"bundle": to, "runs": told, "messages_left": exported.waiting})
        return
    say(f"Wrote {len(exported.runs)} runs, {sum(count for _, count in exported.runs):,} entries, to {to}.")
    for run, count in exported.waiting.items():
        note(f"{count} messages wait for run {short(run)}: they are not part of its record yet, and stay here.")


@click.command("import")
@click.argument("bundle", type=click.Path(dir_okay=False, path_type=Path))
@trust_option
@by_option
@common
def import_(
    bundle: Path, trust: Path | None, by: str | None, store: str | None, app: str | None, *, as_json: bool
) -> None:
    """Take the runs of a bundle in, with their history. None of them is driven.

    The signature must be that of an operator who may export, and every chain must verify. What had not ended is
    blocked, and its unused approvals and its money are void here.
    """
    if trust is None:
        raise click.UsageError("say whose signature counts: --trust FILE, or MILEPOST_TRUST")
    read = transfer.read(bundle, keys.load(trust))
    with opened(Settings(store, app).url) as opened_:
        answers = wait_for(transfer.take_in(opened_, writing(opened_), read, now_ms(), options.user(by)))
    taken = list(zip([copy.run_id for copy in read.runs], answers, strict=True))
    refused = [answer for _, answer in taken if isinstance(answer, MilepostError)]
    if as_json:
        say_json({"bundle": read.name, "signer": read.signer, "runs": [_told(run, answer) for run, answer in taken]})
    else:
        for run, answer in taken:
            _say(run, answer)
    click.get_current_context().exit(REFUSED if refused else OK)


def _told(run: str, answer: TakenIn | MilepostError) -> dict[str, object]:
    if isinstance(answer, MilepostError):
        return {"run": run, "imported": False, "refused": answer.code, "why": str(answer)}
    return {"run": run, "imported": answer.fresh, "refused": None, "held_by_others": answer.held}


def _say(run: str, answer: TakenIn | MilepostError) -> None:
    if isinstance(answer, MilepostError):
        click.secho(f"Refused run {short(run)}: {plain(answer)} [{answer.code}]", fg="red", err=True)
    elif not answer.fresh:
        say(f"Run {short(run)} is here already.")
    else:
        say(f"Took in run {short(run)}. Look with: milepost show {short(run)}")
        for _, tool, value in answer.held:
            note(f"  {plain(tool)} {plain(value)} is claimed by another run here: look whether it was done twice.")
