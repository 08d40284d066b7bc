"""`milepost seal`."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli import options
from milepost.cli.keys import key_option
from milepost.cli.opening import now_ms, opened, wait_for, writing
from milepost.cli.options import by_option, common
from milepost.cli.printing import iso, plain, say, say_json
from milepost.cli.settings import Settings
from milepost.operations import keys, sealing


@click.command()
@click.option(
    "--to", envvar="MILEPOST_SEAL", required=True, type=click.Path(dir_okay=False, path_type=Path),
    help="Where the seal goes: a place that whoever writes to the store cannot write to.",
)  # fmt: skip
@key_option
@by_option
@common
def seal(to: Path, key: str, by: str | None, store: str | None, app: str | None, *, as_json: bool) -> None:
    """Sign where every run's record ends, into a file elsewhere.

    An older seal in that file must still agree with the store, or nothing is sealed. Compare with:
    milepost verify --seal FILE
    """
    signer = keys.find_private(key)
    with opened(Settings(store, app).url) as store_:
        made = wait_for(sealing.seal(store_, writing(store_), signer, to, now_ms(), options.user(by)))
    facts = made.facts
    if as_json:
        told = {"store": facts.store, "sequence": facts.sequence, "at": iso(facts.at), "by": facts.by}
        say_json({**told, "runs": facts.runs, "entries": facts.entries, "pruned": facts.pruned, "root": facts.root})
        return
    sealed = f"{facts.runs} runs, {facts.entries:,} entries"
    say(f"Seal {facts.sequence} of store {facts.store[:8]}, by {plain(facts.by)}: {sealed}.")
    say(f"Wrote {to}. Compare with: milepost verify --seal {to}")
