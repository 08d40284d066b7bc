"""What `milepost gateway --list` shows: each server's tools, what is declared, who may use them, what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.adapters.mcp.gateway.config import Config
    from milepost.adapters.mcp.gateway.downstream import Downstream, Offered


def facts(config: Config, found: Downstream) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "store": config.store,
        "servers": {
            server.name: {
                "tools": [_tool(config, one) for one in found.offered.values() if one.server == server.name],
                "hidden": found.unlisted.get(server.name, []),
            }
            for server in config.servers
        },
        "callers": {
            name: {"token": bool(one.token), "tools": list(one.tools), "scopes": list(one.scopes)}
            for name, one in config.callers.items()
        },
        "problems": found.problems,
    }


def _tool(config: Config, one: Offered) -> dict[str, Any]:
    tool = one.tool
    return {
        "tool": one.listed.name,
        "offered_as": tool.name,
        "class": tool.effect,
        "scopes": sorted(tool.scopes),
        "approval": "elicit" if one.entry.elicited else bool(one.entry.approval),
        "cost": {unit: f"{amount:f}" for unit, amount in tool.fixed_cost.items()},
        "once": list(tool.once),
        "reconciled_by": None if one.entry.asked is None else one.entry.asked.tool,
        "tightened": one.tightened or None,
        "callers": [name for name, caller in config.callers.items() if tool.name in caller.tools],
    }


def lines(told: dict[str, Any]) -> list[str]:
    """Return the same as lines to read."""
    shown: list[str] = []
    for name, server in told["servers"].items():
        shown.append(f"server {name}")
        shown += [f"  {_line(tool)}" for tool in server["tools"]]
        if server["hidden"]:
            shown.append(f"  hidden, because nothing is declared: {', '.join(server['hidden'])}")
    for name, caller in told["callers"].items():
        known = "by its token" if caller["token"] else "over stdio alone"
        shown.append(f"caller {name}, known {known}: {', '.join(caller['tools']) or 'may use nothing'}")
    shown += [f"WRONG {problem}" for problem in told["problems"]]
    return shown


def _line(tool: dict[str, Any]) -> str:
    parts = [f"{tool['tool']} as {tool['offered_as']}: {tool['class']}"]
    if tool["tightened"]:
        parts.append(f"tightened, because {tool['tightened']}")
    if tool["scopes"]:
        parts.append(f"needs {', '.join(tool['scopes'])}")
    if tool["approval"]:
        parts.append("approved by the host's user" if tool["approval"] == "elicit" else "approved by a person")
    if tool["cost"]:
        parts.append("costs " + ", ".join(f"{amount} {unit}" for unit, amount in tool["cost"].items()))
    if tool["once"]:
        parts.append(f"once a {', '.join(tool['once'])}")
    if tool["reconciled_by"]:
        parts.append(f"reconciled by {tool['reconciled_by']}")
    parts.append(f"for {', '.join(tool['callers'])}" if tool["callers"] else "for nobody")
    return "; ".join(parts)
