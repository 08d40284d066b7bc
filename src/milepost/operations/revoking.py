"""Taking a key's trust back: its table in the trust file says so from here on, and everything else stays as it was.

The file is replaced as a whole, so that a worker reads either all of the old one or all of the new one.
"""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING

from milepost.core.duration import from_ms
from milepost.operations import keys
from milepost.operations.sealing import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from milepost.operations.keys import Operator

_TABLE = re.compile(r"^\s*\[\[\s*operator\s*\]\]")
_SAID = re.compile(r"^\s*revoked\s*=")


def revoke(path: Path, name: str, now: int) -> Operator:
    """Revoke an operator's key in a trust file, from `now` (milliseconds since 1970) on; return how it stands.

    One that is revoked already stays as it was. Raises KeyRefused where the file cannot be read, does not name the
    operator, or is written in a way that only a person should change.
    """
    path = path.resolve()  # not the link that leads there: others may read it by another way
    known = keys.load(path).operators
    if name not in known:
        listed = ", ".join(sorted(known)) or "nobody"
        raise keys.KeyRefused(path, f"it names no operator {name!r}, but {listed}")
    if known[name].revoked is not None:
        return known[name]
    text = _revoked(path.read_text("utf-8"), name, f"revoked = {from_ms(now):%Y-%m-%dT%H:%M:%SZ}")
    replace_file(path, text.encode(), path.stat().st_mode & 0o777)
    done = keys.load(path).operators.get(name)
    if done is None or done.revoked is None:
        raise keys.KeyRefused(path, f"operator {name!r} is written so that only you can change it: add revoked = true")
    return done


def _revoked(text: str, name: str, line: str) -> str:
    """Return the text of a trust file with a line more in an operator's table."""
    lines = text.splitlines()
    starts = [number for number, one in enumerate(lines) if _TABLE.match(one)]
    for first, end in pairwise([*starts, len(lines)]):
        try:
            (table,) = tomllib.loads("\n".join(lines[first:end]))["operator"]
        except (tomllib.TOMLDecodeError, ValueError, KeyError):
            continue
        if table.get("name") == name:
            rest = [one for one in lines[first + 1 : end] if not _SAID.match(one)]
            return "\n".join([*lines[: first + 1], line, *rest, *lines[end:]]) + "\n"
    return text
