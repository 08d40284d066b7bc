"""Conditions that are nothing but comparisons of a field with a constant: they are answered without the CEL library.

    args.cents <= 5000 && budget.left.usd >= 1.0

For such a call the library converts everything that the condition could name, which takes ten times as long as the
answer. So what is of this form is read here a second time, and answered here where every field is there and is of
exactly the constant's type: then there is only one answer. In every other case (a field that is missing, null or of
another type, an integer beyond 64 bits) nothing is answered, and the library is asked as ever, with its own errors. The
library has compiled every condition first: what it refuses never comes here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_TERM = re.compile(
    r"""\s*([a-z]+(?:\.[A-Za-z_][A-Za-z0-9_]*)+)          # a field of a view
        \s*(==|!=|<=|>=|<|>)\s*
        (-?[0-9]+\.[0-9]+|-?[0-9]+|"[A-Za-z0-9 _.:@/-]*")\s*  # a constant that is written plainly
    """,
    re.VERBOSE,
)
_INTEGERS = range(-(2**63), 2**63)


class Comparison(NamedTuple):
    """One field and what it is compared with."""

    path: tuple[str, ...]
    compare: Callable[[Any, Any], bool]
    constant: float | str


class Comparisons(NamedTuple):
    """Several of them: `every` says whether all of them must hold, or one."""

    parts: tuple[Comparison, ...]
    every: bool

    def answer(self, values: Mapping[str, Any]) -> bool | None:
        """Return whether they hold of these values; None where a field is not plainly there."""

        def find(path: tuple[str, ...]) -> Any:
            found: Any = values
            for name in path:
                if type(found) is not dict or name not in found:
                    return None
                found = found[name]
            return found

        return self.hold(find)

    def hold(self, find: Callable[[tuple[str, ...]], Any]) -> bool | None:
        """Return whether they hold of what is found at their paths; None where a field is not plainly there."""
        every = held = self.every
        for path, compare, constant in self.parts:
            found = find(path)
            if type(found) is not type(constant) or (type(found) is int and found not in _INTEGERS):
                return None
            if compare(found, constant) is not every:
                held = not every
        return held


def read(source: str) -> Comparisons | None:
    """Return a condition as comparisons, None where it is anything else."""
    every = "||" not in source
    parts = [_comparison(part) for part in source.split("&&" if every else "||")]
    known = [part for part in parts if part is not None]
    return Comparisons(tuple(known), every) if len(known) == len(parts) else None


def _comparison(text: str) -> Comparison | None:
    found = _TERM.fullmatch(text)
    if found is None:
        return None
    path, sign, written = found.groups()
    constant: float | str
    if written.startswith('"'):
        constant = written[1:-1]
    else:
        constant = float(written) if "." in written else int(written)
        if type(constant) is int and constant not in _INTEGERS:
            return None
    if type(constant) is str and sign not in {"==", "!="}:
        return None
    return Comparison(tuple(path.split(".")), _OPERATORS[sign], constant)
