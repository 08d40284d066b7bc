"""Operators' keys: who may sign what, and whether a signature is theirs.

A key is a pair of files. `NAME.key` is the private half, readable for its owner alone; `NAME.pub` is the public half,
to be given to whoever has to trust it. A *trust file* is a list of operators: for each a name, the public key, what it
may sign (`approve`, `seal`, `export`), when that ends, and whether it was revoked. It stands where the one who is to be
watched cannot write: a signature proves no more than the file that names its key.

Rules. What is not listed is not trusted. A key signs only in the domains that it is trusted for. An expired or revoked
key is refused whenever its signature was made: nobody can tell an old signature from one that was dated back.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import time
import tomllib
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.core.duration import from_ms, to_ms
from milepost.core.statement import POWER, domain_of
from milepost.errors import MilepostError
from milepost.operations import ed25519

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PRIVATE_MODE = 0o600
PREFIX = "ed25519:"
MAY = tuple(sorted(POWER.values()))
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class KeyRefused(MilepostError):
    """A key file or a trust file cannot be used as it stands."""

    code = "key_refused"

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = str(path)
        self.why = why


class Untrusted(MilepostError):
    """A signature is not that of an operator who is trusted for this.

    `reason` is a stable word: unknown_signer, not_permitted, revoked_signer, expired_signer or bad_signature.
    """

    code = "untrusted"

    def __init__(self, name: str, why: str, reason: str = "bad_signature") -> None:
        super().__init__(f"the signature of {name!r} is not accepted: {why}")
        self.name = name
        self.why = why
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Operator:
    """One trusted key. `expires` and `revoked` are milliseconds since 1970, None where they are not set."""

    name: str
    public: str
    may: frozenset[str]
    expires: int | None = None
    revoked: int | None = None

    @property
    def fingerprint(self) -> str:
        """A short name of the key itself."""
        return fingerprint(self.public)


@dataclass(frozen=True, slots=True)
class Trust:
    """The operators of one trust file, by name."""

    operators: Mapping[str, Operator] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key that was read. It is never printed: its repr names the key and no more."""

    name: str
    key: Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> str:
        """The public half, as a trust file has it."""
        return _text(ed25519.public_of(self.key))


def fingerprint(public: str) -> str:
    """Return a short name of a public key: the beginning of the sha256 of its bytes."""
    return sha256(_bytes(public)).hexdigest()[:16]


# ---------------------------------------------------------------- signing and verifying


def sign(private: Signer, statement: bytes) -> str:
    """Return the signature of a statement, in base64. Raises ValueError for bytes that are no statement."""
    domain_of(statement)
    return base64.b64encode(private.key.sign(statement)).decode()


def verify(trust: Trust, name: str, statement: bytes, signature: str, now: int | None = None) -> Operator:
    """Return the operator whose signature this is. `now` is in milliseconds since 1970, else the wall clock's.

    Raises Untrusted: no such operator, not trusted for the statement's domain, expired, revoked, another's signature.
    """
    operator = trust.operators.get(name)
    if operator is None:
        raise Untrusted(
            name, "the trust file names no such operator. Add the key with: milepost keys trust FILE", "unknown_signer"
        )
    try:
        power = POWER[domain_of(statement)]
    except ValueError as error:
        raise Untrusted(name, str(error)) from error
    if power not in operator.may:
        raise Untrusted(
            name, f"it may {', '.join(sorted(operator.may)) or 'do nothing'}, and this needs {power!r}", "not_permitted"
        )
    now = time.time_ns() // 1_000_000 if now is None else now
    if operator.revoked is not None:
        raise Untrusted(name, f"the key was revoked ({from_ms(operator.revoked):%Y-%m-%d})", "revoked_signer")
    if operator.expires is not None and operator.expires <= now:
        raise Untrusted(name, f"the key expired ({from_ms(operator.expires):%Y-%m-%d})", "expired_signer")
    if not signed_by(operator.public, statement, signature):
        raise Untrusted(name, "the bytes were signed by another key, or changed since")
    return operator


def signed_by(public: str, statement: bytes, signature: str) -> bool:
    """Say whether a signature is that of a public key over these bytes."""
    try:
        return ed25519.verifies(_bytes(public), statement, base64.b64decode(signature, validate=True))
    except (binascii.Error, ValueError):
        return False


# ---------------------------------------------------------------- key files


def home() -> Path:
    """Return the folder that keys are kept in: MILEPOST_KEYS, else milepost/keys in the user's settings."""
    named = os.environ.get("MILEPOST_KEYS")
    if named:
        return Path(named)
    settings = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(settings) / "milepost" / "keys"


def create(name: str, folder: Path) -> Operator:
    """Make a key pair in a folder, the private half for its owner alone. Raises KeyRefused where one stands."""
    _plain(name)
    private = folder / f"{name}.key"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pem = ed25519.generate()
    operator = Operator(name, _text(ed25519.public_of(ed25519.load(pem))), frozenset())
    _write_new(private, pem, PRIVATE_MODE)
    try:
        _write_new(folder / f"{name}.pub", entry(operator).encode(), 0o644)
    except KeyRefused:
        private.unlink()
        raise
    return operator


def _plain(name: str) -> None:
    """Raise KeyRefused for a name that could leave its folder, or its line in a trust file."""
    if not name or not all(letter.isalnum() or letter in "-_.@" for letter in name) or name.startswith("."):
        raise KeyRefused(name, "a key's name is made of letters, digits, '-', '_', '.' and '@'")


def read_private(path: Path) -> Signer:
    """Return the private key of a file. Raises KeyRefused for a file that others may read, or that holds no key."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
            raise KeyRefused(path, f"others may read it. Close it first: chmod 600 {path}")
        return Signer(path.name.removesuffix(".key"), ed25519.load(path.read_bytes()))
    except OSError as error:
        raise KeyRefused(path, f"{error.strerror or error}. Make one with: milepost keys new NAME") from error
    except ValueError as error:
        raise KeyRefused(path, "it holds no private key of ours") from error


def find_private(named: str) -> Signer:
    """Return the private key that a path, or a name in the keys' folder, means. Raises KeyRefused."""
    path = Path(named)
    return read_private(path if path.exists() or os.sep in named else home() / f"{named}.key")


def listed(folder: Path) -> list[tuple[Operator, bool]]:
    """Return the keys of a folder, each with whether its private half is there."""
    found = []
    for path in sorted(folder.glob("*.pub")):
        private = path.with_suffix(".key").exists()
        found += [(operator, private) for operator in load(path).operators.values()]
    return found


# ---------------------------------------------------------------- trust files


def load(path: Path) -> Trust:
    """Return what a trust file (or a public key's file) says. Raises KeyRefused where it cannot be read as one."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & _OTHERS_WRITE:
            raise KeyRefused(path, f"others may write it, so it proves nothing. Close it first: chmod go-w {path}")
        said = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise KeyRefused(path, f"{error.strerror or error}. Write one with: milepost keys trust FILE") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KeyRefused(path, f"it is no TOML ({error})") from error
    operators: dict[str, Operator] = {}
    given = said.get("operator", [])
    if set(said) - {"operator"} or not isinstance(given, list):
        raise KeyRefused(path, "a trust file holds [[operator]] tables and nothing else")
    for one in given:
        operator = _operator(path, one)
        if operator.name in operators:
            raise KeyRefused(path, f"operator {operator.name!r} stands in it twice")
        operators[operator.name] = operator
    return Trust(operators)


def add(path: Path, operator: Operator, may: Iterable[str], expires: int | None) -> Operator:
    """Add a public key to a trust file, or make the file. `expires` is in milliseconds since 1970.

    Raises KeyRefused where the name is listed already: trust is changed by hand, never by adding. So it does for a name
    that is no name of a key: whoever gave the key away chose it, and must not say what else stands in the file.
    """
    _plain(operator.name)
    trusted = Operator(operator.name, operator.public, frozenset(may), expires)
    if path.exists():
        if operator.name in load(path).operators:
            raise KeyRefused(path, f"operator {operator.name!r} stands in it already. Change it there by hand")
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" + entry(trusted))
    else:
        _write_new(path, entry(trusted).encode(), 0o644)
    return trusted


def entry(operator: Operator) -> str:
    """Return an operator as a trust file has it."""
    lines = ["[[operator]]", f'name = "{operator.name}"', f'public = "{operator.public}"']
    if operator.may:
        lines.append("may = [" + ", ".join(f'"{one}"' for one in sorted(operator.may)) + "]")
    if operator.expires is not None:
        lines.append(f"expires = {from_ms(operator.expires):%Y-%m-%dT%H:%M:%SZ}")
    return "\n".join(lines) + "\n"


def _operator(path: Path, said: Any) -> Operator:
    known = {"name", "public", "may", "expires", "revoked"}
    if not isinstance(said, dict) or not {"name", "public"} <= set(said) <= known:
        raise KeyRefused(
            path, f"an operator has name and public, and may have {', '.join(sorted(known))}; nothing else"
        )
    name, public, may = said["name"], said["public"], said.get("may", [])
    if not isinstance(name, str) or not isinstance(may, list) or set(map(str, may)) - set(MAY):
        raise KeyRefused(path, f"operator {name!r}: may is a list of {', '.join(MAY)}")
    try:
        ed25519.check_public(_bytes(public))
    except ValueError as error:
        raise KeyRefused(path, f"operator {name!r}: {public!r} is no public key") from error
    # A key that was revoked "some day" is revoked: what is written there and is no moment must never be read as never.
    revoked = said.get("revoked", False)
    return Operator(
        name,
        public,
        frozenset(may),
        _moment(path, said["expires"]) if "expires" in said else None,
        None if revoked is False else 0 if revoked is True else _moment(path, revoked),
    )


def _moment(path: Path, said: Any) -> int:
    if isinstance(said, datetime):
        return to_ms(said if said.tzinfo is not None else said.astimezone())
    if isinstance(said, date):  # a day is over when it ends; time zones differ, so it ends with the last of them
        return to_ms(datetime(said.year, said.month, said.day).astimezone() + timedelta(days=1))
    raise KeyRefused(path, f"{said!r} is no moment. Write it like 2030-01-31T00:00:00Z")


def _text(public: bytes) -> str:
    return PREFIX + base64.b64encode(public).decode()


def _bytes(public: object) -> bytes:
    if not isinstance(public, str) or not public.startswith(PREFIX):
        msg = f"a public key begins with {PREFIX}"
        raise ValueError(msg)
    return base64.b64decode(public.removeprefix(PREFIX), validate=True)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that must not be there yet, with its mode from the first byte on."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), mode)
    except FileExistsError as error:
        raise KeyRefused(path, "it is there already, and a key is never overwritten. Choose another name") from error
    except OSError as error:
        raise KeyRefused(path, f"it cannot be written: {error.strerror or error}") from error
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
