"""The codec of payloads: AES-256-GCM over every value that is stored, bound to its run and its place in it.

What is encrypted: whole journal entries, chunks (state, large values), messages, events, the arguments of an approval,
the result and the argument digest of a business identity, and the texts of errors beside a run, an effect or a switch,
what a run asks of a person among them: it says why a tool is held.
What stays readable, because it is searched, joined or shown without a key: ids, workflow names, versions, start keys,
principals, tenants, tags, step paths, tool names, outcomes, statuses, moments, tombstones, workers. A start key, a tag
or a principal must therefore hold nothing secret. Names that would be the hash of a content (chunks) and business
identities are replaced by a keyed hash, or whoever guesses a content could confirm it.

The chain is over the bytes as stored, so `verify` needs no key. A value names the id of its key; each run has a key of
its own, derived from that. Old ids stay readable as long as their keys stand in the file; new values are written under
`current`. Once a store is encrypted, the database itself refuses plain entries, chunks and messages, from whomever.

    current = "k2"
    names = "base64 of 32 bytes: for the keyed hashes, never changed"
    [keys]
    k1 = "base64 of 32 bytes"
    k2 = "base64 of 32 bytes"
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
import stat
import tomllib
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from milepost.errors import Damaged, ExtraMissing, MilepostError, StoreError

MAGIC = b"\0mpe"  # no JSON begins with a zero byte
TEXT = "mpe:"
KEY_BYTES = 32
NONCE_BYTES = 12
ID_CHARS = 40
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyMissing(StoreError):
    """What is stored was encrypted with a key that is not at hand."""

    code = "key_missing"

    def __init__(self, key_id: str) -> None:
        named = f"with key {key_id!r}" if key_id else "and no key file is named"
        super().__init__(
            f"the store is encrypted {named}, which this process does not have. Name the key file: "
            "App(encryption=…), or MILEPOST_ENCRYPTION"
        )
        self.key_id = key_id


class WrongKeyFile(StoreError):
    """The key file belongs to another store: what would be written with it could be read by nobody."""

    code = "wrong_key_file"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"the key file is not that of {place}. Nothing was written. Name the one it was encrypted with."
        )
        self.place = place


class KeyFileRefused(MilepostError):
    """The key file cannot be used as it stands."""

    code = "key_file_refused"

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path}: {why}. Make one with: milepost keys payload FILE")
        self.path = str(path)
        self.why = why


class Cipher:
    """The keys of one file."""

    def __init__(self, current: str, names: bytes, keys: dict[str, bytes]) -> None:
        self.current = current
        self._names = names
        self._keys = keys
        self._of_run = lru_cache(maxsize=1_024)(self._derived)

    def _derived(self, key_id: str, run_id: str) -> Any:
        key = self._keys.get(key_id)
        if key is None:
            raise KeyMissing(key_id)
        return _library()[0](hmac.new(key, b"milepost run\0" + run_id.encode(), sha256).digest())

    def seal(self, run_id: str, place: str, data: bytes) -> bytes:
        """Return the bytes to be stored. `place` says where in the run they stand: they are readable nowhere else."""
        nonce = os.urandom(NONCE_BYTES)
        key_id = self.current.encode()
        sealed: bytes = self._of_run(self.current, run_id).encrypt(nonce, data, _bound(run_id, place))
        return MAGIC + bytes([len(key_id)]) + key_id + nonce + sealed

    def open(self, run_id: str, place: str, stored: bytes) -> bytes:
        """Return what was stored; bytes from before the store was encrypted as they are. Raises KeyMissing, Damaged."""
        if not stored.startswith(MAGIC):
            return stored
        key_id, rest = _key_id(run_id, stored)
        try:
            opened: bytes = self._of_run(key_id, run_id).decrypt(
                rest[:NONCE_BYTES], rest[NONCE_BYTES:], _bound(run_id, place)
            )
        except (_library()[1], ValueError) as error:
            raise Damaged(run_id, f"what stands at {place} was changed, or was not encrypted for it") from error
        return opened

    def seal_text(self, run_id: str, place: str, text: str) -> str:
        """Return a text to be stored."""
        return TEXT + base64.b64encode(self.seal(run_id, place, text.encode("utf-8", "surrogatepass"))).decode()

    def open_text(self, run_id: str, place: str, stored: str) -> str:
        """Return a stored text; one that cannot be read is said to be so, for it is only shown."""
        if not stored.startswith(TEXT):
            return stored
        try:
            raw = base64.b64decode(stored[len(TEXT) :])
            return self.open(run_id, place, raw).decode("utf-8", "surrogatepass") if _is_ours(raw) else hidden(stored)
        except (StoreError, ValueError):
            return hidden(stored)

    def chunk_name(self, run_id: str, digest: str) -> str:
        """Return the name under which a chunk is stored: its own is the hash of its content."""
        return hmac.new(self._names, f"chunk\0{run_id}\0{digest}".encode(), sha256).hexdigest()

    @property
    def mark(self) -> str:
        """What an encrypted store remembers of its key file."""
        return hmac.new(self._names, b"milepost mark", sha256).hexdigest()

    def identity(self, tenant: str, tool: str, value: str) -> str:
        """Return what is stored of a business identity."""
        return "mpe:" + hmac.new(self._names, f"once\0{tenant}\0{tool}\0{value}".encode(), sha256).hexdigest()


def reveal(cipher: Cipher | None, run_id: str, place: str, stored: bytes) -> bytes:
    """Return what stored bytes say, with a cipher or without one. Raises KeyMissing, Damaged."""
    if cipher is not None:
        return cipher.open(run_id, place, stored)
    if stored.startswith(MAGIC):
        raise KeyMissing(_key_id(run_id, stored)[0])
    return stored


def shown(cipher: Cipher | None, run_id: str, place: str, stored: str | None) -> str | None:
    """Return a text that is only shown; without its key it says so."""
    if stored is None or not stored.startswith(TEXT):
        return stored
    return cipher.open_text(run_id, place, stored) if cipher is not None else hidden(stored)


def hidden(stored: str) -> str:
    """Return what is shown of a text whose key is not at hand."""
    try:
        return f"[encrypted, key {_key_id('', base64.b64decode(stored[len(TEXT) :]))[0]}]"
    except (ValueError, StoreError):
        return "[encrypted]"


def _is_ours(stored: bytes) -> bool:
    return stored.startswith(MAGIC)


def _bound(run_id: str, place: str) -> bytes:
    return f"milepost payload\0{run_id}\0{place}".encode()


def _key_id(run_id: str, stored: bytes) -> tuple[str, bytes]:
    length = stored[len(MAGIC)] if len(stored) > len(MAGIC) else 0
    begin = len(MAGIC) + 1
    if not 0 < length <= ID_CHARS or len(stored) < begin + length + NONCE_BYTES:
        raise Damaged(run_id, "an encrypted value is cut off")
    return stored[begin : begin + length].decode("ascii", "replace"), stored[begin + length :]


@cache
def _library() -> tuple[Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  an extra, and only who encrypts waits for it
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    except ImportError as error:
        what = "encrypted payloads"
        raise ExtraMissing(what, "crypto") from error
    return AESGCM, InvalidTag


# ---------------------------------------------------------------- the key file


def load(path: Path) -> Cipher:
    """Return the cipher of a key file. Raises KeyFileRefused, ExtraMissing."""
    _library()
    try:
        if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
            raise KeyFileRefused(path, f"others may read it. Close it first: chmod 600 {path}")
        said = tomllib.loads(path.read_text("utf-8"))
        keys = {str(name): _key(value) for name, value in said["keys"].items()}
        current, names = str(said["current"]), _key(said["names"])
    except OSError as error:
        raise KeyFileRefused(path, error.strerror or "it cannot be read") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, AttributeError, ValueError, TypeError) as error:
        # Nothing of the file may be said: it holds keys.
        raise KeyFileRefused(path, "it is no key file: current, names, and [keys] of 32 bytes in base64") from error
    if current not in keys or not all(_good(name) for name in keys):
        raise KeyFileRefused(path, "current names none of its keys, or a name is longer than 40 plain letters")
    return Cipher(current, names, keys)


def write(path: Path, key_id: str, *, rotate: bool) -> None:
    """Make a key file, or with `rotate` add a key to it and make it the current one. Raises KeyFileRefused."""
    if not _good(key_id):
        raise KeyFileRefused(path, f"{key_id!r} is no name of a key: up to 40 letters, digits, '-' and '_'")
    keys: dict[str, str] = {}
    names = _new()
    if rotate:
        load(path)
        said = tomllib.loads(path.read_text("utf-8"))
        keys, names = dict(said["keys"]), said["names"]
        if key_id in keys:
            raise KeyFileRefused(path, f"key {key_id!r} stands in it already: a key is never replaced")
    keys[key_id] = _new()
    lines = [f'current = "{key_id}"', f'names = "{names}"', "", "[keys]", *(f'{k} = "{v}"' for k, v in keys.items())]
    place = path.with_name(f".{path.name}.new") if rotate else path
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise KeyFileRefused(place, "it is there already, and keys are never overwritten") from error
    except OSError as error:
        raise KeyFileRefused(place, error.strerror or "it cannot be written") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    if rotate:
        place.replace(path)


def _new() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _good(key_id: str) -> bool:
    return 0 < len(key_id) <= ID_CHARS and key_id.isascii() and key_id.replace("-", "").replace("_", "").isalnum()


def _key(value: object) -> bytes:
    if not isinstance(value, str):
        msg = "a key is text"
        raise TypeError(msg)
    try:
        key = base64.b64decode(value, validate=True)
    except binascii.Error as error:
        msg = "a key is base64"
        raise ValueError(msg) from error
    if len(key) != KEY_BYTES:
        msg = "a key has 32 bytes"
        raise ValueError(msg)
    return key
