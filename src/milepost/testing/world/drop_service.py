"""A drop folder, as partners exchange files: `python -m milepost.testing.world.drop_service`.

Who sends writes a file under another name and renames it to `drop/ACCOUNT~TOOL~NAME.json`. Its content is `{"key": …,
"attempt": …, "args": {…}}`. The service picks it up, notes it in its ledger as applied, and moves it to `taken/`. Two
files of one name after each other are two effects; whoever wants to know looks into both folders.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from milepost.testing.world import ledger as books
from milepost.testing.world import rules
from milepost.testing.world.process import announce, arguments, end_with_stdin

LOOK_S = 0.01


class DropFolder:
    """Both sides of the exchange: `put` and `find` for who sends, `take` for the service."""

    def __init__(self, folder: Path) -> None:
        self.drop = folder / "drop"
        self.taken = folder / "taken"
        for path in (self.drop, self.taken):
            path.mkdir(exist_ok=True)

    def put(self, account: str, tool: str, name: str, key: str, attempt: int, args: object) -> None:
        """Send a file: it is there whole, or not at all."""
        path = self.drop / filed(account, tool, name)
        part = path.with_suffix(f".{key[:12]}-{attempt}")
        part.write_text(json.dumps({"key": key, "attempt": attempt, "args": args}))
        part.rename(path)

    def find(self, account: str, tool: str, name: str) -> bool:
        """Whether a file of that name was sent: it waits, or was taken."""
        file = filed(account, tool, name)
        return (self.drop / file).exists() or (self.taken / file).exists()

    def take(self, folder: Path, ledger: books.Ledger) -> None:
        """Apply each file that waits."""
        for path in sorted(self.drop.glob("*.json")):
            account, tool, name = map(unquote, path.stem.split("~"))
            how = rules.read(folder, account)
            sent = json.loads(path.read_text())
            ledger.asked(account, books.Request(f"FILE {name}", sent["key"], sent["attempt"], how.now()))
            ledger.apply(
                account,
                "file",
                books.Line(0, tool, name, sent["key"], sent["attempt"], how.now(), sent["args"]),
            )
            path.replace(self.taken / path.name)  # moved last: what does not wait any more stands in the ledger

    def waiting(self, account: str) -> bool:
        """Whether a file of an account was sent and not taken yet."""
        return any(self.drop.glob(f"{quote(account, safe='')}~*.json"))


def filed(account: str, tool: str, name: str) -> str:
    """Return the name of the file."""
    return "~".join(quote(part, safe="") for part in (account, tool, name)) + ".json"


def main(argv: Sequence[str] | None = None) -> None:
    """Take files until the parent ends."""
    options = arguments("A drop folder with a ledger.").parse_args(argv)
    end_with_stdin()
    ledger, folder = books.Ledger(options.folder / "files.ledger"), DropFolder(options.folder)
    announce(options.port_file, 0)
    while True:
        folder.take(options.folder, ledger)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
