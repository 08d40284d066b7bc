"""What the URL of a store says without opening it: how people name it, and where files beside it stand.

A store in one file has its lock files and its stop file beside that, wherever a link or a relative path leads to it: a
file that goes by two names is one store, and so are its workers and what stops them. A store in a database has them in
a folder of this machine and this user: `$MILEPOST_LOCAL`, else below `$XDG_STATE_HOME` or `~/.local/state`, else in the
folder for temporary files. They are found by the URL alone, for a stop file must work when the database does not
answer: name a store by one URL on a machine.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from milepost.errors import InvalidDeclaration, StoreError

POSTGRES = ("postgresql", "postgres")
LOCAL = "MILEPOST_LOCAL"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def wall_ms() -> int:
    """Return this machine's wall time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def is_postgres(url: str) -> bool:
    """Say whether a URL names a PostgreSQL database."""
    return url.partition("://")[0] in POSTGRES


def file_of(url: str) -> str | None:
    """Return the file that a URL names, None for a database. Raises InvalidDeclaration for anything else."""
    if is_postgres(url):
        return None
    scheme, found, file = url.partition(":///")
    if not found or scheme != "sqlite" or not file:
        why = (
            f"store {url!r}: write it like sqlite:///milepost.db, or with an absolute path sqlite:////var/milepost.db, "
            "or like postgresql://user@host/database"
        )
        raise InvalidDeclaration(why)
    return file


def place_of(url: str) -> str:
    """Return what a person calls the store: the path of a file, the URL of anything else without its password."""
    if not is_postgres(url):
        return url.removeprefix("sqlite:///")
    parts = urlsplit(url)
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    login, _, hosts = parts.netloc.rpartition("@")
    user = unquote(login.partition(":")[0]) or asked.get("user", "")
    host = unquote(hosts) or asked.get("host", "")
    port = f":{asked['port']}" if "port" in asked else ""
    database = unquote(parts.path.removeprefix("/")) or asked.get("dbname", "")
    return f"postgresql://{user}{'@' if user else ''}{host}{port}/{database}"


def local_of(url: str) -> str:
    """Return what the names of a store's files on this machine begin with. Raises StoreError where none can be made."""
    if not is_postgres(url):
        return beside(place_of(url))
    place = place_of(url)
    login, _, rest = place.partition("@")  # a worker's login and a person's are of one store
    place = f"postgresql://{rest}" if rest else login
    name = place.rpartition("/")[2] or "store"
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)[:40]
    return str(_folder() / f"{plain}-{sha256(place.encode()).hexdigest()[:12]}")


def beside(file: str) -> str:
    """Return what the names of the files beside a store's file begin with, whichever of its names it is opened by."""
    return os.path.realpath(file)


def _folder() -> Path:
    if named := os.environ.get(LOCAL):
        return _private(Path(named))
    state = os.environ.get("XDG_STATE_HOME")
    home = Path(state) if state else Path("~/.local/state").expanduser()
    try:
        return _private(home / "milepost")
    except (OSError, StoreError):  # a service account without a home of its own
        return _private(Path(tempfile.gettempdir()) / f"milepost-{os.getuid()}")


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & _OTHERS:
        raise StoreError(f"{folder} is open to others, and files that stop workers stand there. Name another: {LOCAL}")
    return folder
