"""A call's arguments: checked, canonical, digested, and handed to functions.

From a tool's signature a msgspec struct is made, one field a parameter. A call builds the struct, writes it (defaults
included, so that a changed default does not change a recorded call), reads it back and compares: what the function gets
is what the record says. The digest is what identity rests on; volatile arguments are in the bytes and not in the
digest.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import astuple

from milepost.definitions.signatures import Parameter, Signature
from milepost.definitions.values import (
    Codec,
    brief,
    decoder,
    encode,
    json_schema,
    reason,
    respells,
    same,
    storable,
    unchangeable,
)
from milepost.errors import InvalidArguments, InvalidDeclaration, InvalidValue

_ANYTHING: Codec[Any] = Codec(Any, "arguments")


class Bound:
    """The arguments of one call: `data` is their canonical JSON, `digest` the sha256 in hex that identifies them."""

    __slots__ = ("_arguments", "_kept", "data", "digest")

    def __init__(self, arguments: Arguments, kept: Any, data: bytes, digest: str) -> None:
        self._arguments = arguments
        self._kept = kept
        self.data = data
        self.digest = digest

    def value(self, name: str) -> Any:
        """Return one argument by its parameter's name."""
        return getattr(self._fresh(), name)

    def plain(self, name: str) -> Any:
        """Return one argument that JSON writes as it is: a text, an int or a float; None for any other."""
        arguments = self._arguments
        if arguments.bag or name not in arguments.names:
            return None
        found = getattr(self._kept, name)
        return found if type(found) in {int, float, str} else None

    def named(self) -> dict[str, Any]:
        """Return all of them by name, in values of their own."""
        fresh = self._fresh()
        return {name: getattr(fresh, name) for name in self._arguments.names}

    def call(self, fn: Callable[..., Any], *leading: Any) -> Any:
        """Call a function with `leading` and then these arguments, and return what it returns.

        Each call gets values of its own, so that one attempt cannot change what the next one sends.
        """
        arguments = self._arguments
        kept = self._fresh()
        if not arguments.keyword_only:
            return fn(*leading, *astuple(kept))
        given = [getattr(kept, name) for name in arguments.positional]
        return fn(*leading, *given, **{name: getattr(kept, name) for name in arguments.keyword_only})

    def _fresh(self) -> Any:
        return self._kept if self._arguments.unchangeable else self._arguments.decoded(self.data)


class Arguments:
    """The parameters of one tool, and the ways to fill them. Raises InvalidDeclaration for what cannot be recorded."""

    bag = False  # whether functions beside the tool may take `**rest`

    def __init__(self, tool: str, parameters: Collection[Parameter], volatile: Collection[str] = ()) -> None:
        self.tool = tool
        self.names = tuple(parameter.name for parameter in parameters)
        self.positional = tuple(parameter.name for parameter in parameters if not parameter.keyword_only)
        self.keyword_only = tuple(parameter.name for parameter in parameters if parameter.keyword_only)
        self.required = tuple(
            parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty
        )
        self.unchangeable = all(unchangeable(parameter.kind) for parameter in parameters)
        self._struct = _struct(tool, parameters)
        self._respells = respells(self._struct)
        self._decode = decoder(self._struct).decode
        self._digested = tuple(name for name in self.names if name not in volatile) if volatile else None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Return the arguments of a call. Raises InvalidArguments where they do not fit or cannot be read back."""
        try:
            given = self._struct(*args, **kwargs)
            data = encode(given)
            kept = self._decode(data)
        except Exception as error:  # a user's own type may raise anything
            raise InvalidArguments(self.tool, reason(error)) from error
        if given != kept and not same(given, kept):
            raise InvalidArguments(self.tool, self._difference(given, kept))
        if self._respells:
            data = encode(kept)
        return Bound(self, kept, data, self._digest(kept, data))

    def read(self, data: bytes) -> Bound:
        """Return the arguments that recorded bytes say. Raises InvalidArguments where they no longer fit."""
        kept = self.decoded(data)
        return Bound(self, kept, data, self._digest(kept, data))

    def from_json(self, arguments: str | Mapping[str, Any]) -> Bound:
        """Return the arguments that a model made, as JSON text or as a parsed object. Raises InvalidArguments."""
        if isinstance(arguments, str):
            said = arguments.strip() or "{}"  # models send nothing at all for a tool without parameters
            kept = self.decoded(said)
        else:
            try:
                kept = self.decoded(_ANYTHING.write(dict(arguments)))
            except InvalidValue as error:
                raise InvalidArguments(self.tool, error.why) from error
        return self.bind((), {name: getattr(kept, name) for name in self.names})

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, as models are given it: one object, with its definitions inside."""
        schema = json_schema(self._struct)
        definitions = schema.pop("$defs", {})
        root: dict[str, Any] = definitions.pop(schema.pop("$ref", "").rpartition("/")[2], schema)
        root.pop("title", None)
        if definitions:
            root["$defs"] = definitions
        return root

    def decoded(self, data: bytes | str) -> Any:
        """Return the struct that JSON says. Raises InvalidArguments."""
        try:
            return self._decode(data)
        except Exception as error:  # a user's own type may raise anything
            raise InvalidArguments(self.tool, reason(error)) from error

    def _digest(self, kept: Any, data: bytes) -> str:
        if self._digested is not None:
            data = encode({name: getattr(kept, name) for name in self._digested})
        return sha256(data).hexdigest()

    def must_fit(self, signature: Signature, tool: str, what: str) -> None:
        """Refuse a function that cannot be called as the tool is, or that has its parameters in another order."""
        mine = [parameter.name for parameter in signature.parameters if not parameter.keyword_only]
        named = {parameter.name for parameter in signature.parameters if parameter.keyword_only}
        ours = self.positional
        moved = [name for place, name in enumerate(mine) if name in ours and ours.index(name) != place]
        if len(mine) != len(ours) or moved or named != set(self.keyword_only):
            raise InvalidDeclaration(f"{what} of {tool} must take its parameters in order: ({', '.join(self.names)}).")

    def _difference(self, given: Any, kept: Any) -> str:
        for name in self.names:
            if not same(getattr(given, name), getattr(kept, name)):
                return f"{name}={brief(getattr(given, name))} would be read back as {brief(getattr(kept, name))}"
        return "they would not be read back as they are"


def _struct(tool: str, parameters: Collection[Parameter]) -> Any:
    by_position = [_field(tool, parameter) for parameter in parameters if not parameter.keyword_only]
    by_keyword = [_field(tool, parameter) for parameter in parameters if parameter.keyword_only]
    bases = (msgspec.defstruct("Keywords", by_keyword, kw_only=True),) if by_keyword else None
    return msgspec.defstruct("Arguments", by_position, bases=bases, forbid_unknown_fields=True)


def _field(tool: str, parameter: Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:
    what = f"parameter {parameter.name} of {tool}"
    kind = storable(parameter.kind, what)
    default = parameter.default
    if default is inspect.Parameter.empty:
        return (parameter.name, kind)
    try:
        Codec(parameter.kind, what).write(default)
    except InvalidValue as error:
        raise InvalidDeclaration(
            f"the default of {what} does not fit its type: {error.why}. Correct one of them."
        ) from error
    if unchangeable(type(default)):
        return (parameter.name, kind, default)
    return (parameter.name, kind, msgspec.field(default_factory=lambda: copy.deepcopy(default)))
