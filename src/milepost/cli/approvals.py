"""`milepost approvals`, `approve`, `deny`: what waits for a person, shown from the record, and the answer to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from milepost.cli import options
from milepost.cli.delivering import look, tell, until_rested
from milepost.cli.opening import find_run, now_ms, opened, operator, wait_for
from milepost.cli.options import by_option, common, signing, waiting
from milepost.cli.printing import ago, heading, iso, moment, plain, say, say_json, short, table
from milepost.cli.settings import Settings
from milepost.core.rendering import look_alikes, rendered, visible
from milepost.operations import approvals as asked_for
from milepost.operations import keys
from milepost.operations.inspection import Inspector

if TYPE_CHECKING:
    from milepost.operations.approvals import Attempt, Shown
    from milepost.stores.api import Store

DIGEST_SHOWN = 12
GIST_CHARS = 60


@click.command()
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Also what was used, denied, superseded or expired.")
@common
def approvals(run: str | None, store: str | None, app: str | None, *, every: bool, as_json: bool) -> None:
    """List what waits for a person's word, with the recorded arguments."""

    async def read(store_: Store) -> list[Shown]:
        run_id = None if run is None else await find_run(store_, run)
        return await asked_for.listed(Inspector(store_), now_ms(), run_id, every=every)

    with opened(Settings(store, app).url) as store_:
        found = wait_for(read(store_))
    if as_json:
        say_json([shown_json(one) for one in found])
    elif not found:
        say("Nothing waits for an approval.")
    else:
        table(("approval", "run", "step", "standing", "expires", "digest", "arguments"), [_row(one) for one in found])
        say("Read the whole of one, and answer it: milepost approve ID, or milepost deny ID --why …")


def _row(one: Shown) -> tuple[str, ...]:
    bound = one.bound
    return (
        one.id,
        short(one.run_id),
        one.path,
        one.standing,
        ago(bound.expires_at) if bound is not None and bound.open and bound.expires_at is not None else "",
        "" if bound is None else bound.digest[:DIGEST_SHOWN],
        _gist(one),
    )


def _gist(one: Shown) -> str:
    gist = ", ".join(rendered(one.args))
    return gist if len(gist) <= GIST_CHARS else gist[: GIST_CHARS - 1] + "…"


def shown_json(one: Shown) -> dict[str, Any]:
    """Return an approval as JSON: what it is bound to, and the lines that a person is shown."""
    bound = one.bound
    return {
        "approval": one.id,
        "run": one.run_id,
        "path": one.path,
        "tool": one.tool,
        "version": None if bound is None else bound.tool_version,
        "effect": None if bound is None else bound.effect,
        "digest": None if bound is None else bound.digest,
        "policy": None if bound is None else bound.policy or None,
        "rule": None if bound is None else bound.rule or None,
        "reason": one.reason or None,
        "requester": None if bound is None else bound.requester or None,
        "asked_at": iso(one.asked_at),
        "expires_at": None if bound is None else iso(bound.expires_at),
        "verdict": one.standing,
        "by": one.by or None,
        "why": None if bound is None else bound.why or None,
        "signed": bound is not None and bool(bound.signature),
        "args": msgspec.json.decode(one.args),
        "shown": rendered(one.args),
        "notes": look_alikes(one.args),
    }


def approvals_json(found: list[Shown], refused: list[Attempt]) -> dict[str, Any]:
    """Return the approvals of a run's segment as JSON, and the answers to them that did not count."""
    tried = [
        {
            "at": iso(one.at),
            "kind": one.kind,
            "approval": one.approval,
            "by": one.by,
            "code": one.code,
            "why": one.why,
        }
        for one in refused
    ]
    return {"approvals": [shown_json(one) for one in found], "refused_answers": tried}


def say_approvals(found: list[Shown], refused: list[Attempt]) -> None:
    """Write the approvals of a run's segment, and the answers to them that did not count."""
    if not found and not refused:
        return
    heading("Approvals")
    if found:
        rows = [(one.id, one.path, _gist(one), one.standing, one.by) for one in found]
        table(("approval", "step", "arguments", "standing", "by"), rows)
    for one in refused:
        say(
            f"  refused {moment(one.at)} UTC, {plain(one.code)}: {plain(one.why)} (said by {plain(one.by or 'nobody')})"
        )


def say_shown(one: Shown) -> None:
    """Write what an answer is about: each recorded argument on its line, nothing cut, nothing hidden."""
    click.secho(f"{one.id}  {plain(one.path)} of run {short(one.run_id)}", bold=True)
    bound = one.bound
    if bound is not None:
        _field("tool", f"{bound.tool}, version {bound.tool_version}, {bound.effect}")
        rule = f"rule {bound.rule!r}{': ' if one.reason else ''}{one.reason}" if bound.rule else "the tool itself"
        _field("asked by", rule + (f", under policy {bound.policy}" if bound.policy else ""))
        if bound.requester:
            _field("for", bound.requester)
        if bound.expires_at is not None:
            _field("expires", f"{moment(bound.expires_at)} UTC ({ago(bound.expires_at)})")
        _field("digest", bound.digest + ("" if one.whole else " (some of the arguments are volatile: not part of it)"))
    say("  arguments")
    for line in rendered(one.args):
        say(f"    {line}")
    for note in look_alikes(one.args):
        click.secho(f"  look twice: {note}", fg="yellow")


def _field(name: str, value: str) -> None:
    say(f"  {name:<9} {visible(value)}")


def _digest_option(command: options.F) -> options.F:
    return click.option(
        "--digest", metavar="PREFIX", help="Only if the digest of the arguments begins so: what you were shown."
    )(command)


@click.command()
@click.argument("approval")
@_digest_option
@signing
@click.option("--why", default="", help="Recorded.")
@click.option("--yes", is_flag=True, help="Do not ask again on a terminal.")
@by_option
@waiting
@common
def approve(approval: str, **given: Any) -> None:
    """Let exactly one effect happen, once.

    Shows what that is, from the record. What you answer is bound to it: if anything of it changes, you are asked anew.
    """
    _answer(approval, True, given)


@click.command()
@click.argument("approval")
@click.option("--why", required=True, help="Told to the workflow, and recorded.")
@_digest_option
@signing
@by_option
@waiting
@common
def deny(approval: str, **given: Any) -> None:
    """Refuse exactly one effect: it fails as denied. Also takes back what was approved and has not started."""
    _answer(approval, False, given)


def _answer(prefix: str, approved: bool, given: dict[str, Any]) -> None:  # noqa: FBT001  which of the two verbs
    verb = "approve" if approved else "deny"
    signer = None if given["key"] is None else keys.find_private(given["key"])

    async def work(store: Store) -> None:
        row = await asked_for.find(store, prefix)
        about = await asked_for.shown(Inspector(store), row, now_ms())
        if not given["as_json"]:
            say_shown(about)
        if approved and not (given["yes"] or given["digest"] or given["as_json"]) and sys.stdin.isatty():
            click.confirm("Approve exactly this?", abort=True)
        digest = given["digest"] if given["digest"] is not None or about.bound is None else about.bound.digest
        said = {"by": options.user(given["by"]), "why": given["why"], "digest": digest, "signer": signer}
        verbs = operator(store)
        await (verbs.approve(row.id, **said) if approved else verbs.deny(row.id, **said))
        run_id = row.run_id
        next_ = await until_rested(store, run_id, given["timeout"]) if given["wait"] else await look(store, run_id)
        done = f"{'Approved' if approved else 'Denied'} {row.id}."
        facts = {"verb": verb, "done": done, "approval": row.id, "digest": digest, "signed": signer is not None}
        tell(done, next_, facts, as_json=given["as_json"])

    with opened(Settings(given["store"], given["app"]).url) as store_:
        wait_for(work(store_))
