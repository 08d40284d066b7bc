"""Versioned JSON of entries. Data only: no class paths, bounded size, nothing newer than we know.

Every entry's `entry` field is `name.schema`. What was written under an older schema passes through the upcasters of its
name, one step at a time; what was written under a newer one is refused. Text with lone surrogates is no UTF-8, and what
is nested more deeply than the interpreter can follow is no data: both are refused, on the way in and on the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from milepost.core.approval_entries import ApprovalEntry
from milepost.core.code_entries import CodeEntry
from milepost.core.entries import Entry, RunEntry
from milepost.core.limit_entries import LimitEntry
from milepost.core.nesting import LEVELS_MAX, too_deep
from milepost.core.store_entries import StoreEntry
from milepost.core.word_entries import WordEntry
from milepost.errors import MalformedEntry, NewerSchema

ENTRY_BYTES_MAX = 16 * 1024 * 1024
ENTRY_LEVELS_MAX = LEVELS_MAX + 16  # a value, and what an entry puts around it

AnyEntry = RunEntry | CodeEntry | ApprovalEntry | LimitEntry | WordEntry | StoreEntry
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

# (name, schema it reads) -> what makes it schema + 1
UPCASTERS: dict[tuple[str, int], Upcaster] = {}

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)


class _Peek(msgspec.Struct):
    entry: str


_peek = msgspec.json.Decoder(_Peek)
_plain: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
# What reading bytes may raise: no JSON or another shape, nested too deeply, no UTF-8.
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeError)


def _known_schemas() -> dict[str, int]:
    known: dict[str, int] = {}
    for kind in Entry.__subclasses__():
        name, schema = str(kind.__struct_config__.tag).split(".")
        known[name] = int(schema)
    return known


KNOWN = _known_schemas()


def encode(entry: Entry) -> bytes:
    """Return the exact bytes that are stored and hashed.

    Raises MalformedEntry for an entry over the limits of size and nesting, and for text that is no UTF-8.
    """
    try:
        body = _encoder.encode(entry)
    except (UnicodeError, RecursionError) as error:
        raise MalformedEntry(str(error)) from error
    if too_deep(body, ENTRY_LEVELS_MAX):
        raise MalformedEntry(f"nested more than {ENTRY_LEVELS_MAX} levels deep")
    if len(body) > ENTRY_BYTES_MAX:
        why = f"{len(body)} bytes, the limit is {ENTRY_BYTES_MAX}: pass large values by reference"
        raise MalformedEntry(why)
    return body


def decode(body: bytes) -> AnyEntry:
    """Return the entry that these bytes hold.

    Raises NewerSchema for a schema above ours, MalformedEntry for anything else that is no entry.
    """
    if len(body) > ENTRY_BYTES_MAX:
        why = f"{len(body)} bytes, the limit is {ENTRY_BYTES_MAX}"
        raise MalformedEntry(why)
    try:
        return _decoder.decode(body)
    except _UNREADABLE as error:
        return _decode_older(body, error)


def _decode_older(body: bytes, error: Exception) -> AnyEntry:
    try:
        name, _, schema_text = _peek.decode(body).entry.partition(".")
        schema = int(schema_text) if schema_text.isdecimal() else -1
    except (*_UNREADABLE, ValueError):
        raise MalformedEntry(str(error)) from error
    known = KNOWN.get(name)
    if known is None or schema < 0:
        why = f"there is no entry {name!r} of schema {schema_text!r}"
        raise MalformedEntry(why) from error
    if schema > known:
        what = f"entry {name!r}"
        raise NewerSchema(what, schema, known) from error
    if schema == known:
        raise MalformedEntry(str(error)) from error
    return _upcast(name, schema, known, body)


def _upcast(name: str, schema: int, known: int, body: bytes) -> AnyEntry:
    steps = [UPCASTERS[name, older] for older in range(schema, known) if (name, older) in UPCASTERS]
    if len(steps) < known - schema:
        why = f"entry {name!r} of schema {schema} has no upcaster"
        raise MalformedEntry(why)
    try:
        fields = _plain.decode(body)
        for upcaster in steps:
            fields = upcaster(fields)
        return _decoder.decode(_encoder.encode({**fields, "entry": f"{name}.{known}"}))
    except _UNREADABLE as error:
        why = f"entry {name!r} could not be upcast ({error})"
        raise MalformedEntry(why) from error


def name_of(entry: Entry) -> str:
    """Return the entry's name without its schema number, such as `effect_started`."""
    return str(type(entry).__struct_config__.tag).partition(".")[0]
