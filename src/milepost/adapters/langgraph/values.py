"""How LangGraph's values are stored: JSON that names what a value is, and never a class to be imported.

What JSON has stands as it is. Anything else is an object `{"$": kind, "v": …}`, where the kind is one of a closed list:
Python's own plain types, LangChain's messages, the few objects that LangGraph puts into checkpoints, and the classes
that the user declared by `types=`. A value of another class is refused when it is saved, with the place where it
stands, and a kind that nobody declared when it is read; nothing is pickled, imported, or given back as something else.

The bytes depend on the value alone, so that equal parts of two checkpoints are stored once. As in LangGraph's own
savers, an exception (what a failed task notes of itself) comes back as the text of it.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath, PurePosixPath
from typing import Any
from uuid import UUID

import msgspec
from langchain_core import messages
from langchain_core.documents import Document
from langchain_core.messages.base import TextAccessor
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel

from milepost.errors import InvalidDeclaration, MilepostError

FORMAT = 1
TYPE = "milepost"
DEEPEST = 100
_WORDS = 2**63

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class UnknownType(MilepostError):
    """A value in a graph's state has a type that was not declared, or cannot be stored so that it can be read back."""

    code = "unknown_type"

    def __init__(self, kind: str, where: str, why: str = "") -> None:
        said = why or "it is none that a checkpoint may hold"
        super().__init__(
            f"{where or 'the value'} is a {kind}: {said}. Keep plain data in the state, or declare the class: "
            "Checkpointer(…, types=[…]). Nothing was saved, or given back, in its stead."
        )
        self.kind = kind
        self.where = where


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value: what of it is stored, and how it is made again from that."""

    name: str
    parts: Callable[[Any], Any]
    again: Callable[[Any], Any]
    declared: bool = False


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _record(name: str, cls: type, *, declared: bool = False) -> Kind:
    """A dataclass, by its fields."""
    return Kind(name, _fields, lambda parts: cls(**parts), declared)


def _set_parts(value: Any) -> list[Any]:
    return sorted(value, key=repr)


PLAIN: dict[type, Kind] = {
    tuple: Kind("tuple", list, tuple),
    set: Kind("set", _set_parts, set),
    frozenset: Kind("frozenset", _set_parts, frozenset),
    deque: Kind("deque", lambda v: [v.maxlen, list(v)], lambda p: deque(p[1], p[0])),
    bytes: Kind("bytes", lambda v: base64.b64encode(v).decode(), base64.b64decode),
    bytearray: Kind("bytearray", lambda v: base64.b64encode(v).decode(), lambda p: bytearray(base64.b64decode(p))),
    datetime: Kind("datetime", datetime.isoformat, datetime.fromisoformat),
    date: Kind("date", date.isoformat, date.fromisoformat),
    time: Kind("time", time.isoformat, time.fromisoformat),
    timedelta: Kind("timedelta", lambda v: [v.days, v.seconds, v.microseconds], lambda p: timedelta(*p)),
    UUID: Kind("uuid", str, UUID),
    Decimal: Kind("decimal", str, Decimal),
    PurePosixPath: Kind("path", str, PurePosixPath),
    complex: Kind("complex", lambda v: [v.real, v.imag], lambda p: complex(*p)),
}
# What comes back as what it is made of.
AS: dict[type, type] = {TextAccessor: str, OrderedDict: dict, defaultdict: dict}
OF_LANGGRAPH: dict[type, Kind] = {
    _DeltaSnapshot: Kind("delta", lambda v: v.value, _DeltaSnapshot),
    Send: Kind("send", lambda v: [v.node, v.arg, v.timeout], lambda p: Send(p[0], p[1], timeout=p[2])),
    Interrupt: Kind(
        "interrupt",
        lambda v: [v.value, v.id, v.response_schema],
        lambda p: Interrupt(p[0], p[1], response_schema=p[2]),
    ),
    Item: Kind("item", lambda v: {name: getattr(v, name) for name in Item.__slots__}, lambda p: Item(**p)),
    **{cls: _record(cls.__name__.lower(), cls) for cls in (Command, Overwrite, TimeoutPolicy)},
}


def _model(cls: type[BaseModel], *, declared: bool = False) -> Kind:
    def parts(value: BaseModel) -> dict[str, Any]:
        return {name: getattr(value, name) for name in cls.model_fields} | (value.model_extra or {})

    def again(given: dict[str, Any]) -> Any:
        return cls.model_validate(given, by_alias=False, by_name=True)

    return Kind(cls.__name__, parts, again, declared)


OF_LANGCHAIN: dict[type, Kind] = {
    cls: _model(cls)
    for cls in (
        *(
            getattr(messages, name + chunk)
            for name in ("HumanMessage", "AIMessage", "SystemMessage", "ChatMessage", "ToolMessage", "FunctionMessage")
            for chunk in ("", "Chunk")
        ),
        messages.RemoveMessage,
        Document,
    )
}


def _declared(name: str, cls: type) -> Kind:
    if issubclass(cls, BaseModel):
        return dataclasses.replace(_model(cls, declared=True), name=name)
    if dataclasses.is_dataclass(cls):
        return _record(name, cls, declared=True)
    if issubclass(cls, Enum):
        return Kind(name, lambda value: value.value, cls, declared=True)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return Kind(name, list, lambda parts: cls(*parts), declared=True)
    why = f"types: {cls.__name__} is no pydantic model, dataclass, named tuple or enumeration"
    raise InvalidDeclaration(why)


class Values:
    """Turns values into bytes and back. It is a LangGraph serializer, too.

    `types` are the classes of the user's own that a state may hold: each is stored under its name, or, in a mapping,
    under the name that is given, which must then stay what it is. Raises InvalidDeclaration for a class that is no
    pydantic model, dataclass, named tuple or enumeration, and for a name that stands twice.
    """

    def __init__(self, types: Sequence[type] | Mapping[str, type] = ()) -> None:
        named = types.items() if isinstance(types, Mapping) else [(cls.__name__, cls) for cls in types]
        self._kinds = {**PLAIN, **OF_LANGGRAPH, **OF_LANGCHAIN}
        self._names = {kind.name: kind for kind in self._kinds.values()}
        for name, cls in named:
            if name in self._names or cls in self._kinds or name in {"map", "float", "int"}:
                raise InvalidDeclaration(f"types: {name} is declared twice, or a name of Milepost's own")
            self._kinds[cls] = self._names[name] = _declared(name, cls)

    # ------------------------------------------------------------ what LangGraph calls

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return what `write` does, with the type of the bytes. Raises UnknownType."""
        return TYPE, self.write(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return a value again. Raises UnknownType, also for bytes of another serializer."""
        kind, stored = data
        if kind != TYPE:
            raise UnknownType(kind, "what is stored", "it was written by another serializer")
        return self.read(stored)

    # ------------------------------------------------------------ bytes

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value. Raises UnknownType, with the place of what cannot be stored."""
        try:
            return _encode(self._out(value, 0))
        except _Refused as refused:
            raise UnknownType(refused.kind, refused.where, refused.why) from refused.__cause__
        except UnicodeEncodeError as error:
            raise UnknownType("str", "", "half a character of UTF-16, which is no text") from error

    def read(self, stored: bytes) -> Any:
        """Return the value of bytes. Raises UnknownType for a kind that nobody declared."""
        try:
            return self._in(_decode(stored))
        except (msgspec.DecodeError, RecursionError, KeyError) as error:
            raise UnknownType("value", "what is stored", f"it cannot be read ({error})") from error

    def _out(self, value: Any, depth: int) -> Any:
        cls = type(value)
        if value is None or cls is str or cls is bool:
            return value
        if cls is int:
            return value if -_WORDS <= value < _WORDS else {"$": "int", "v": str(value)}
        if cls is float:
            return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
        if depth > DEEPEST:
            raise _Refused(cls.__name__, "it is nested too deeply")
        if cls is list:
            return [self._part(part, depth, position) for position, part in enumerate(value)]
        if cls is dict:
            return self._dict(value, depth)
        if cls in AS:
            return self._out(AS[cls](value), depth)
        return self._of_kind(value, cls, depth)

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if all(type(key) is str for key in value) and "$" not in value:
            return {key: self._part(part, depth, key) for key, part in value.items()}
        pairs = [[self._out(key, depth + 1), self._part(part, depth, key)] for key, part in value.items()]
        return {"$": "map", "v": pairs}

    def _of_kind(self, value: Any, cls: type, depth: int) -> Any:
        if isinstance(value, BaseException):
            return repr(value)
        kind = self._kinds.get(cls)
        if kind is None and isinstance(value, PurePath):
            kind = self._kinds[PurePosixPath]
        if kind is None:
            raise _Refused(cls.__name__)
        stored = self._part(kind.parts(value), depth, "")
        if kind.declared:
            try:
                kind.again(self._in(stored))
            except Exception as error:
                raise _Refused(cls.__name__, f"it cannot be made again from what is stored ({error})") from error
        return {"$": kind.name, "v": stored}

    def _part(self, value: Any, depth: int, place: object) -> Any:
        try:
            return self._out(value, depth + 1)
        except _Refused as refused:
            refused.within(place)
            raise

    def _in(self, stored: Any) -> Any:
        if type(stored) is list:
            return [self._in(part) for part in stored]
        if type(stored) is not dict:
            return stored
        name = stored.get("$")
        if name is None:
            return {key: self._in(part) for key, part in stored.items()}
        if name == "map":
            return {self._in(key): self._in(part) for key, part in stored["v"]}
        if name in {"int", "float"}:
            return int(stored["v"]) if name == "int" else float(stored["v"])
        kind = self._names.get(name)
        if kind is None:
            raise UnknownType(str(name), "what is stored", "no class of this name is declared")
        try:
            return kind.again(self._in(stored["v"]))
        except MilepostError:
            raise
        except Exception as error:
            raise UnknownType(kind.name, "what is stored", f"it cannot be made again ({error})") from error


class _Refused(Exception):
    """A value cannot be stored; on its way up it learns where it stands."""

    def __init__(self, kind: str, why: str = "") -> None:
        super().__init__(kind)
        self.kind = kind
        self.why = why
        self.where = ""

    def within(self, place: object) -> None:
        if place == "":
            return
        step = f"[{place}]" if isinstance(place, int) else str(place)
        rest = self.where if not self.where or self.where.startswith("[") else f".{self.where}"
        self.where = f"{step}{rest}"
