"""Values as PostgreSQL sends and takes them in binary: the few types that our statements have.

A batch of a hundred appends carries some thousand values. A general driver looks at each of them to find out how it is
sent; here the server has said once, for each statement, what its parameters are.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Encode = Callable[[Any], bytes | None]
    Decode = Callable[[bytes | None], Any]

BOOL, BYTEA, NAME, INT8, INT2, INT4, TEXT, JSON, VARCHAR, VOID = 16, 17, 19, 20, 21, 23, 25, 114, 1043, 2278
NULL = b"\xff\xff\xff\xff"

_eight = Struct(">q").pack
_four = Struct(">i").pack
_two = Struct(">h").pack
_number = Struct(">iq").pack  # an element of an array: its length and itself
_LENGTH_OF_8 = _four(8)
_header = Struct(">iiIii").pack  # dimensions, whether there are nulls, type of the elements, how many, the first index


def text(value: str) -> bytes:
    """Return the bytes of a text. PostgreSQL's have no NUL, which is shown by its symbol instead."""
    return (value.replace("\0", "\u2400") if "\0" in value else value).encode()


def _boolean(value: Any) -> bytes:
    return b"\1" if value else b"\0"


def _numbers(values: Sequence[int | None]) -> bytes:
    count = len(values)
    header = _header(1, 1, INT8, count, 1)
    if _are_one(values):
        return header + _numbers_in((values[0],)) * count
    if None not in values:
        return _LENGTH_OF_8.join((header, *map(_eight, values)))
    return header + _numbers_in(values)


def _are_one(values: Sequence[Any]) -> bool:
    """Say whether all values are the same: so it is with many columns of a batch, and then one of them is encoded."""
    return bool(values) and values.count(values[0]) == len(values)


def _numbers_in(values: Sequence[int | None]) -> bytes:
    return b"".join([NULL if value is None else _number(8, value) for value in values])


def _texts(values: Sequence[str | None]) -> bytes:
    count = len(values)
    header = _header(1, 1, TEXT, count, 1)
    if _are_one(values):
        return header + _pieces([None if values[0] is None else text(values[0])]) * count
    return header + _pieces([None if value is None else text(value) for value in values])


def _blobs(values: Sequence[bytes | None]) -> bytes:
    return _header(1, 1, BYTEA, len(values), 1) + _pieces(values)


def _pieces(values: Sequence[bytes | None]) -> bytes:
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(NULL)
        else:
            parts += (_four(len(value)), value)
    return b"".join(parts)


_ENCODES: dict[int, Callable[[Any], bytes]] = {
    BOOL: _boolean,
    BYTEA: bytes,
    INT8: _eight,
    INT4: _four,
    INT2: _two,
    TEXT: text,
    JSON: text,
    VARCHAR: text,
    1016: _numbers,
    1009: _texts,
    1001: _blobs,
}


def _whole(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_DECODES: dict[int, Callable[[bytes], Any]] = {
    BOOL: lambda value: value == b"\1",
    BYTEA: bytes,
    INT8: _whole,
    INT4: _whole,
    INT2: _whole,
    TEXT: bytes.decode,
    VARCHAR: bytes.decode,
    NAME: bytes.decode,
    VOID: lambda _: "",
}


def encoder(oid: int) -> Callable[[Any], bytes]:
    """Return how a value of a type is sent. Raises KeyError for a type that no statement of ours has."""
    return _ENCODES[oid]


def decoder(oid: int) -> Callable[[bytes], Any]:
    """Return how a value of a type is read. Raises KeyError for a type that no statement of ours has."""
    return _DECODES[oid]
