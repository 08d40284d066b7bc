"""`milepost show`: what is finished, what remains, and what may have happened outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.approvals import approvals_json, say_approvals
from milepost.cli.code_shown import checkpoints_json, code_json, say_checkpoints, say_code
from milepost.cli.describing import effect_json, named, resolve_command, run_json, waits_for
from milepost.cli.opening import find_run, now_ms, opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import ago, compact, heading, iso, moment, plain, say, say_json, short
from milepost.cli.settings import Settings
from milepost.core.tracing import trace_of
from milepost.operations.approvals import attempts, shown
from milepost.operations.checkpoints import checkpoints
from milepost.operations.inspection import Inspector

if TYPE_CHECKING:
    from milepost.operations.approvals import Attempt, Shown
    from milepost.operations.checkpoints import Checkpoints
    from milepost.operations.inspection import EffectView, RunDetail
    from milepost.stores.api import Store

OUTSIDE = {"started", "unknown"}
CHILDREN_LISTED = 20


@click.command()
@click.argument("run")
@common
def show(run: str, store: str | None, app: str | None, *, as_json: bool) -> None:
    """Show one run: what is finished, what remains, what may have happened outside, and what to type."""
    with opened(Settings(store, app).url) as store_:
        detail, made, asked = wait_for(_read(store_, run))
    if as_json:
        say_json({**_json(detail), **approvals_json(*asked), "checkpoints": checkpoints_json(made)})
        return
    _head(detail)
    say_code(detail)
    _finished(detail)
    _remains(detail)
    _outside(detail)
    _limits(detail)
    say_approvals(*asked)
    say_checkpoints(made)
    _made_with(detail)
    _to_do(detail)


async def _read(store: Store, prefix: str) -> tuple[RunDetail, Checkpoints, tuple[list[Shown], list[Attempt]]]:
    run_id = await find_run(store, prefix)
    inspector = Inspector(store)
    detail = await inspector.detail(run_id)
    asked = [await shown(inspector, row, now_ms()) for row in detail.approvals]
    _, entries = await inspector.record(run_id)
    return detail, await checkpoints(store, run_id), (asked, attempts(entries))


def _json(detail: RunDetail) -> dict[str, Any]:
    authority = detail.about.authority
    return {
        **run_json(detail.row),
        "trace": trace_of(detail.row.id),
        "deadline": iso(detail.about.deadline),
        "forked_from": detail.about.forked_from,
        "goes_back_to": detail.goes_back_to,
        "cancel_asked_by": None if detail.cancel is None else detail.cancel[0],
        "finished_visits": detail.visits,
        "finished_steps": [{"path": path, "outcome": outcome} for path, outcome in detail.finished],
        "pending": [{"what": one.what, "until": iso(one.until)} for one in detail.pending],
        "effects": [effect_json(effect) for effect in detail.effects],
        "unresolved": [effect.path for effect in detail.effects if effect.outcome in OUTSIDE],
        "authority": {
            "principal": authority.principal,
            "tenant": authority.tenant,
            "scopes": detail.scopes,
            "expires_at": iso(authority.expires_at),
        },
        "budget": {"granted": detail.granted, "spent": detail.spent, "reserved": detail.reserved},
        "overspent": detail.overspent,
        "children": detail.children,
        "manifest": detail.manifest,
        "code": code_json(detail),
        "state": detail.state,
        "result": detail.result,
    }


def _field(name: str, value: str) -> None:
    say(f"  {name:<10} {plain(value)}")


def _head(detail: RunDetail) -> None:
    row, about = detail.row, detail.about
    click.secho(f"Run {row.id}", bold=True)
    because = waits_for(row)
    _field("status", f"{row.status}{': ' if because else ''}{because} (since {ago(row.changed_at)})")
    _field("workflow", named(row) + (f", version {row.version}" if row.version else ""))
    if row.key is not None:
        _field("key", row.key)
    who = about.authority.principal
    _field("started", f"{moment(row.created_at)} UTC" + (f" for {who}" if who else ""))
    if about.deadline is not None:
        _field("deadline", f"{moment(about.deadline)} UTC ({ago(about.deadline)})")
    if about.tags:
        _field("tags", ", ".join(f"{name}={value}" for name, value in about.tags.items()))
    if detail.goes_back_to is not None:
        _field("goes back", f"to its boundary {detail.goes_back_to}, undoing what it did since")
    if row.parent is not None:
        _field("parent", short(row.parent))
    if about.forked_from is not None:
        _field("fork of", f"{short(about.forked_from)}, from its boundary {about.forked_at}")
    if row.owner is not None:
        _field("worker", row.owner)
    _field("record", f"{row.seq} entries, epoch {row.epoch}")
    _field("trace", trace_of(row.id))
    if detail.row.status == "done":
        _field("result", compact(detail.result, 1_000))
    if detail.cancel is not None and row.status not in {"cancelled", "done"}:
        _field("cancel", f"asked for by {detail.cancel[0] or 'somebody'}: {detail.cancel[1]}")


def _finished(detail: RunDetail) -> None:
    heading("Finished")
    done = [f"{name} ({count} times)" if count > 1 else name for name, count in detail.visits.items()]
    settled = [(effect.path, effect.outcome) for effect in detail.effects if effect.outcome in {"confirmed", "failed"}]
    if not done and not settled:
        say("  nothing yet")
    if done:
        _field("segments", ", ".join(done))
    for path, outcome in [*detail.finished, *settled]:
        _field(outcome, path)


def _remains(detail: RunDetail) -> None:
    if detail.row.status in {"done", "failed", "cancelled", "killed"} and detail.stage is None:
        return
    heading("Remains")
    if detail.stage is not None:
        _field("stage", detail.stage)
        _field("state", compact(detail.state, 400))
    for one in detail.pending:
        _field("pending", one.what + (f" ({ago(one.until)})" if one.until else ""))
    for child, status in list(detail.children.items())[:CHILDREN_LISTED]:
        _field("child", f"{short(child)} {status}")
    if len(detail.children) > CHILDREN_LISTED:
        _field("child", f"and more: milepost runs --parent {detail.row.id}")


def _outside(detail: RunDetail) -> None:
    heading("May have happened outside")
    found = [effect for effect in detail.effects if effect.outcome in OUTSIDE]
    if not found:
        say("  nothing: every effect is settled")
    for effect in found:
        _doubt(effect)


def _doubt(effect: EffectView) -> None:
    since = "" if effect.started_at is None else f", first sent {moment(effect.started_at)} UTC"
    say(f"  {plain(effect.path)}  {effect.outcome}, {effect.effect}, attempt {effect.attempt}{since}")
    say(f"     with {compact(effect.args, 400)}")
    say(f"     key  {effect.key}")
    if effect.external:
        say(f"     the outside system calls it {plain(effect.external)}")
    for evidence in effect.evidence:
        say(f"     seen {plain(evidence)}")
    if effect.person:
        say(f"     needs you: {plain(effect.person)}")


def _limits(detail: RunDetail) -> None:
    authority = detail.about.authority
    if authority.principal or detail.scopes or detail.granted or detail.overspent:
        heading("Authority and budget")
        _field("for", authority.principal + (f" of {authority.tenant}" if authority.tenant else ""))
        _field("scopes", ", ".join(detail.scopes) or "none")
        if authority.expires_at is not None:
            _field("expires", f"{moment(authority.expires_at)} UTC ({ago(authority.expires_at)})")
        for unit, granted in detail.granted.items():
            spent, reserved = detail.spent.get(unit, "0"), detail.reserved.get(unit, "0")
            _field(unit, f"{granted} granted, {spent} spent, {reserved} reserved")
        for unit, amount in detail.overspent.items():
            _field("OVERSPENT", f"{amount} {unit} more than was reserved")


def _made_with(detail: RunDetail) -> None:
    tools = detail.manifest.get("tools", {})
    if not tools:
        return
    heading("Versions")
    if detail.manifest.get("workflow"):
        _field("workflow", f"{detail.manifest['workflow']} {detail.manifest.get('version', '')}")
    _field("tools", ", ".join(f"{name} {version}" for name, (version, _) in tools.items()))


def _to_do(detail: RunDetail) -> None:
    asked = [resolve_command(e.run_id, e.path) for e in detail.effects if e.outcome == "unknown" and e.person]
    if detail.row.ask and not asked:
        asked.append(detail.row.ask)
    if asked:
        heading("To do")
        for command in asked:
            say(f"  {plain(command)}")
