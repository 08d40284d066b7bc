"""Conditions of rules: the `when` of a policy file, in the Common Expression Language (CEL).

A condition is compiled once. What it is about (`args`, `authority`, `budget`, `provenance`) is asked for once for a
call, and converted once for the library, where a condition needs it: plain comparisons are answered without (see
comparisons.py). A condition says yes or no; all else, what a panic of the library raises included, is the reason why it
cannot be answered. The library is in the extra `policy`, and is loaded only where a file has a condition: it takes
longer to import than the rest of Milepost.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from milepost.core.policy import VIEWS, Request
from milepost.definitions import comparisons
from milepost.errors import MilepostError

if TYPE_CHECKING:
    from collections.abc import Iterable

LENGTH_MAX = 4_000  # far below where the library's own parser runs out of stack, which ends the process
FUNCTIONS = frozenset({
    "bytes", "contains", "double", "duration", "dyn", "endsWith", "getDate", "getDayOfMonth", "getDayOfWeek",
    "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds", "int",
    "matches", "size", "startsWith", "string", "timestamp", "type", "uint",
})  # fmt: skip
TYPES = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"})
_NAME = re.compile(r"[A-Za-z_]\w*")
_BOUND = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*([A-Za-z_]\w*)\s*,")


class Refused(Exception):
    """A condition that cannot be compiled, or that could never be answered; the text says why."""


class Condition:
    """One compiled condition. `names` are those of VIEWS that it is about; `plain` is all of it as comparisons."""

    __slots__ = ("_program", "names", "plain", "source")

    def __init__(self, source: str) -> None:
        if len(source) > LENGTH_MAX:
            msg = f"it has {len(source)} characters, and {LENGTH_MAX} is the most"
            raise Refused(msg)
        try:
            self._program = _library().compile(source)
        except BaseException as error:
            raise Refused(_brief(_expected(error))) from error
        self.source = source
        known = {*VIEWS, *TYPES, *_BOUND.findall(source)}
        unknown = sorted(set(self._program.variables()) - known)
        if unknown:
            msg = f"{', '.join(unknown)} is none of {', '.join(VIEWS)}"
            raise Refused(msg)
        functions = {name for name in self._program.functions() if _NAME.fullmatch(name)} - FUNCTIONS
        if functions:
            msg = f"there is no function {', '.join(sorted(functions))} (there are {', '.join(sorted(FUNCTIONS))})"
            raise Refused(msg)
        self.names = frozenset(VIEWS).intersection(self._program.variables())
        self.plain = comparisons.read(source)

    def holds(self, about: About) -> bool | str:
        """Return whether it holds, or why that cannot be said."""
        if about.wrong:
            return about.wrong
        if self.plain is not None:
            plainly = self.plain.answer(about.values)
            if plainly is not None:
                return plainly
        context = about.context
        if about.wrong:
            return about.wrong
        try:
            answer = self._program.execute(context)
        except BaseException as error:  # noqa: BLE001  a panic of the library is no Exception
            return _meaning(_expected(error))
        return answer if isinstance(answer, bool) else f"it gives {type(answer).__name__}, not true or false"


class About:
    """What the conditions of one call are about, asked for once. `wrong` says why that could not be done."""

    __slots__ = ("_context", "values", "wrong")

    def __init__(self, request: Request, names: Iterable[str]) -> None:
        self._context: Any = None
        self.values: dict[str, Any] = {}
        self.wrong = ""
        try:
            for name in names:
                self.values[name] = request.views[name]()
        except BaseException as error:  # noqa: BLE001  a view runs what a user wrote
            self.wrong = _brief(_expected(error))

    @property
    def context(self) -> Any:
        """All of it as the library takes it; where it cannot be converted, None, and `wrong` says why."""
        if self._context is None:
            try:
                self._context = _library().Context(self.values)
            except BaseException as error:  # noqa: BLE001  a panic of the library is no Exception
                self.wrong = _brief(_expected(error))
        return self._context


@cache
def _library() -> Any:
    """Return the CEL library. Raises Refused where it is not installed."""
    try:
        return import_module("cel")
    except ImportError as error:
        msg = "conditions need the extra: pip install 'milepost[policy]'"
        raise Refused(msg) from error


def _expected(error: BaseException) -> BaseException:
    """Return an error of the library or of a view; what asks this process to end is raised again."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
        raise error
    return error


def _brief(error: BaseException) -> str:
    text = str(error) if isinstance(error, Refused | MilepostError | ValueError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split()).partition(". ")[0][:300]


def _meaning(error: BaseException) -> str:
    """Return an error in words of the file: a missing field above all."""
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]}" if error.args else "a field is missing"
    return _brief(error)
