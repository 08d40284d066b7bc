"""Users' values, to bytes and back.

One encoding: JSON, UTF-8, dictionary keys sorted and sets ordered, so that equal values have equal bytes in every
process. The bytes name no class; the declared type alone decides what they are read as.

The rule: what is written has been read back first and was equal. That is what makes re-entry honest: a segment that
gets a value from the record must see what it saw the first time. It catches all that JSON loses without a word: NaN
(becomes null), tuples and sets where the type does not ask for them (become lists), keys that are no text, subclasses'
extra fields. Equality is by value: the parts of dataclasses, structs and models are compared one by one where `==` says
no, since a class without `__eq__` is equal only to itself.

Strings, booleans, None and integers lose nothing, so they are written without being read back.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from milepost.core.nesting import LEVELS_MAX, too_deep
from milepost.definitions import pydantic_types
from milepost.errors import InvalidDeclaration, InvalidValue

T = TypeVar("T")

TOO_DEEP = f"it is nested more than {LEVELS_MAX} levels deep"

_LOSSLESS: frozenset[type[Any]] = frozenset({str, int, bool, NoneType})


def _said(value: Any) -> Any:
    """Turn what msgspec does not know into what it knows."""
    if pydantic_types.is_model(type(value)):
        return pydantic_types.dump(value)
    raise TypeError(f"a value of type {type(value).__qualname__} cannot be stored")


def _meant(kind: Any, said: Any) -> Any:
    """Turn plain data into what msgspec does not know."""
    if pydantic_types.is_adapted(kind) or pydantic_types.is_model(kind):
        return pydantic_types.load(kind, _ENCODER.encode(said))
    return said


_ENCODER = msgspec.json.Encoder(order="deterministic", enc_hook=_said)
_encode_sorted = _ENCODER.encode


def encode(value: Any) -> bytes:
    """Return the canonical JSON of a value. Raises TypeError or ValueError for what cannot be recorded as JSON."""
    try:
        data = _encode_sorted(value)
    except TypeError:
        # Sorted output knows only keys that are text already: write dates, numbers and ids as text first, then sort.
        data = _encode_sorted(msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_said))
    if too_deep(data):
        raise ValueError(TOO_DEEP)
    return data


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return what reads JSON as a type that `storable` returned."""
    return msgspec.json.Decoder(kind, dec_hook=_meant)


def storable(kind: Any, what: str) -> Any:
    """Return the type as the decoder wants it. Raises InvalidDeclaration where its values could not be read back."""
    if isinstance(kind, str):
        raise InvalidDeclaration(
            f"{what}: the annotation {kind!r} cannot be resolved. Define or import the type at the top of the module."
        )
    try:
        unknown = [part.cls for part in _parts_of(kind) if isinstance(part, msgspec.inspect.CustomType)]
    except TypeError as error:
        if (adapted := pydantic_types.adapted(kind)) is not None:
            return adapted
        raise InvalidDeclaration(f"{what}: {error}. Use a type whose JSON says which one it is.") from error
    except NameError as error:
        raise InvalidDeclaration(f"{what}: {error}. Define or import the type at the top of the module.") from error
    for custom in unknown:
        if custom is not object and not pydantic_types.is_model(custom) and not pydantic_types.is_adapted(custom):
            raise InvalidDeclaration(
                f"{what}: {getattr(custom, '__qualname__', custom)} cannot be stored and read back. Use a dataclass, a "
                "TypedDict, a msgspec Struct, a pydantic model or a builtin type."
            )
    return kind


def respells(kind: Any) -> bool:
    """Tell whether a type may hold equal values that are written differently: 3 where a float is declared."""
    spelled = (msgspec.inspect.FloatType, msgspec.inspect.CustomType)
    return any(isinstance(part, spelled) for part in _parts_of(kind))


def _parts_of(kind: Any) -> list[Any]:
    """Return msgspec's description of a type and of every type inside it. Raises TypeError where it has none."""
    found: list[Any] = [msgspec.inspect.type_info(kind)]
    seen = {id(found[0])}
    for info in found:  # grows as it goes
        for name in getattr(type(info), "__struct_fields__", ()):
            part = getattr(info, name)
            for inner in part if isinstance(part, tuple) else (part,):
                if isinstance(inner, msgspec.inspect.Type | msgspec.inspect.Field) and id(inner) not in seen:
                    seen.add(id(inner))
                    found.append(inner)
    return found


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type that `storable` returned."""
    shared: dict[str, Any] = {}

    def hook(part: Any) -> dict[str, Any]:
        if part is object:
            return {"description": "any value"}
        schema = pydantic_types.json_schema(part)
        shared.update(schema.pop("$defs", {}))
        return schema

    schema = msgspec.json.schema(kind, schema_hook=hook)
    if shared:
        schema["$defs"] = schema.get("$defs", {}) | shared
    return schema


def same(given: Any, kept: Any) -> bool:
    """Tell whether a value that was read back equals the one that was written, part by part."""
    with suppress(Exception):  # a user's own __eq__ may raise anything; then the parts decide
        if given == kept:
            return True
    if type(given) is not type(kept):
        return False
    if isinstance(given, dict):
        return given.keys() == kept.keys() and all(same(part, kept[key]) for key, part in given.items())
    if isinstance(given, list | tuple):
        return len(given) == len(kept) and all(map(same, given, kept))
    names = _parts(given)
    return names is not None and all(same(getattr(given, name, None), getattr(kept, name, None)) for name in names)


def _parts(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if is_dataclass(value):
        return tuple(field.name for field in fields(value))
    return None


def exact_types(kind: Any) -> frozenset[type[Any]]:
    """Return the exact types whose values a type allows and JSON keeps whole."""
    if kind is Any or kind is object:
        return _LOSSLESS
    if _is_union(kind):
        return frozenset(exact for part in get_args(kind) for exact in exact_types(part))
    return frozenset(exact for exact in _LOSSLESS if exact is kind)


def unchangeable(kind: Any) -> bool:
    """Tell whether no value of the type can be changed by who holds it."""
    if _is_union(kind):
        return all(map(unchangeable, get_args(kind)))
    if not isinstance(kind, type):
        return kind is None
    return (
        kind in {*_LOSSLESS, float, bytes}
        or issubclass(kind, Enum)
        or kind.__module__ in {"datetime", "decimal", "uuid"}
    )


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in {Union, UnionType}


class Codec(Generic[T]):
    """Writes values of one declared type as bytes, and reads them back.

    `kind` is the type as annotated; `what` names the place in error messages ("result of charge"). Raises
    InvalidDeclaration at once for a type whose values could not be read back. `lossless` says that every value of the
    type is what will be read, so that nobody need read it.
    """

    __slots__ = ("_decode", "_exact", "_respells", "_storable", "kind", "lossless", "what")

    def __init__(self, kind: Any, what: str) -> None:
        self.kind = NoneType if kind is None else kind
        self.what = what
        self._storable = storable(self.kind, what)
        self._exact = exact_types(self.kind)
        self.lossless = self._exact.issuperset(get_args(self.kind) if _is_union(self.kind) else (self.kind,))
        self._respells = respells(self._storable)
        self._decode = decoder(self._storable).decode

    def write(self, value: T) -> bytes:
        """Return the canonical bytes of a value. Raises InvalidValue unless they read back as an equal value."""
        if type(value) in self._exact:
            try:
                return _encode_sorted(value)
            except ValueError as error:  # a lone surrogate
                raise InvalidValue(self.what, str(error)) from error
        return self.round_trip(value)[0]

    def round_trip(self, value: T) -> tuple[bytes, T]:
        """Return the canonical bytes, and the value as it will be read from them. Raises InvalidValue."""
        if type(value) in self._exact:
            return self.write(value), value
        try:
            data = encode(value)
            kept = self._decode(data)
        except Exception as error:  # a user's own type may raise anything
            raise InvalidValue(self.what, reason(error)) from error
        if not same(value, kept):
            raise InvalidValue(self.what, f"{brief(value)} would be read back as {brief(kept)}")
        return (encode(kept) if self._respells else data), kept

    def read(self, data: bytes) -> T:
        """Return the value that bytes say. Raises InvalidValue where they do not fit the declared type."""
        try:
            value: T = self._decode(data)
        except Exception as error:  # a user's own type may raise anything
            raise InvalidValue(self.what, reason(error)) from error
        return value

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the declared type."""
        return json_schema(self._storable)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the schema, in hex: it changes when the declared type does."""
        return hashlib.sha256(_encode_sorted(self.schema())).hexdigest()


def reason(error: Exception) -> str:
    """Return what went wrong, in the words for a message."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    return str(error).rstrip(".") or type(error).__name__


def brief(value: Any) -> str:
    """Return a value as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= 200 else f"{shown[:199]}…"  # noqa: PLR2004
