"""What a function's signature says: its parameters, their types, its result.

Annotations may be text (`from __future__ import annotations`) and may name types that only the function around the
declaration knows; those are looked up where the decorator stands. What cannot be resolved stays text, and whoever needs
the type refuses it by name.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from milepost.errors import InvalidDeclaration


@dataclass(frozen=True)
class Parameter:
    """One parameter: `default` is `inspect.Parameter.empty` where there is none."""

    name: str
    kind: Any
    default: Any
    keyword_only: bool


@dataclass(frozen=True)
class Signature:
    """The parameters in order, and the result's type (Any where nothing is said); `bag` where it takes `**rest` too."""

    parameters: tuple[Parameter, ...]
    result: Any
    bag: bool = False

    def starts_with(self, kind: type) -> bool:
        """Tell whether the first parameter is annotated with our own type `kind` (Call, Tx, Run)."""
        if not self.parameters:
            return False
        first = self.parameters[0].kind
        if isinstance(first, str):
            return first.strip("\"'").rpartition(".")[2] == kind.__name__
        return first is kind


def read(fn: Callable[..., Any], what: str, around: Mapping[str, Any] | None = None, *, bag: bool = False) -> Signature:
    """Return what the signature says; `around` holds the local names where `fn` is declared.

    Raises InvalidDeclaration for `*args`, and without `bag` for `**kwargs`, which have no place in a record.
    """
    hints = _hints(fn, dict(around or {}))
    parameters = []
    bagged = False
    for parameter in _plain_signature(fn).parameters.values():
        if bag and parameter.kind is parameter.VAR_KEYWORD:
            bagged = True
            continue
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise InvalidDeclaration(
                f"{what}: {parameter} cannot be recorded. Name every parameter, or pass a list or a dict."
            )
        keyword_only = parameter.kind is parameter.KEYWORD_ONLY
        kind = hints.get(parameter.name, Any)
        parameters.append(Parameter(parameter.name, kind, parameter.default, keyword_only))
    return Signature(tuple(parameters), hints.get("return", Any), bagged)


def around_caller(depth: int) -> Mapping[str, Any]:
    """Return the local names of the code that called our caller, `depth` frames further out."""
    frame = inspect.currentframe()
    for _ in range(depth + 2):
        frame = frame and frame.f_back
    return frame.f_locals if frame else {}


def fingerprint(fn: Callable[..., Any]) -> str:
    """Return the sha256 of a function's source and signature, in hex. It warns of a change; it never decides."""
    try:
        source = inspect.getsource(fn)
    except (OSError, TypeError):
        source = ""
    names = ",".join(_plain_signature(fn).parameters)
    return hashlib.sha256(f"{fn.__qualname__}({names})\n{source}".encode()).hexdigest()


def _plain_signature(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415 - new in 3.14

        return inspect.signature(fn, annotation_format=annotationlib.Format.STRING)
    return inspect.signature(fn)


def _hints(fn: Callable[..., Any], around: dict[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn, localns=around or None, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        return {name: _resolved(fn, name, raw, around) for name, raw in _raw(fn).items()}


def _raw(fn: Callable[..., Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415 - new in 3.14

        return annotationlib.get_annotations(fn, format=annotationlib.Format.STRING)
    return dict(fn.__annotations__)


def _resolved(fn: Callable[..., Any], name: str, raw: Any, around: dict[str, Any]) -> Any:
    """Resolve one annotation by itself, so that one unknown name does not hide the others."""
    one = types.SimpleNamespace(__annotations__={name: raw})
    try:
        return typing.get_type_hints(one, globalns=fn.__globals__, localns=around or None, include_extras=True)[name]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return raw if isinstance(raw, str) else str(raw)
