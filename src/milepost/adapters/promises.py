"""A framework's own tools, declared by what they promise, by name: so that they are tools of an app.

One about which nothing is said is irreversible. A promise about a tool that is not there is refused at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from milepost.adapters.foreign import foreign
from milepost.core.duration import Duration
from milepost.definitions.tools import Tool
from milepost.errors import InvalidDeclaration

Promises: TypeAlias = Mapping[str, Mapping[str, Any]]


class Theirs(NamedTuple):
    """A tool as its framework has it; `timeout` is what the framework gives it, None where it gives it none."""

    name: str
    schema: Mapping[str, Any]
    description: str
    timeout: Duration | None = None


def declared(tools: Iterable[Theirs | Tool[..., Any]], promises: Promises) -> list[Tool[..., Any]]:
    """Return the tools for `App(tools=…)`, one for each name. Milepost's own may stand among them.

    `promises` says by name what `mp.tool` takes (`effect`, `key_ttl`, `scopes`, `approval`, `cost`, `once` …) and
    `reconcile`, the function that finds out. Raises InvalidDeclaration for a promise about a tool that is not there.
    """
    said, found = dict(promises), dict[str, Tool[..., Any]]()
    for tool in tools:
        if tool.name not in found:
            found[tool.name] = tool if isinstance(tool, Tool) else _declared(tool, dict(said.pop(tool.name, {})))
    if said:
        names = ", ".join(sorted(found)) or "none"
        raise InvalidDeclaration(
            f"promises about {', '.join(sorted(said))}, which is no tool here. There are: {names}."
        )
    return list(found.values())


def _declared(tool: Theirs, said: dict[str, Any]) -> Tool[..., Any]:
    reconcile = said.pop("reconcile", None)
    if tool.timeout is not None:
        said.setdefault("timeout", tool.timeout)
    made = foreign(tool.name, tool.schema, description=tool.description, **said)
    if reconcile is not None:
        made.reconcile(reconcile)
    return made
