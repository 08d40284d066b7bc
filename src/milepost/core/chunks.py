"""Content-addressed state: a value's JSON split into chunks, so that a list which grows costs its new elements.

A chunk is one of three JSON arrays: `["v", value]` a leaf, `["o", {name: slot}]` an object, `["l", height, [slot, …]]`
a node of a list, 1 to FANOUT slots wide. A slot is a string (the sha256 of another chunk) or a one-element array (a
small value in place); above height 0 every slot names a node that is one lower. The split works on the raw bytes and
never builds the values: the parts of a list that did not change keep their digests and are not stored again. Lists are
grouped by position, which suits what agents do (append); an insertion at the front stores the list anew.

What is read may have been written by anybody. Whoever fetches a chunk checks its digest; here whatever is not of the
form above is refused, so that no bytes can make the result something else than one JSON value, or the reading endless.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import msgspec

from milepost.errors import MalformedEntry

if TYPE_CHECKING:
    from collections.abc import Callable

FANOUT = 16
INLINE_BYTES = 128
WHOLE_BYTES = 4_096
DEPTH_MAX = 64
HEIGHT_MAX = 16

T = TypeVar("T")

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)
_number = msgspec.json.Decoder(int)
_encode = msgspec.json.Encoder().encode


def digest_of(data: bytes) -> str:
    """Return the name of a chunk: sha256 of its bytes, in hex."""
    return sha256(data).hexdigest()


def split(data: bytes) -> tuple[str, dict[str, bytes]]:
    """Split JSON bytes into chunks; return the digest of the root and every chunk by digest."""
    chunks: dict[str, bytes] = {}
    root = _store(_node(data, chunks, 0), chunks)
    return root, chunks


def join(root: str, fetch: Callable[[str], bytes]) -> bytes:
    """Return the JSON bytes whose root chunk is `root`; `fetch` returns a chunk's bytes by digest.

    Raises MalformedEntry for bytes that are no chunk; a chunk that does not match its digest is the caller's to refuse.
    """
    out: list[bytes] = []
    _rebuild(fetch(root), fetch, out, 0)
    return b"".join(out)


def references(data: bytes) -> list[str]:
    """Return the digests that a chunk refers to."""
    kind, parts = _open(data)
    if kind == "v":
        return []
    slots = _read(_object, parts[1]).values() if kind == "o" else _node_of_list(kind, parts)[1]
    return [_read(_text, slot) for slot in slots if bytes(slot).startswith(b'"')]


def _store(chunk: bytes, chunks: dict[str, bytes]) -> str:
    digest = digest_of(chunk)
    chunks[digest] = chunk
    return digest


def _node(data: bytes | msgspec.Raw, chunks: dict[str, bytes], depth: int) -> bytes:
    raw = bytes(data)
    opening = raw[:1]
    if len(raw) > WHOLE_BYTES and depth < DEPTH_MAX:
        if opening == b"{":
            members = _object.decode(raw)
            slots = (_encode(name) + b":" + _slot(member, chunks, depth) for name, member in members.items())
            return b'["o",{' + b",".join(slots) + b"}]"
        if opening == b"[":
            return _list([_slot(part, chunks, depth) for part in _array.decode(raw)], chunks)
    return b'["v",' + raw + b"]"


def _slot(data: msgspec.Raw, chunks: dict[str, bytes], depth: int) -> bytes:
    raw = bytes(data)
    if len(raw) <= INLINE_BYTES:
        return b"[" + raw + b"]"
    return b'"' + _store(_node(raw, chunks, depth + 1), chunks).encode() + b'"'


def _list(slots: list[bytes], chunks: dict[str, bytes]) -> bytes:
    height = 0
    while len(slots) > FANOUT:
        groups = [slots[i : i + FANOUT] for i in range(0, len(slots), FANOUT)]
        slots = [b'"' + _store(_group(height, group), chunks).encode() + b'"' for group in groups]
        height += 1
    return _group(height, slots)


def _group(height: int, slots: list[bytes]) -> bytes:
    return b'["l",%d,[' % height + b",".join(slots) + b"]]"


def _read(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        why = f"a chunk cannot be read ({error})"
        raise MalformedEntry(why) from error


def _open(data: bytes) -> tuple[str, list[msgspec.Raw]]:
    parts = _read(_array, data)
    kind = _read(_text, parts[0]) if parts else ""
    if (kind, len(parts)) not in {("v", 2), ("o", 2), ("l", 3)}:
        why = f"a chunk of unknown kind {kind!r}"
        raise MalformedEntry(why)
    return kind, parts


def _node_of_list(kind: str, parts: list[msgspec.Raw], height: int | None = None) -> tuple[int, list[msgspec.Raw]]:
    found, slots = (_read(_number, parts[1]), _read(_array, parts[2])) if kind == "l" else (-1, [])
    if not (0 <= found <= HEIGHT_MAX and 1 <= len(slots) <= FANOUT and height in {None, found}):
        why = "a node of a list has the wrong height or width"
        raise MalformedEntry(why)
    return found, slots


def _rebuild(data: bytes, fetch: Callable[[str], bytes], out: list[bytes], depth: int) -> None:
    if depth > 2 * DEPTH_MAX:
        why = "chunks are nested too deeply"
        raise MalformedEntry(why)
    kind, parts = _open(data)
    if kind == "v":
        out.append(bytes(parts[1]))
    elif kind == "o":
        out.append(b"{")
        for position, (name, slot) in enumerate(_read(_object, parts[1]).items()):
            out.append((b"," if position else b"") + _encode(name) + b":")
            _fill(slot, fetch, out, depth)
        out.append(b"}")
    else:
        out.append(b"[")
        _elements(*_node_of_list(kind, parts), fetch, out, depth)
        out.append(b"]")


def _elements(
    height: int, slots: list[msgspec.Raw], fetch: Callable[[str], bytes], out: list[bytes], depth: int
) -> None:
    for position, slot in enumerate(slots):
        if position:
            out.append(b",")
        if height == 0:
            _fill(slot, fetch, out, depth)
        else:
            kind, parts = _open(fetch(_read(_text, slot)))
            _elements(*_node_of_list(kind, parts, height - 1), fetch, out, depth)


def _fill(slot: msgspec.Raw, fetch: Callable[[str], bytes], out: list[bytes], depth: int) -> None:
    raw = bytes(slot)
    if raw[:1] == b'"':
        _rebuild(fetch(_read(_text, raw)), fetch, out, depth + 1)
        return
    inside = _read(_array, raw)
    if len(inside) != 1:
        why = "a slot of a chunk holds no single value"
        raise MalformedEntry(why)
    out.append(bytes(inside[0]))
