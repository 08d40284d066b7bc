"""What may happen to one effect: every legal transition, and what may be done about an outcome that nobody knows.

Rule 1: all that changes an outcome is in TABLE. An event that is not in it is a defect, and is refused.
Rule 2: all that is done about `unknown` is decided by `next_move`. No retry policy ever sees an unknown effect.

The outcomes:

  not_started   the effect is known but no attempt of it began (it may wait for an approval, money, a breaker)
  started       an attempt began; until it settles nobody can say more
  confirmed     it happened, on the word of the provider, a reconciler, late evidence, or a person
  failed        it did not happen, on positive evidence: never sent, rejected before execution, or proven absent;
                while `final` is false it may be started again with the same key and the same bytes
  unknown       it may have happened. *Needs a person* is a reason on it, not a state.

What makes absence count. "Not found" is the most dangerous answer there is: a request that was sent may still land. An
attempt is *quiet* when its code has returned or its process is proven dead, not when it timed out. From the moment the
last unsettled attempt is quiet, an effect needs `visible_ms` to show; an absence that was read before that proves
nothing. It takes two reads after it, a tenth of the bound (at least 100 ms) apart. Where the tool declares no bound, no
absence ever counts and a person decides.

What may still go wrong. A request that lands later than the declared bound is applied next to its own resend. The
question is therefore asked once more, one bound after the resend is quiet and before the boundary: two found is a
conflict, which holds the tool and calls a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from milepost.errors import IllegalOutcome

Outcome = Literal["not_started", "started", "confirmed", "failed", "unknown"]
Event = Literal["start", "confirm", "fail", "lose", "resend", "retry", "contradict"]

TABLE: dict[tuple[Outcome, Event], Outcome] = {
    ("not_started", "start"): "started",
    ("not_started", "confirm"): "confirmed",  # the same business identity was confirmed by another step
    ("not_started", "fail"): "failed",  # denied, or its time ended, before any attempt
    ("started", "confirm"): "confirmed",
    ("started", "fail"): "failed",
    ("started", "lose"): "unknown",
    ("unknown", "confirm"): "confirmed",
    ("unknown", "fail"): "failed",
    ("unknown", "lose"): "unknown",  # a resend of it was lost too
    ("unknown", "resend"): "unknown",  # the same bytes again: the earlier attempt stays unsettled
    ("failed", "retry"): "started",  # only while the failure is not final
    ("failed", "fail"): "failed",  # the same: denied before it was tried again
    ("failed", "contradict"): "failed",  # evidence of success after all: recorded, the run blocks, the tool is held
    ("failed", "confirm"): "confirmed",  # only after a contradiction, on the word of a person who looked
    ("started", "contradict"): "started",  # the same, while a later attempt is under way
    ("unknown", "contradict"): "unknown",
    ("confirmed", "contradict"): "confirmed",  # found twice, or found otherwise
}

ABSENCES_NEEDED = 2
KEY_MARGIN_MS = 5_000
ASK_FIRST_MS = 1_000
ASK_MOST_MS = 60_000
SPACING_LEAST_MS = 100


def change(outcome: Outcome, event: Event, *, final: bool = True, contradicted: bool = False) -> Outcome:
    """Return the outcome after the event. Raises IllegalOutcome for a pair that is not in the table.

    Three pairs have a condition: what failed is tried again, or given up, only while that is not `final`, and becomes
    confirmed only where it was `contradicted`.
    """
    after = TABLE.get((outcome, event))
    overruled = outcome == "failed" and event == "confirm"
    over = outcome == "failed" and event in {"retry", "fail"} and final
    if after is None or over or (overruled and not contradicted):
        raise IllegalOutcome(outcome, event)
    return after


class Facts(msgspec.Struct, frozen=True):
    """What a tool declares about itself that decides what may follow an unknown outcome.

    Spans are in milliseconds. `key_ttl_ms` None means that the provider promises nothing; `visible_ms` None that an
    absence proves nothing; `tries` bounds the attempts whose process lived to see them fail.
    """

    effect: str
    key_ttl_ms: int | None = None
    visible_ms: int | None = None
    reconcilable: bool = False
    timeout_ms: int = 60_000
    tries: int = 3
    version: str = ""


class Attempt(msgspec.Struct, gc=False):
    """One try of an effect. `quiet_at` is fixed once; `settled` says how this try alone was proven to have ended."""

    number: int
    started_at: int
    epoch: int
    owner: str = ""
    quiet_at: int | None = None
    died: bool = False
    settled: Literal["", "not_sent", "rejected", "absent", "person", "returned"] = ""


class Doubt(msgspec.Struct, gc=False):
    """What is known about an effect in doubt: its attempts and the answers so far."""

    attempts: list[Attempt] = []
    asks: int = 0
    absences: list[int] = []
    ask_at: int = 0
    person: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the reconciler now."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the same bytes under the same key again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before `until` (None: until an attempt is quiet or evidence arrives)."""

    until: int | None


@dataclass(frozen=True, slots=True)
class Person:
    """Only a person can settle it, for this reason. `passing` says that other code than today's may settle it too."""

    why: str
    passing: bool = False


@dataclass(frozen=True, slots=True)
class ProvenAbsent:
    """The effect is proven not to have happened. `final` when no further try is allowed, or the last was refused."""

    final: bool
    why: str


Move = Ask | Resend | Wait | Person | ProvenAbsent


def quiet_since(attempts: list[Attempt]) -> int | None:
    """Return the moment since which no attempt can still be acting, or None while one may be."""
    moments = [attempt.quiet_at for attempt in attempts]
    return None if None in moments else max((m for m in moments if m is not None), default=0)


def spacing_ms(visible_ms: int) -> int:
    """Return how far apart two absences must lie to count as two."""
    return max(SPACING_LEAST_MS, visible_ms // 10)


def key_valid_until(facts: Facts, attempts: list[Attempt]) -> int:
    """Return the moment until which the provider still knows the key, less a margin for clocks and the send itself."""
    if not attempts or facts.key_ttl_ms is None:
        return 0
    margin = max(KEY_MARGIN_MS, facts.timeout_ms) if facts.key_ttl_ms > 4 * facts.timeout_ms else facts.key_ttl_ms // 4
    return attempts[0].started_at + facts.key_ttl_ms - margin


def may_resend(facts: Facts, attempts: list[Attempt], now: int) -> bool:
    """Say whether the same bytes may leave again: asked when that is decided, and once more when they leave.

    A worker may be slow in between, and its lease does not tell how long the provider remembers a key.
    """
    return facts.effect != "keyed" or now < key_valid_until(facts, attempts)


def resend_delay_ms(attempts: list[Attempt]) -> int:
    """Return how long to wait before the next resend: at once after a death, else doubling from a second."""
    live = sum(1 for attempt in attempts if not attempt.died)
    if not attempts or attempts[-1].died or live == 0:
        return 0
    return int(min(ASK_MOST_MS, ASK_FIRST_MS * 2 ** (live - 1)))


def next_move(facts: Facts, doubt: Doubt, now: int) -> Move:
    """Decide what may be done about an unknown effect at `now` (milliseconds since 1970)."""
    if doubt.person:
        return Person(doubt.person)
    live = sum(1 for attempt in doubt.attempts if not attempt.died)
    refused = any(attempt.settled == "rejected" for attempt in doubt.attempts)
    match facts.effect:
        case "read":
            return Resend()
        case "keyed" if may_resend(facts, doubt.attempts, now) and live < facts.tries and not refused:
            return _resend_when_due(doubt, now)
        case "absolute" if live < facts.tries and not refused:
            return _resend_when_due(doubt, now)
        case "keyed" | "absolute" | "queryable" if facts.reconcilable:
            return _question(facts, doubt, now)
        case "keyed":
            return Person("its key may have expired or its resends are spent, and the tool has no reconciler")
        case "absolute":
            return Person("it cannot be sent again as it is, and the tool has no reconciler")
        case _:
            return Person("it can be neither repeated nor looked up")


def _resend_when_due(doubt: Doubt, now: int) -> Move:
    last = doubt.attempts[-1]
    due = (last.quiet_at or last.started_at) + resend_delay_ms(doubt.attempts)
    return Resend() if now >= due else Wait(due)


def _question(facts: Facts, doubt: Doubt, now: int) -> Move:
    if now < doubt.ask_at:
        return Wait(doubt.ask_at)
    if not doubt.asks or doubt.ask_at:
        return Ask()  # never asked, or the last answer said nothing: a finding that it happened counts at once
    if facts.visible_ms is None:
        if doubt.absences:
            return Person("it was not found, and the tool does not say how soon an effect must show")
        return Ask()
    quiet = quiet_since(doubt.attempts)
    if quiet is None:
        # Absence cannot count yet, but it may be found: ask now and then, never in a tight loop.
        due = doubt.absences[-1] + ask_delay_ms(doubt.asks) if doubt.absences else now
        return Ask() if now >= due else Wait(due)
    counts_from = quiet + facts.visible_ms
    counted = [at for at in doubt.absences if at >= counts_from]
    if not counted:
        return Ask() if now >= counts_from else Wait(counts_from)
    next_at = counted[0] + spacing_ms(facts.visible_ms)
    if len([at for at in counted if at >= next_at]) + 1 >= ABSENCES_NEEDED:
        return _absent(facts, doubt)
    return Ask() if now >= next_at else Wait(next_at)


def _absent(facts: Facts, doubt: Doubt) -> ProvenAbsent:
    live = sum(1 for attempt in doubt.attempts if not attempt.died)
    if doubt.attempts and doubt.attempts[-1].settled == "rejected":
        return ProvenAbsent(final=True, why="rejected, and the earlier attempt is proven absent")
    if live >= facts.tries:
        return ProvenAbsent(final=True, why=f"proven absent after {live} attempts")
    return ProvenAbsent(final=False, why="proven absent")


def ask_delay_ms(asks: int) -> int:
    """Return how long to wait after a reconciler could not say: doubling from a second to a minute."""
    return int(min(ASK_MOST_MS, ASK_FIRST_MS * 2 ** min(max(asks - 1, 0), 16)))
