"""Versioned JSON of entries. Data only: no class paths, bounded size and depth, nothing newer than we know.

Every entry's `entry` field is `name.schema`. What was written under an older schema passes through the upcasters of its
name, one step at a time; what was written under a newer one is refused. `latin` text with lone surrogates never gets this
far: it cannot be encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from milepost.core.entries import AnyEntry, Entry
from milepost.errors import MalformedEntry, NewerSchema

ENTRY_BYTES_MAX = 16 * 1024 * 1024
DEPTH_MAX = 200

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

# (name, schema it reads) -> what makes it schema + 1
UPCASTERS: dict[tuple[str, int], Upcaster] = {}

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)


class _Peek(msgspec.Struct):
    entry: str


_peek = msgspec.json.Decoder(_Peek)


def _known_schemas() -> dict[str, int]:
    known: dict[str, int] = {}
    for kind in Entry.__subclasses__():
        name, schema = str(kind.__struct_config__.tag).split(".")
        known[name] = int(schema)
    return known


KNOWN = _known_schemas()


def encode(entry: Entry) -> bytes:
    """Return the exact bytes that are stored and hashed. Raises MalformedEntry for an entry over the size limit."""
    body = _encoder.encode(entry)
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
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _decode_older(body, error)


def _decode_older(body: bytes, error: Exception) -> AnyEntry:
    try:
        name, _, schema_text = _peek.decode(body).entry.partition(".")
        schema = int(schema_text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        raise MalformedEntry(str(error)) from error
    known = KNOWN.get(name)
    if known is None:
        why = f"there is no entry {name!r}"
        raise MalformedEntry(why) from error
    if schema > known:
        what = f"entry {name!r}"
        raise NewerSchema(what, schema, known) from error
    if schema == known:
        raise MalformedEntry(str(error)) from error
    return _convert(name, _upcast(name, schema, known, msgspec.json.decode(body)))


def _upcast(name: str, schema: int, known: int, fields: dict[str, Any]) -> dict[str, Any]:
    while schema < known:
        upcaster = UPCASTERS.get((name, schema))
        if upcaster is None:
            why = f"entry {name!r} of schema {schema} has no upcaster"
            raise MalformedEntry(why)
        fields = upcaster(fields)
        schema += 1
    return {**fields, "entry": f"{name}.{known}"}


def _convert(name: str, fields: dict[str, Any]) -> AnyEntry:
    try:
        return _decoder.decode(_encoder.encode(fields))
    except msgspec.DecodeError as error:
        why = f"entry {name!r} could not be upcast ({error})"
        raise MalformedEntry(why) from error


def name_of(entry: Entry) -> str:
    """Return the entry's name without its schema number, such as `effect_started`."""
    return str(type(entry).__struct_config__.tag).partition(".")[0]
