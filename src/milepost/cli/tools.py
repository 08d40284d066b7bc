"""`milepost tools`: what an App's tools declare, and which workflows list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.options import app_option, json_option
from milepost.cli.printing import say, say_json, span, table
from milepost.cli.settings import Settings

if TYPE_CHECKING:
    from milepost.app import App
    from milepost.definitions.tools import Tool

DEPENDS = "depends on the arguments"


@click.command()
@app_option
@json_option
def tools(app: str | None, *, as_json: bool) -> None:
    """List what the App's tools declare: class, scopes, approval, cost, and what is known of a lost outcome."""
    declared = declared_by(Settings(None, app).app)
    if as_json:
        say_json([_json(tool, listed) for tool, listed in declared])
        return
    if not declared:
        say("This App declares no tool.")
        return
    columns = (
        "tool",
        "class",
        "risk",
        "scopes",
        "approval",
        "cost",
        "if its outcome is lost",
        "undone by",
        "listed by",
    )
    table(columns, [_row(tool, listed) for tool, listed in declared])


def declared_by(app: App) -> list[tuple[Tool[..., Any], list[str]]]:
    """Return every tool of an App, by name, with the workflows that list it; attached runs are the empty name."""
    found: dict[int, tuple[Tool[..., Any], list[str]]] = {}
    for tool in app.tools.values():
        found.setdefault(id(tool), (tool, []))[1].append("")
    for workflow in app.workflows.values():
        for tool in workflow.tools.values():
            found.setdefault(id(tool), (tool, []))[1].append(workflow.name)
    return sorted(found.values(), key=lambda one: (one[0].name, one[0].version))


def _json(tool: Tool[..., Any], listed: list[str]) -> dict[str, Any]:
    return {
        "tool": tool.name,
        "version": tool.version,
        "compatible_with": sorted(tool.compatible_with),
        "class": tool.effect,
        "risk": tool.risk,
        "scopes": sorted(tool.scopes),
        "approval": DEPENDS if callable(tool.approval) else bool(tool.approval),
        "cost": _cost(tool),
        "timeout_ms": tool.timeout_ms,
        "key_ttl_ms": tool.key_ttl_ms,
        "visible_within_ms": tool.visible_ms,
        "reconcile": tool.reconciler is not None,
        "compensate": None if tool.compensation is None else tool.compensation.name,
        "once": list(tool.once),
        "listed_by": listed,
    }


def _row(tool: Tool[..., Any], listed: list[str]) -> tuple[str, ...]:
    approval = DEPENDS if callable(tool.approval) else "asks" if tool.approval else ""
    cost = _cost(tool)
    said = cost if isinstance(cost, str) else ", ".join(f"{unit} {amount}" for unit, amount in cost.items())
    return (
        f"{tool.name} {tool.version}",
        tool.effect,
        tool.risk,
        ", ".join(sorted(tool.scopes)),
        approval,
        said,
        _doubt(tool),
        "" if tool.compensation is None else tool.compensation.name,
        ", ".join(name or "(attached)" for name in listed),
    )


def _cost(tool: Tool[..., Any]) -> dict[str, str] | str:
    fixed = tool.fixed_cost
    return {unit: f"{amount:f}" for unit, amount in fixed.items()} if fixed or not tool.costed else DEPENDS


def _doubt(tool: Tool[..., Any]) -> str:
    """Return what the tool declares for the moment at which nobody knows what it did."""
    said = []
    if tool.key_ttl_ms is not None:
        said.append(f"key for {span(tool.key_ttl_ms)}")
    if tool.reconciler is not None:
        said.append("asked")
    if tool.visible_ms is not None:
        said.append(f"shows within {span(tool.visible_ms)}")
    if not said and tool.effect not in {"read", "transactional", "absolute"}:
        said.append("a person")
    return ", ".join(said)
