"""Fault 21: what a run may do has become less while its worker was dead. Legs take turns by seed; each names its part.

The policy is tightened between a SIGKILL and the next worker, in each way in which it can be: a rule denies by now, a
rule asks, no rule allows any more, or the file is broken. Or the money is gone: others have spent a shared budget, or
the run's own was lowered. Or an approval is taken back that had been given, and that the dead worker may have used or
not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import milepost as mp
from faults.scenarios import baseline
from faults.scoreboard import Fault
from faults.stage import Stage, how, said
from milepost.app import App
from milepost.cli.opening import operator
from milepost.core import entries as e
from milepost.operations.recounting import recount
from milepost.stores.fleet import WorkerRow

ONE_CALL = ("charge", "ship", "publish", "deliver", "refund", "press", "mail")
ALLOW = 'version = "1"\n[[rule]]\nname = "all"\nverdict = "allow"\n'
TIGHTER = {
    "denies": 'version = "2"\n[[rule]]\nname = "never"\nverdict = "deny"\n',
    "asks": 'version = "2"\n[[rule]]\nname = "each"\nverdict = "ask"\n',
    "names nothing": 'version = "2"\n',
    "is broken": 'version = "2"\n[[rule]]\nname = "all"\nverdict = "alow"\n',
}


def less_authority(stage: Stage) -> None:
    """Play the leg that the seed means."""
    legs: tuple[Callable[[Stage], None], ...] = (tightened_policy, spent_budget, revoked_approval)
    legs[stage.seed % len(legs)](stage)


def hold(stage: Stage, policy: str) -> None:
    """Put a policy in the place of the one before."""
    path = stage.folder / "policy.toml"
    beside = path.with_suffix(".new")
    beside.write_text(policy, encoding="utf-8")
    beside.replace(path)
    stage.declare(policy=str(path))


def tightened_policy(stage: Stage) -> None:
    """Kill a worker anywhere in one call, tighten the policy, and go on; then loosen it again."""
    tool = baseline.chosen(stage, list(ONE_CALL))
    how_tight = stage.chance.choice(list(TIGHTER))
    among = baseline.points(stage, "one", tool)
    hold(stage, ALLOW)
    killed = stage.killed(stage.chance.choice(among), "one", tool)
    begun, ended_before = stage.count(e.EffectStarted), stage.count(e.RunDone)
    settled = stage.count(e.EffectConfirmed)
    hold(stage, TIGHTER[how_tight])
    ended = stage.work("one", tool)
    stage.judge(f"under a policy that {how_tight}")
    stage.result.must(stage.count(e.EffectStarted) == begun, f"it was sent under a policy that {how_tight}")
    why = str(said(ended).get("why", ""))
    stage.result.met(killed and not settled and not ended_before)
    if how(ended) == "run_failed":
        denied = how_tight == "denies" and not begun and "denied by policy rule 'never'" in why
        stage.result.must(denied, f"under a policy that {how_tight} the run failed: {why}")
        return
    if not settled and how(ended) != "done":
        spoken = "milepost policy check" in why or "(policy rule " in why or "milepost resolve" in why
        stage.result.must(how(ended) == "person" and spoken, f"under a policy that {how_tight}: {how(ended)} {why}")
    hold(stage, ALLOW)
    stage.done("one", tool)


def spent_budget(stage: Stage) -> None:
    """Kill a worker anywhere in a call that costs, take the money away, and go on; then give it back.

    What was sent before may be settled: it is paid for. Nothing that was not sent is, until there is money again.
    """
    among = baseline.points(stage, "one", "charge")
    pool = stage.chance.choice(["total ever", "total day", "principal:desk ever"])
    killed = stage.killed(stage.chance.choice(among), "one", "charge")
    stage.client(made)
    begun, ended_before = stage.count(e.EffectStarted), stage.count(e.RunDone)
    lowered = bool(stage.runs()) and not ended_before and stage.chance.random() < 0.5
    asks = lower(stage) if lowered else spend(stage, pool)
    ended = stage.work("one", "charge")
    stage.judge("with a budget that is spent")
    stage.result.met(killed and not ended_before)
    if not begun:
        stage.result.must(not stage.count(e.EffectStarted), "it was sent though its budget was spent")
        why = str(said(ended).get("why", ""))
        stage.result.must(how(ended) == "person" and asks in why, f"with a budget that is spent: {how(ended)} {why}")
    balanced(stage, "with a budget that is spent")
    restore(stage, pool)
    stage.done("one", "charge")
    balanced(stage, "with money again")


def spend(stage: Stage, pool: str) -> str:
    """Leave nothing of a shared budget; return what the run must tell to type."""
    limit(stage, pool, 0)
    return f"milepost budget set {pool.split(maxsplit=1)[0]} usd=1"


def limit(stage: Stage, pool: str, usd: int) -> None:
    """Set what a shared budget may spend."""
    name, per = pool.split()
    stage.ask(lambda store: operator(store).set_ceiling(name, {"usd": usd}, per=per, by="ann", why="a try"))


async def made(_: App) -> None:
    """Do nothing: to open an app makes its store."""


def lower(stage: Stage) -> str:
    """Lower what the run was granted to nothing; return what it must tell to type."""
    run_id = stage.runs()[0].id
    stage.ask(lambda store: operator(store).revoke(run_id, by="ann", why="spent", ceilings={"usd": 0}, dead=is_gone))
    return f"milepost grant {run_id} --budget usd=1"


def is_gone(_: WorkerRow) -> bool:
    """Say that a worker acts no more: it was killed."""
    return True


def restore(stage: Stage, pool: str) -> None:
    """Give the run, and the shared budget, what one call costs."""
    limit(stage, pool, 2)
    run = stage.runs()[0]
    if run.status != "done":
        stage.client(lambda app: app.grant(run.id, by="ann", budget={"usd": 1}))


def balanced(stage: Stage, when: str) -> None:
    """Note where the rows of the shared budgets say something else than the journals."""
    for differs in stage.ask(recount):
        stage.result.problems.append(f"{when}: {differs}")


def revoked_approval(stage: Stage) -> None:
    """Approve a call, kill the worker anywhere in it, take the approval back, and go on."""
    tool = baseline.chosen(stage, list(ONE_CALL))
    among = baseline.points(stage, "one", tool)
    hold(stage, TIGHTER["asks"])
    stage.result.must(how(stage.work("one", tool)) == "person", "nobody was asked")
    (asked,) = stage.ask(lambda store: store.approvals("", "asked"))
    stage.client(lambda app: app.approve(asked.id, by="ann"))
    killed = stage.killed(stage.chance.choice(among), "one", tool)
    begun = stage.count(e.EffectStarted)

    async def take_back(app: mp.App) -> None:
        with suppress(mp.UnknownApproval):  # it was used
            await app.deny(asked.id, by="bob", why="second thoughts")

    stage.client(take_back)
    stage.result.met(killed)
    if begun:
        stage.done("one", tool)
    else:
        ended = stage.work("one", tool)
        denied = how(ended) == "run_failed" and "denied by bob: second thoughts" in str(said(ended)["why"])
        stage.result.must(denied, f"after the approval was taken back: {said(ended)}")
        stage.result.must(not stage.count(e.EffectStarted), "it was sent after the approval was taken back")
    stage.judge("after the approval was taken back")


FAULTS = (
    Fault(
        21,
        "authority that became less while the worker was dead",
        "strace: SIGKILL at any call of one effect, each class in turn; then a policy that denies, asks, names "
        "nothing, or is broken; or a budget that others have spent, or that was lowered; or an approval that is taken "
        "back",
        "nothing starts and nothing is sent again under it; the run says which rule or file, and goes on once it may",
        less_authority,
        tries=56,
        least=0.3,
    ),
)
