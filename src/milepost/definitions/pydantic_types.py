"""pydantic models, recognised by what they can do: pydantic is a user's choice and is never imported here.

msgspec reads and writes everything else. A model inside any other type goes through two hooks: it is dumped in JSON
mode and validated from JSON, by alias and by name, as pydantic itself would. A union that msgspec cannot tell apart
(two models, a model or a str) is left to pydantic's own adapter, which the process has loaded already if it has a
model.
"""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints, is_typeddict

import msgspec


def is_model(kind: object) -> bool:
    """Tell whether a type is a pydantic model."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")


def dump(model: Any) -> Any:
    """Return what a model says in JSON; its sets in a fixed order, because theirs differs from process to process."""
    dumped = model.model_dump(mode="json", round_trip=True)
    kind: Any = type(model)
    return _sets_ordered(model, dumped) if _has_sets(kind) else dumped


def load(kind: Any, data: bytes) -> Any:
    """Return what the JSON says, for a model or an adapted union. Raises ValueError where it does not fit."""
    validate = kind.adapter.validate_json if is_adapted(kind) else kind.model_validate_json
    try:
        return validate(data, by_alias=True, by_name=True)
    except TypeError:  # pydantic before 2.11 knows no by_name
        return validate(data)


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a model or of an adapted union."""
    schema: dict[str, Any] = kind.adapter.json_schema() if is_adapted(kind) else kind.model_json_schema()
    return schema


class _AnythingFits(type):
    """The type of an adapted union: pydantic has validated the value, msgspec's own check would know less."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def adapted(kind: Any) -> Any | None:
    """Return a type that msgspec hands to pydantic whole, or None where no pydantic model is in `kind`."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not _contains_model(kind, set()):
        return None
    return _AnythingFits("Adapted", (), {"adapter": pydantic.TypeAdapter(kind)})


def is_adapted(kind: object) -> bool:
    """Tell whether a type was made by `adapted`."""
    return isinstance(kind, _AnythingFits)


def _contains_model(kind: Any, seen: set[int]) -> bool:
    if id(kind) in seen:
        return False
    seen.add(id(kind))
    if is_model(kind):
        return True
    parts = [*get_args(kind)]
    if is_dataclass(kind) or is_typeddict(kind):
        parts += get_type_hints(kind).values()
    return any(_contains_model(part, seen) for part in parts)


@cache
def _has_sets(kind: Any) -> bool:
    return b'"uniqueItems":true' in msgspec.json.encode(kind.model_json_schema(mode="serialization"))


def _sets_ordered(value: Any, dumped: Any) -> Any:
    if isinstance(dumped, dict):
        if isinstance(value, dict):
            pairs = zip(value.values(), dumped.items(), strict=True)
            return {name: _sets_ordered(part, said) for part, (name, said) in pairs}
        return {name: _sets_ordered(getattr(value, name, None), said) for name, said in dumped.items()}
    if isinstance(dumped, list):
        if isinstance(value, set | frozenset):
            return sorted(dumped, key=msgspec.json.encode)
        if isinstance(value, list | tuple):
            return [_sets_ordered(part, said) for part, said in zip(value, dumped, strict=True)]
    return dumped
