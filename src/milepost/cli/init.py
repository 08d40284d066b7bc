"""`milepost init`."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.app import open_store
from milepost.cli.options import json_option, store_option
from milepost.cli.printing import say, say_json
from milepost.cli.settings import DEFAULT_FILE, Settings, url_of
from milepost.errors import StoreMissing
from milepost.stores.places import is_postgres, place_of


def _made(url: str) -> tuple[str, bool]:
    """Return the id of the store that is there now, and whether it was made."""
    if is_postgres(url):
        try:
            made, fresh = open_store(url), False
        except StoreMissing:
            made, fresh = open_store(url, create=True), True
    else:
        file = Path(place_of(url))
        # A file without a byte is what an `init` that was killed leaves behind.
        fresh = not file.exists() or (file.is_file() and file.stat().st_size == 0)
        made = open_store(url, create=fresh)
    store_id = made.id
    made.close()
    return store_id, fresh


@click.command()
@store_option
@json_option
def init(store: str | None, *, as_json: bool) -> None:
    """Create the store's file. A file that is no store is left alone; one that is a store is brought up to date.

    Without --store it is milepost.db in the current directory.
    """
    url = Settings(store).named_store or url_of(DEFAULT_FILE)
    place = place_of(url)
    store_id, fresh = _made(url)
    if as_json:
        say_json({"store": url, "id": store_id, "created": fresh})
        return
    say(f"{'Created' if fresh else 'There is a store already:'} {place} (store {store_id[:8]}).")
    option = "" if place == DEFAULT_FILE else f" --store {place}"
    say("Next:")
    say(f'  in your code          app = milepost.App("{url}", workflows=[…])')
    say(f"  drive runs            milepost worker --app module:app{option}")
    say(f"  start one             milepost start WORKFLOW INPUT-JSON --app module:app{option}")
    say(f"  look                  milepost runs{option}")
