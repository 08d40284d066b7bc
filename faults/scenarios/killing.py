"""Faults 1 to 4: SIGKILL, at each write of a run, before and after the bytes leave, and in the middle of questions."""

from __future__ import annotations

from faults.scenarios import baseline
from faults.scoreboard import Fault
from faults.stage import Stage, plans
from milepost.core import entries as e

ONE_CALL = ("charge", "ship", "publish", "deliver", "refund", "press", "mail")
ASKED = ("ship", "deliver", "refund", "publish")
TWENTY = [
    "x", "0", "ask", "ship-x-a", "charge-x-a", "1", "charge-x-b", "publish-x", "publish-x", "x", "ship-x-b",
    "refund-x-c", "press-x-a", "charge-x-d", "ship-x-c", "x", "press-x-b", "charge-x-e", "2",
]  # fmt: skip
QUESTIONS = 4
WRITES_MOST = 400  # as many tries are made, so that each write of a run has its turn


def every_write(stage: Stage) -> None:
    """Kill a run of twenty steps as it enters one of its writes, and go on."""
    writes = baseline.writes(stage, "twenty")
    stage.result.must(len(writes) <= WRITES_MOST, f"{len(writes)} writes, and only {WRITES_MOST} tries: raise them")
    point = baseline.chosen(stage, writes)
    stage.result.met(stage.killed(point, "twenty"))
    stage.judge(f"killed at {point}")
    stage.done("twenty", result=TWENTY)


def before_the_first_byte(stage: Stage) -> None:
    """Kill between a durable `started` and the bytes that would apply the effect."""
    tool = baseline.chosen(stage, list(ONE_CALL))
    among = baseline.points(stage, "one", tool)
    sends = baseline.sending(among)
    begun = max(place for place in range(sends) if among[place].call == "fdatasync")
    point = stage.chance.choice([one for one in among[begun + 1 : sends + 1] if one.call != "pwrite64"])
    if not stage.killed(point, "one", tool):
        stage.done("one", tool)
        return
    stage.judge(f"killed at {point}")
    stage.result.must(not stage.outside.lines(), f"killed at {point}, and yet it was applied")
    if stage.result.met(stage.count(e.EffectStarted) == 1):
        stage.result.must(stage.count(e.EffectConfirmed) == 0, "it was confirmed by nothing")
    sent = len(stage.outside.requests())
    stage.done("one", tool)
    was_unknown(stage)
    if tool in {"press", "mail"}:
        # A person looked and said that it did not happen; nothing was sent before that.
        stage.result.must(stage.result.cut == 1, "the irreversible call was not left to a person")
        stage.result.must(len(stage.outside.requests()) == sent + 1, "it was sent more than once")


def after_it_was_applied(stage: Stage) -> None:
    """Kill when the effect was applied and its outcome is not durable."""
    tool = baseline.chosen(stage, list(ONE_CALL))
    among = baseline.points(stage, "one", tool)
    sends = baseline.sending(among)
    durable = sends + 1 + baseline.first(among[sends + 1 :], lambda point: point.call == "fdatasync")
    point = stage.chance.choice(among[sends + 1 : durable + 1])
    reached = stage.killed(point, "one", tool)
    stage.until(lambda: stage.outside.lines() or not reached, "the effect is applied")
    stage.judge(f"killed at {point}")
    if not stage.result.met(reached and stage.count(e.EffectConfirmed) == 0):
        stage.done("one", tool)
        return
    stage.done("one", tool)
    was_unknown(stage)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    if tool not in {"charge", "refund", "publish"}:
        stage.result.must(len(stage.outside.requests()) == 1, "it was sent a second time")


def in_the_question(stage: Stage) -> None:
    """Kill again and again while the outside is asked whether it happened."""
    stage.declare(key_ttl="0s", tries=1)
    tool = baseline.chosen(stage, ["ship", "refund"])
    among = baseline.points(stage, "one", tool)
    after = baseline.first(among, lambda point: point.call == "recvfrom")
    if not stage.result.must(stage.killed(among[after], "one", tool), "the first kill did not land"):
        return
    for number in range(QUESTIONS):
        # In a life that recovers, the first bytes that leave are the question, the first that come its answer.
        call = stage.chance.choice(["connect", "sendto", "recvfrom"])
        point = next(point for point in among if point.call == call)
        stage.result.met(stage.killed(point, "one", tool))
        told = stage.all_entries()
        outcomes = [entry for entry in told if isinstance(entry, e.EffectStarted | e.EffectUnknown | e.EffectFailed)]
        names = [type(entry) for entry in outcomes]
        stage.result.must(names == [e.EffectStarted, e.EffectUnknown], f"after question {number}: {names}")
        epochs = [entry.epoch for entry in told if isinstance(entry, e.Claimed)]
        stage.result.must(epochs == list(range(1, number + 3)), f"epochs {epochs}")
        stage.judge(f"killed in question {number}")
    stage.done("one", tool)
    stage.result.must(len(stage.outside.requests()) == 1, "it was sent a second time")


def was_unknown(stage: Stage) -> None:
    """Check that an effect that was started and lost was recorded as unknown, before anything else was."""
    told = stage.all_entries()
    for plan in plans(told):
        mine = [entry for entry in told if getattr(entry, "step", None) == plan.step]
        after = [
            type(entry) for entry in mine if isinstance(entry, e.EffectStarted | e.EffectUnknown | e.EffectConfirmed)
        ]
        stage.result.must(after[:2] == [e.EffectStarted, e.EffectUnknown], f"{plan.path}: {after}")


FAULTS = (
    Fault(
        1,
        "killed at a write of a run of 20 steps",
        "strace: SIGKILL at the N-th pwrite64 or fdatasync of a thread, every N of an undisturbed run in turn",
        "same result; nothing repeated, lost or believed wrongly, after the kill and at the end",
        every_write,
        tries=WRITES_MOST,
        smoke=3,
    ),
    Fault(
        2,
        "killed between started and the first byte",
        "strace: SIGKILL at connect, sendto or rename of one call, each class in turn",
        "unknown before anything else; no irreversible call is sent again unasked",
        before_the_first_byte,
        tries=56,
        smoke=3,
    ),
    Fault(
        3,
        "killed after it was applied, before that is recorded",
        "strace: SIGKILL at recvfrom, pwrite64 or fdatasync after the request left, each class in turn",
        "confirmed without a second send; a keyed or absolute one by the same key or precondition; applied once",
        after_it_was_applied,
        tries=56,
        smoke=3,
    ),
    Fault(
        4,
        "killed in the question whether it happened, repeatedly",
        f"strace: SIGKILL at connect, sendto or recvfrom of the question, {QUESTIONS} times in a row",
        "still unknown, no state skipped, epochs rise one by one; then confirmed without a second send",
        in_the_question,
        tries=20,
        smoke=1,
        least=2,
    ),
)
