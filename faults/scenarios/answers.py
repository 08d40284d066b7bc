"""Faults 5 to 11: what the network makes of requests and answers, between a worker and services that are honest."""

from __future__ import annotations

import signal

from faults.lives import Life
from faults.scenarios import baseline
from faults.scoreboard import Fault
from faults.stage import Stage, how
from faults.tools import UNHEARD_S
from milepost.core import entries as e
from milepost.testing.world import Rules, Toxic

LOST_ANSWERS = (Toxic("drop"), Toxic("reset", forward=True), Toxic("truncate"), Toxic("gateway", status=504))
FROM_NOWHERE = (
    Toxic("gateway", status=502),
    Toxic("gateway", status=504, forward=False),
    Toxic("gateway", status=503, forward=False),
    Toxic("trickle", ms=60),
    Toxic("truncate"),
)
TIMEOUT_MS = 1_000
SLACK_MS = 3_000  # for a machine that has other things to do
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
LAG_STEPS_MS = (7_000, 25_000, 31_000, 40_000)


def dropped_with_a_key(stage: Stage) -> None:
    """Lose the answer to a keyed call, once or twice."""
    script = [stage.chance.choice(LOST_ANSWERS) for _ in range(1 + stage.seed % 2)]
    tool = baseline.chosen(stage, ["charge", "refund"])
    stage.declare(hears_s=UNHEARD_S)
    stage.outside.obey(Rules(script=tuple(script)))
    stage.done("one", tool)
    stage.result.met(stage.outside.met()[: len(script)] == [toxic.name for toxic in script])
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    stage.result.must(len({request.key for request in stage.outside.requests()}) == 1, "another key was sent")
    stage.result.must(stage.count(e.EffectUnknown) >= 1, "it was never unknown")
    stage.result.must(stage.count(e.EffectFailed) == 0, "it failed, and it had happened")


def dropped_without_any(stage: Stage) -> None:
    """Lose the answer to an irreversible call."""
    toxic = stage.chance.choice([*LOST_ANSWERS, Toxic("reset", forward=False)])
    tool = baseline.chosen(stage, ["press", "mail"])
    stage.declare(hears_s=UNHEARD_S)
    stage.outside.obey(Rules(script=(toxic,)))
    ended = stage.work("one", tool)
    stage.until(stage.outside.met, "the proxy has met it")
    stage.result.met(stage.outside.met()[:1] == [toxic.name])
    stage.result.must(how(ended) == "person", f"no person was asked, it ended as {how(ended)}")
    (effect,) = stage.open_effects()
    stage.result.must(effect.outcome == "unknown" and effect.person, f"it is {effect.outcome}: {effect.person}")
    stage.result.must("milepost resolve" in ended.out and effect.path in ended.out, "the person is not told what to do")
    stage.result.must(effect.why, "the person sees no evidence")
    stage.result.must(len(stage.outside.requests()) <= 1, "it was sent again unasked")
    stage.judge("while a person is asked")
    stage.done("one", tool)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")


def error_that_may_have_applied(stage: Stage) -> None:
    """Answer 500, after the effect was applied or without it."""
    applied = bool(stage.seed % 2)
    tool = baseline.chosen(stage, ["ship", "refund", "ship"])
    stage.declare(key_ttl="0s", visible_within="150ms")
    stage.outside.obey(Rules(script=(Toxic("gateway", status=500, forward=applied),)))
    stage.done("one", tool)
    stage.result.met(stage.outside.met()[:1] == [f"500 {'after' if applied else 'without'} the origin"])
    findings = [entry.answer for entry in stage.all_entries() if isinstance(entry, e.FindingRecorded)]
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    stage.result.must(len(stage.outside.requests()) == 1, "it was sent a second time, or never")
    if applied:
        stage.result.must(findings == ["happened"], f"settled by {findings}")
    else:
        stage.result.must(findings[:2] == ["did_not_happen"] * 2, f"sent again after {findings}")
        stage.result.must(findings[-1] == "happened", f"not looked at once more: {findings}")


def from_nowhere(stage: Stage) -> None:
    """Answer what the origin never said, too slowly, or half."""
    toxic = FROM_NOWHERE[stage.seed % len(FROM_NOWHERE)]
    tool = stage.chance.choice(["ship", "charge", "publish"])
    stage.declare(timeout=f"{TIMEOUT_MS}ms", hears_s=0.5)
    stage.outside.obey(Rules(script=(toxic,)))
    stage.done("one", tool)
    stage.result.met(stage.outside.met()[:1] == [toxic.name])
    told = stage.all_entries()
    started = next(entry for entry in told if isinstance(entry, e.EffectStarted))
    after = next(entry for entry in told if isinstance(entry, e.EffectUnknown | e.EffectFailed | e.EffectConfirmed))
    stage.result.must(isinstance(after, e.EffectUnknown), f"{toxic.name} was taken for {type(after).__name__}")
    took = after.at - started.at
    if not stage.result.must(took <= TIMEOUT_MS + SLACK_MS, f"the attempt hung for {took} ms"):
        stage.result.slow = True


def key_that_expires(stage: Stage) -> None:
    """Kill a worker in a keyed call, and go on when the provider has forgotten the key."""
    tool = baseline.chosen(stage, ["charge", "refund", "charge"])
    toxic = stage.chance.choice([Toxic("drop"), Toxic("drop"), Toxic("reset", forward=False)])
    pause = stage.chance.choice(["3d", "25h", "23h"])
    stage.declare(hears_s=2.0, timeout="3s")
    stage.outside.obey(Rules(script=(toxic,)))
    life = stage.start("run", "one", tool, "x")
    stage.until(stage.outside.met, "the request is on its way")
    stage.until(lambda: stage.outside.lines() or not toxic.applies, "it is applied")
    die(stage, life)
    stage.result.met(stage.count(e.EffectStarted) == 1 and stage.count(e.EffectConfirmed) == 0)
    sent = len(stage.outside.requests())
    stage.outside.advance(pause)
    ended = stage.work("one", tool)
    if pause != "23h":
        stage.result.must(
            len(stage.outside.requests()) == sent or tool == "refund", "a key that is not known any more was sent"
        )
        stage.result.must(how(ended) == "person" or tool == "refund", f"it ended as {how(ended)}")
    if pause != "23h" and tool == "refund" and toxic.applies:
        stage.result.must(len(stage.outside.requests()) == sent, "it was sent again, and it was there to be found")
    stage.done("one", tool)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")


def shows_late(stage: Stage) -> None:
    """Let a list show what was applied only after a while, and ask in the meantime."""
    lag_ms = stage.chance.choice([90_000, 115_000, 125_000])
    stage.declare(hears_s=UNHEARD_S, visible_within="120s")
    stage.outside.obey(Rules(script=(Toxic("drop"),), shows_after_ms=lag_ms))
    life = stage.start("run", "one", "ship", "x")
    stage.until(lambda: stage.count(e.FindingRecorded), "it is asked about")
    if stage.chance.random() < 0.5:
        die(stage, life)
        life = stage.start("run", "one", "ship", "x")
    passed = 0
    while passed <= lag_ms + MINUTE_MS and life.code is None:
        step = stage.chance.choice(LAG_STEPS_MS)
        passed += step
        stage.outside.advance(step)
        life.wait(0.25)
        stage.result.must(len(stage.outside.requests()) == 1, f"it was sent again after {passed} ms")
    stage.until(lambda: life.code is not None, "the run ends")
    answers = [entry.answer for entry in stage.all_entries() if isinstance(entry, e.FindingRecorded)]
    stage.result.met(answers[:1] == ["did_not_happen"])
    stage.result.must(answers[-1:] == ["happened"], f"settled by {answers}")
    stage.done("one", "ship")
    stage.result.must(len(stage.outside.requests()) == 1, "it was sent a second time")


def lands_late(stage: Stage) -> None:
    """Hold a request back, and let it pass a minute after its client gave up."""
    (late_within_the_bound, late_after_the_bound, late_under_a_unique_name)[stage.seed % 3](stage)


def late_within_the_bound(stage: Stage) -> None:
    """The declared bound covers the delay: nothing is sent again before it is over."""
    stage.declare(hears_s=UNHEARD_S, visible_within="90s")
    stage.outside.obey(Rules(script=(Toxic("late", ms=MINUTE_MS),)))
    life = stage.start("run", "one", "ship", "x")
    stage.until(lambda: stage.count(e.FindingRecorded), "it is asked about")
    stage.result.met(not stage.outside.lines())
    stage.outside.advance(MINUTE_MS + 1_000)
    stage.until(stage.outside.lines, "the late request lands")
    stage.outside.advance(MINUTE_MS)
    stage.until(lambda: life.code is not None, "the run ends")
    stage.done("one", "ship")
    stage.result.must(len(stage.outside.requests()) == 1, "it was sent a second time")


def late_after_the_bound(stage: Stage) -> None:
    """The declared bound is wrong: it is sent again, the first request lands next to it, and that is found out."""
    stage.declare(hears_s=UNHEARD_S, visible_within="30s")
    stage.outside.obey(Rules(script=(Toxic("late", ms=MINUTE_MS),)))
    life = stage.start("run", "one", "ship", "x")
    stage.until(lambda: stage.count(e.FindingRecorded), "it is asked about")
    stage.outside.advance(31_000)
    stage.until(lambda: stage.count(e.FindingRecorded) > 1, "it is asked about after the bound")
    stage.outside.advance(4_000)
    stage.until(lambda: stage.count(e.EffectConfirmed), "it was proven absent and sent again")
    stage.outside.advance(40_000)
    stage.until(lambda: len(stage.outside.lines()) > 1, "the late request lands")
    stage.result.met(len(stage.outside.lines()) == 2)
    stage.until(lambda: life.code is not None, "the run stops")
    stage.result.must(how(stage.ended(life)) == "run_blocked", f"it ended as {how(stage.ended(life))}")
    stage.result.must(stage.count(e.Contradicted) == 1, "nobody noticed that it was applied twice")
    held = stage.ask(lambda store: store.switches())
    stage.result.must([switch.scope for switch in held] == ["tool:ship"], f"held are {held}")
    rules = {violation.rule for violation in stage.violations()}
    stage.result.must(rules == {"repeated"}, f"the outside says {rules}")
    stage.result.asked += 1


def late_under_a_unique_name(stage: Stage) -> None:
    """The request carries a precondition that only one of two can meet."""
    stage.declare(hears_s=UNHEARD_S)
    stage.outside.obey(Rules(script=(Toxic("late", ms=MINUTE_MS),)))
    stage.done("one", "publish")
    stage.outside.advance(MINUTE_MS + 1_000)
    stage.until(lambda: len(stage.outside.requests()) > 1, "the late request lands")
    stage.result.met(len(stage.outside.requests()) > 1)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    stage.judge("after the late request")


def die(stage: Stage, life: Life) -> None:
    """Kill a worker."""
    life.send(signal.SIGKILL)
    stage.ended(life)


FAULTS = (
    Fault(
        5,
        "answer lost, with a key",
        "proxy: silence, reset, half an answer or 504 after the request passed, once or twice",
        "one effect, one key, unknown and then confirmed, never failed",
        dropped_with_a_key,
        tries=24,
    ),
    Fault(
        6,
        "answer lost, irreversible",
        "proxy, HTTP and SMTP: silence, reset, half an answer or 504/421",
        "unknown and a person is asked, with evidence and the command to type; nothing is sent again unasked",
        dropped_without_any,
        tries=24,
    ),
    Fault(
        7,
        "500 that did apply, 500 that did not",
        "proxy: 500 after the request passed, or instead",
        "settled by asking: found at once, or absent twice, sent again and looked up once more",
        error_that_may_have_applied,
        tries=24,
    ),
    Fault(
        8,
        "502, 503, 504 from nowhere, slow answer, half an answer",
        "proxy: gateway errors with and without the origin, one byte each 60 ms, truncated body",
        "unknown and not failed; no attempt outlives its timeout",
        from_nowhere,
        tries=30,
        smoke=5,
    ),
    Fault(
        9,
        "key expires during a pause of days",
        "proxy: silence; SIGKILL in the call; the clock of worker and world 23 h, 25 h or 3 days ahead",
        "no key is sent that is not known any more; asked instead, else a person",
        key_that_expires,
        tries=24,
        smoke=3,
    ),
    Fault(
        10,
        "what was applied shows only after 90 s and more",
        "a list that lags 90 to 125 s behind; the clock moved in steps; every other time SIGKILL in between",
        "nothing is created twice; found, and confirmed by the finding",
        shows_late,
        tries=16,
    ),
    Fault(
        11,
        "the request lands a minute after its client gave up",
        "proxy: the request held for 60 s of the world's clock",
        "within the declared bound harmless, under a unique name harmless, else found out: blocked, tool held, person",
        lands_late,
        tries=18,
        smoke=3,
    ),
)
