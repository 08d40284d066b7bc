"""Arguments that a JSON schema declares, for tools that were declared elsewhere: in a framework, on a server.

They are given by name, and a name is whatever the schema says; it need be no Python identifier. What is left out stays
out, so that it is sent as it was given. The record holds the JSON object itself, its keys sorted: the digest is the
same in every process, and whatever the order in which schema or call name them.

What is checked: that the required ones are there, that each name is one of the schema's, and that the record reads back
what was given. Types are the business of whoever declared the schema. A name that the schema does not list is refused,
as a model may have made it up, unless the schema says otherwise: by `additionalProperties` (other than false), by
`patternProperties`, by having no `properties` at all, or by being put together from other schemas (`allOf` and so on).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from milepost.core.chunks import digest_of
from milepost.definitions.arguments import Arguments, Bound
from milepost.definitions.signatures import Signature
from milepost.definitions.values import Codec, encode, reason
from milepost.errors import InvalidArguments, InvalidDeclaration, InvalidValue

_object: Codec[dict[str, Any]] = Codec(dict[str, Any], "arguments")
_OPENING = ("patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "unevaluatedProperties")


class FreeBound(Bound):
    """The arguments of one call, by name."""

    __slots__ = ()

    def value(self, name: str) -> Any:
        """Return one argument, None where it was left out."""
        return self.named().get(name)

    def named(self) -> dict[str, Any]:
        """Return what was given, by name, in values of its own."""
        return _object.read(self.data)

    def call(self, fn: Callable[..., Any], *leading: Any) -> Any:
        """Call a function with `leading` and, by name, what was given."""
        return fn(*leading, **self.named())


class FreeArguments(Arguments):
    """The parameters that a JSON schema names. Raises InvalidDeclaration for what is no schema of an object."""

    bag = True

    def __init__(self, tool: str, schema: Mapping[str, Any], volatile: Collection[str] = ()) -> None:
        given = _checked(tool, schema)
        root = _root(given)
        listed = root.get("properties") or {}
        self.tool = tool
        self.required = tuple(sorted(root.get("required") or ()))
        self.names = tuple(sorted({*listed, *self.required}))
        self.positional: tuple[str, ...] = ()
        self.keyword_only = self.names
        composed = any(word in root for word in _OPENING)
        self.open = composed or root.get("additionalProperties", "properties" not in root) is not False
        self._schema = given
        self._volatile = frozenset(volatile)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema, as it was given."""
        return copy.deepcopy(self._schema)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Return the arguments of a call. Raises InvalidArguments."""
        if args:
            raise InvalidArguments(self.tool, "it takes its arguments by name")
        return self._bound(dict(kwargs))

    def read(self, data: bytes) -> Bound:
        """Return the arguments that recorded bytes say. Raises InvalidArguments where they no longer fit."""
        return self._bound(self.decoded(data))

    def from_json(self, arguments: str | Mapping[str, Any]) -> Bound:
        """Return the arguments that a model made, as JSON text or as a parsed object. Raises InvalidArguments."""
        if isinstance(arguments, str):  # models send nothing at all for a tool without parameters
            return self._bound(self.decoded(arguments.strip() or "{}"))
        return self._bound(dict(arguments))

    def decoded(self, data: bytes | str) -> dict[str, Any]:
        """Return the object that JSON says. Raises InvalidArguments."""
        try:
            return _object.read(data if isinstance(data, bytes) else data.encode())
        except (InvalidValue, UnicodeEncodeError) as error:
            raise InvalidArguments(self.tool, reason(error)) from error

    def must_fit(self, signature: Signature, tool: str, what: str) -> None:
        """Refuse a function that cannot be called with these by name: one that is left out must have a default."""
        taken = {parameter.name: parameter.default is not inspect.Parameter.empty for parameter in signature.parameters}
        unknown = sorted(taken.keys() - {*self.names})
        needed = sorted(name for name, default in taken.items() if not default and name not in self.required)
        missing = sorted({*self.names} - taken.keys())
        for wrong, why in (
            (unknown, f"takes {', '.join(unknown)}, which the schema does not name"),
            (needed, f"must give a default to {', '.join(needed)}, which a call may leave out"),
            (missing and not signature.bag, f"must take {', '.join(missing)}, or **rest"),
            (self.open and not signature.bag, "must take **rest: the schema allows more than it lists"),
        ):
            if wrong:
                raise InvalidDeclaration(f"{what} of {tool} {why}.")

    def _bound(self, given: dict[str, Any]) -> Bound:
        missing = [name for name in self.required if name not in given]
        if missing:
            raise InvalidArguments(self.tool, f"it needs {', '.join(missing)}")
        unknown = sorted(str(name) for name in given.keys() - {*self.names})
        if unknown and not self.open:
            known = ", ".join(self.names) or "none"
            raise InvalidArguments(self.tool, f"it has no argument {', '.join(unknown)}; it takes {known}")
        try:
            data = _object.write(given)
            said = {name: value for name, value in given.items() if name not in self._volatile}
            digest = digest_of(encode(said) if self._volatile else data)
        except InvalidValue as error:
            raise InvalidArguments(self.tool, error.why) from error
        return FreeBound(self, given, data, digest)


def _checked(tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema in values of its own. Raises InvalidDeclaration."""
    try:
        encode(dict(schema))
        given: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(schema)))  # in the order it has
    except (TypeError, ValueError) as error:
        raise InvalidDeclaration(f"the schema of tool {tool} is no JSON: {error}.") from error
    root = _root(given)
    listed, required = root.get("properties", {}), root.get("required", [])
    fits = root.get("type", "object") == "object" and isinstance(listed or {}, dict)
    if not fits or not isinstance(required or [], list):
        raise InvalidDeclaration(f"the schema of tool {tool} is not that of an object: its arguments have no names.")
    return given


def _root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema itself, or the definition within it that it points to."""
    points_to = schema.get("$ref")
    if isinstance(points_to, str) and points_to.startswith("#/"):
        found: Any = schema
        for part in points_to[2:].split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return found
    return schema
