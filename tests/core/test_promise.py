"""The promise, on values alone: whatever is lost, late or killed, no effect is repeated without proof or a say-so.

One effect of one run meets an outside world drawn by Hypothesis: attempts get an answer, lose it, or die with their
worker; what was sent lands late or never; what landed shows late; the reconciler sometimes cannot say. The only
assumptions are those that the tool declares: what a quiet attempt did shows within `visible_ms`, and a key is known for
`key_ttl_ms`.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core import entries as e
from milepost.core.decide import World, move_for, recover
from milepost.core.outcome import Ask, Facts, Move, Person, ProvenAbsent, Resend, Wait, ask_delay_ms
from milepost.core.state import RunState
from tests.core import samples as say

VISIBLE = 1_000
KEY_TTL = 9_000
STEPS = 80

SENT = st.fixed_dictionaries({
    "ends": st.sampled_from(["answered", "lost", "died"]),
    "takes": st.integers(1, 2_000),  # from the send until the attempt is quiet
    "lands": st.none() | st.integers(0, VISIBLE),  # after the send; None: the request never arrives
    "shows": st.integers(0, VISIBLE),  # after it landed, within what the tool declares
    "rests": st.sampled_from([0, 0, 500, 2 * KEY_TTL]),  # how long nobody drives the run then
})  # fmt: skip


@dataclass
class Outside:
    """The provider: what was applied, and when it can be seen. `keyed`: it knows a key for KEY_TTL."""

    keyed: bool
    applied: list[tuple[int, int]] = field(default_factory=list)

    def send(self, at: int, plan: dict[str, Any]) -> int:
        """Take one request; return when it is quiet."""
        quiet = at + int(plan["takes"])
        if plan["ends"] == "answered":
            plan["lands"] = min(plan["lands"] or 0, plan["takes"])  # what was answered has landed
        if plan["lands"] is not None:
            lands = at + plan["lands"]
            shows = min(lands + plan["shows"], quiet + VISIBLE)
            lands = min(lands, shows)
            known = self.keyed and any(abs(lands - other) < KEY_TTL for other, _ in self.applied)
            if not known:
                self.applied.append((lands, max(lands, shows)))
        return quiet

    def seen(self, now: int) -> bool:
        return any(shows <= now for _, shows in self.applied)


@dataclass
class Owner:
    """Whoever drives the run: does what `move_for` allows, and nothing else."""

    outside: Outside
    facts: Facts
    plans: list[dict[str, Any]]
    answers: list[bool]  # whether the reconciler can say, one by one
    now: int = 0
    state: RunState = field(default_factory=lambda: say.run(say.planned(effect="keyed")))

    def put(self, *entries: e.Entry) -> None:
        for entry in entries:
            self.state.apply(entry)

    @property
    def effect(self) -> Any:
        return say.effect(self.state)

    def world(self) -> World:
        return World(self.now, {"charge": self.facts}, frozenset({"worker-1"}))

    def attempt(self, *, resend: bool = False) -> bool:
        """Send once; return False when the world has no further plan."""
        if not self.plans:
            return False
        plan, number = dict(self.plans.pop(0)), self.effect.attempt + 1
        self.put(say.started(self.now, number, plan=None, resend=resend))
        quiet = self.outside.send(self.now, plan)
        self.now = quiet
        if plan["ends"] == "answered":
            self.put(say.confirmed(quiet, number))
        elif plan["ends"] == "lost":
            self.put(say.lost(quiet, number, quiet_at=quiet))
        else:
            self.put(*recover(self.state, self.world()))
        self.now += plan["rests"]
        return True

    def ask(self) -> None:
        asked_at, says = self.now, self.answers.pop(0) if self.answers else True
        answer = "still_unknown" if not says else "happened" if self.outside.seen(asked_at) else "did_not_happen"
        again = asked_at + ask_delay_ms(self.effect.doubt.asks + 1) if answer == "still_unknown" else 0
        self.put(say.found(asked_at, answer, ask_at=again))
        if answer == "happened" and self.effect.outcome == "unknown":
            self.put(say.confirmed(asked_at, self.effect.attempt, by="finding"))
        self.now += 1

    def drive(self) -> None:
        self.attempt()
        for _ in range(STEPS):
            effect = self.effect
            if effect.outcome == "failed" and not effect.final:
                if not self.attempt():
                    return
            elif effect.outcome == "unknown" or effect.verify_from is not None:
                if not self.act(move_for(effect, self.world())):
                    return
            else:
                return

    def act(self, move: Move) -> bool:
        match move:
            case Ask():
                self.ask()
            case Resend():
                return self.attempt(resend=True)
            case Wait(until=until):
                assert until is not None, "every attempt of this world becomes quiet"
                assert until > self.now, "a wait that is over would turn in a circle"
                self.now = until
            case ProvenAbsent(final=final):
                self.put(
                    say.failed(
                        self.now, self.effect.attempt, reason="absent", final=final, retry_at=self.now, by="finding"
                    )
                )
            case Person():
                return False
        return True


def lived(facts: Facts, plans: list[dict[str, Any]], answers: list[bool], *, keyed: bool) -> Owner:
    owner = Owner(Outside(keyed), facts, list(plans), list(answers))
    owner.drive()
    return owner


PLANS, ANSWERS = st.lists(SENT, min_size=1, max_size=8), st.lists(st.booleans(), max_size=12)


@settings(max_examples=200)
@given(PLANS, ANSWERS)
def test_a_queryable_effect_happens_at_most_once_whatever_is_lost_or_killed(
    plans: list[dict[str, Any]], answers: list[bool]
) -> None:
    """Requirement 33. Requirement 46. Requirement 47."""
    facts = Facts(effect="queryable", visible_ms=VISIBLE, reconcilable=True, timeout_ms=2_000, version="1")

    owner = lived(facts, plans, answers, keyed=False)

    assert len(owner.outside.applied) <= 1
    assert_told_truly(owner)


@settings(max_examples=200)
@given(PLANS, ANSWERS)
def test_a_keyed_effect_happens_at_most_once_though_its_key_expires(
    plans: list[dict[str, Any]], answers: list[bool]
) -> None:
    """Requirement 33. Requirement 47."""
    facts = Facts(
        effect="keyed", key_ttl_ms=KEY_TTL, visible_ms=VISIBLE, reconcilable=True, timeout_ms=2_000, version="1"
    )

    owner = lived(facts, plans, answers, keyed=True)

    assert len(owner.outside.applied) <= 1
    assert_told_truly(owner)


@given(PLANS)
def test_an_irreversible_effect_is_sent_once_and_then_waits_for_a_person(plans: list[dict[str, Any]]) -> None:
    """Requirement 26."""
    owner = lived(Facts(effect="irreversible", version="1"), plans, [], keyed=False)

    assert owner.effect.attempt == 1
    assert len(owner.outside.applied) <= 1


@given(PLANS, ANSWERS)
def test_without_a_declared_bound_no_absence_ever_leads_to_a_second_send(
    plans: list[dict[str, Any]], answers: list[bool]
) -> None:
    facts = Facts(effect="queryable", visible_ms=None, reconcilable=True, version="1")

    assert lived(facts, plans, answers, keyed=False).effect.attempt == 1


def test_a_world_that_breaks_the_declared_bound_is_found_out() -> None:
    """A request that lands after its absence was proven stands next to its own resend: the last question finds two."""
    facts = Facts(effect="queryable", visible_ms=VISIBLE, reconcilable=True, timeout_ms=2_000, version="1")
    late = {"ends": "lost", "takes": 10, "lands": None, "shows": 0, "rests": 0}
    answered = {"ends": "answered", "takes": 10, "lands": 0, "shows": 0, "rests": 0}
    owner = Owner(Outside(keyed=False), facts, [late, answered], [])
    owner.attempt()
    while owner.effect.outcome == "unknown":
        owner.act(move_for(owner.effect, owner.world()))
    owner.attempt()

    owner.outside.applied.append((owner.now, owner.now))  # the first request arrives after all

    assert owner.effect.outcome == "confirmed"
    assert isinstance(move_for(owner.effect, owner.world()), Wait)
    owner.now += VISIBLE
    assert isinstance(move_for(owner.effect, owner.world()), Ask)


def assert_told_truly(owner: Owner) -> None:
    """Assert that what the record says is what the outside's own ledger says."""
    if owner.effect.outcome == "confirmed":
        assert len(owner.outside.applied) == 1
    if owner.effect.outcome == "failed":
        assert owner.outside.applied == []
