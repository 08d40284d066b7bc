"""How rows of the store are said: as JSON with full ids and ISO moments, and in a few words for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from milepost.cli.printing import ago, iso, short

if TYPE_CHECKING:
    from milepost.operations.inspection import EffectView
    from milepost.stores.api import OpenEffect, RunRow


def run_json(row: RunRow) -> dict[str, Any]:
    """Return a run as JSON."""
    return {
        "run": row.id,
        "workflow": row.workflow or None,
        "version": row.version or None,
        "attached": row.attached,
        "key": row.key,
        "status": row.status,
        "stage": row.segment,
        "waits_for": row.reason,
        "until": iso(row.until),
        "ask": row.ask,
        "why": row.why,
        "worker": row.owner,
        "parent": row.parent,
        "principal": row.principal or None,
        "tenant": row.tenant,
        "tags": json.loads(row.tags),
        "entries": row.seq,
        "created_at": iso(row.created_at),
        "changed_at": iso(row.changed_at),
    }


def waits_for(row: RunRow) -> str:
    """Return what a run waits for, or why it ended, in a few words."""
    if row.status == "parked" and row.reason is not None:
        return f"{row.reason}, {ago(row.until)}" if row.until else row.reason
    if row.status == "parked":
        return "an event"
    if row.status in {"killed", "cancelled"}:
        return (row.why or "").removeprefix(f"{row.status}: ")
    return (row.why or "") if row.status in {"blocked", "failed"} else ""


def named(row: RunRow) -> str:
    """Return the name of a run's workflow."""
    return "(attached)" if row.attached else row.workflow


def effect_json(effect: EffectView) -> dict[str, Any]:
    """Return an effect as JSON."""
    return {
        "run": effect.run_id,
        "path": effect.path,
        "tool": effect.tool,
        "effect": effect.effect,
        "outcome": effect.outcome,
        "attempt": effect.attempt,
        "started_at": iso(effect.started_at),
        "why": effect.why,
        "needs_person": effect.person or None,
        "key": effect.key,
        "args": effect.args,
        "external": effect.external,
        "by": effect.by or None,
        "evidence": effect.evidence,
        "result": effect.result,
    }


def open_effect_json(effect: OpenEffect) -> dict[str, Any]:
    """Return an effect of the index of open ones as JSON."""
    return {
        "run": effect.run_id,
        "path": effect.path,
        "tool": effect.tool,
        "effect": effect.effect,
        "outcome": effect.outcome,
        "attempt": effect.attempt,
        "started_at": iso(effect.started_at),
        "why": effect.why or "",
        "needs_person": effect.person or None,
    }


def resolve_command(run_id: str, path: str) -> str:
    """Return what a person types to settle an unknown effect."""
    return f"milepost resolve {short(run_id)} {path} --why … (--happened JSON | --did-not-happen | --rejected)"
