"""Fault 21: what a run may do has become less while its worker was dead. Legs take turns by seed; each names its part.

The policy is tightened between a SIGKILL and the next worker, in each way in which it can be: a rule denies by now, a
rule asks, no rule allows any more, or the file is broken. Or an approval is taken back that had been given, and that
the dead worker may have used or not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import milepost as mp
from faults.scenarios import baseline
from faults.scoreboard import Fault
from faults.stage import Stage, how, said
from milepost.core import entries as e

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
    legs: tuple[Callable[[Stage], None], ...] = (tightened_policy, revoked_approval)
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
        "nothing, or is broken; or an approval that is taken back",
        "nothing starts and nothing is sent again under it; the run says which rule or file, and goes on once it may",
        less_authority,
        tries=56,
    ),
)
