"""What one held run writes: its appends, what its attempts saw when it is lost, identities, and large values."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core import messages
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.decide import World
from milepost.core.history import undoing
from milepost.core.limit_entries import Overspent
from milepost.core.queues import Place
from milepost.errors import Damaged, EpochLost
from milepost.runtime.session import BY_REFERENCE_BYTES, MERGEABLE, Session
from milepost.stores.api import EffectRow, OnceSettled
from tests.core import samples as s
from tests.runtime.sessions import NOW, OTHER, STEP, engine_of, held


def written(session: Session, *entries: e.Entry, **beside: Any) -> None:
    """Queue an append without waiting for it: nothing commits here."""
    assert session.queue(*entries, **beside) is not None


# ---------------------------------------------------------------- what it looks at


def test_a_decision_sees_all_that_its_session_knows() -> None:
    session = held(deadline=9, place=Place(begins_at=8))
    session.blocks, session.migrates, session.dead = ("because",), ("2",), frozenset({"worker-9"})
    workflow: Any = "flow"
    session.workflow = workflow

    assert session.world() == World(
        NOW, session.facts, frozenset({"worker-9"}), ("because",), 9, False, False, ("2",), "manifest of flow", 8
    )
    assert held().world().code == ""


# ---------------------------------------------------------------- what it writes


def test_what_is_put_in_a_row_is_one_append_until_the_writer_has_taken_it() -> None:
    session = held()
    engine = engine_of(session)

    session.put(s.started())
    session.put(s.confirmed(), **dict.fromkeys(MERGEABLE))
    engine.turn += 1
    session.put(e.SleepStarted(at=NOW, step=OTHER, until=NOW))
    session.put(e.SleepEnded(at=NOW, step=OTHER), lease=("worker-1", 1))
    written(session, e.SleepStarted(at=NOW, step=":2", until=NOW))
    session.put(e.SleepEnded(at=NOW, step=":2"))

    assert [len(append.entries) for append in engine.appends] == [2, 1, 1, 1, 1]
    assert engine.more_entries == 1


@pytest.mark.parametrize(("busy", "runs", "alone"), [(0, 1, True), (1, 1, True), (2, 1, False), (1, 2, False)])
def test_a_session_is_alone_where_no_other_branch_or_run_is_busy(busy: int, runs: int, *, alone: bool) -> None:
    session = held()
    session.busy = busy
    session.engine.sessions.update({f"run-{n}": session for n in range(2, runs + 1)})

    written(session, s.started())

    assert engine_of(session).alone == [alone]


def test_an_append_is_of_the_moment_of_its_first_entry_or_of_now() -> None:
    session = held()

    written(session, s.started(at=7), s.confirmed(at=8))
    written(session)

    assert [append.at for append in engine_of(session).appends] == [7, NOW]


def test_what_a_transaction_settles_shows_no_row_of_its_start() -> None:
    session = held()

    written(session, s.started())
    written(session, s.started(step=OTHER), work=lambda _: [])

    first, second = engine_of(session).appends
    assert [(row.step, row.outcome) for row in first.effects] == [(STEP, "started")]
    assert [*second.effects] == [EffectRow(OTHER, None)]


def test_what_was_overspent_is_written_with_the_alarm_and_not_again() -> None:
    session = held(s.started())
    amounts = s.usd(3)
    alarm = Overspent(at=NOW, step=STEP, path=s.PATH, attempt=1, reserved={}, spent=amounts, over=amounts)

    written(session, alarm)
    written(session, s.confirmed())

    assert [append.overspent for append in engine_of(session).appends] == [amounts, {}]


def test_what_is_asked_of_a_person_and_what_became_of_it_is_written_beside() -> None:
    session = held(s.planned())
    asked = e.ApprovalAsked(at=NOW, step=STEP, id="ap-1", tool_version="1", digest="d1")

    written(session, asked)
    written(session, e.ApprovalAnswered(at=NOW, id="ap-1", approved=True, by="ann"))

    first, second = engine_of(session).appends
    assert ([row.id for row in first.approvals], [*first.answers]) == (["ap-1"], [])
    assert ([*second.approvals], [*second.answers]) == ([], [("ap-1", "approved", "ann")])


@pytest.mark.parametrize("beside", [(), (s.planned(step=OTHER),)])
def test_what_a_start_uses_is_written_beside_it_as_used_alone_or_behind_others(beside: tuple[e.Entry, ...]) -> None:
    asked = e.ApprovalAsked(at=NOW, step=STEP, id="ap-1", tool_version="1", digest="d1")
    session = held(s.planned(), asked, e.ApprovalAnswered(at=NOW, id="ap-1", approved=True, by="ann"))

    written(session, *beside, s.started(plan=None, approval="ap-1"))

    (append,) = engine_of(session).appends
    assert ([*append.approvals], [*append.answers]) == ([], [("ap-1", "used", "ann")])


def test_a_start_that_uses_none_or_one_that_is_no_more_open_says_nothing_of_approvals() -> None:
    asked = e.ApprovalAsked(at=NOW, step=STEP, id="ap-1", tool_version="1", digest="d1")
    gone = ApprovalClosed(at=NOW, id="ap-1", standing="superseded", why="changed")
    session = held(s.planned(), asked, gone)

    written(session, s.started(step=OTHER))
    written(session, s.started(plan=None, approval="ap-1"))

    assert [[*append.answers] for append in engine_of(session).appends] == [[], []]


def test_what_is_said_of_approvals_beside_a_start_is_written_as_well() -> None:
    asked = e.ApprovalAsked(at=NOW, step=STEP, id="ap-1", tool_version="1", digest="d1")
    session = held(s.planned(), asked, e.ApprovalAnswered(at=NOW, id="ap-1", approved=True, by="ann"))

    written(session, s.started(plan=None, approval="ap-1"), answers=[("ap-2", "withdrawn", "ann")])

    (append,) = engine_of(session).appends
    assert [*append.answers] == [("ap-1", "used", "ann"), ("ap-2", "withdrawn", "ann")]


def test_nothing_is_written_by_a_session_that_was_dropped() -> None:
    session = held()
    session.drop(error := EpochLost(s.RUN, 1))
    session.drop(ValueError("a second reason"))

    with pytest.raises(EpochLost) as raised:
        session.put(s.started())

    assert raised.value is error
    assert (engine_of(session).told_of, session.unloading, session.state.steps) == ([error], True, {})


# ---------------------------------------------------------------- what its attempts saw


def posted(session: Session) -> list[tuple[str, messages.AnyMessage]]:
    return [(post.message_id, messages.decode(post.body)) for post in engine_of(session).posts]


def test_what_was_seen_and_may_not_be_written_goes_to_the_inbox_and_nothing_else_does() -> None:
    """An append that was taken two turns ago is durable; the last one may be refused, and what waits will be."""
    session = held(s.started(), s.started(step=OTHER), s.started(step=":2"))
    engine = engine_of(session)
    for turn, step in ((5, STEP), (6, OTHER), (7, ":2")):
        engine.turn = turn
        session.put(s.confirmed(step=step), saw=(s.effect(session.state, step), 1, "returned", b'"ok"', ""))

    session.drop(EpochLost(s.RUN, 1))

    assert [message.step for _, message in posted(session) if isinstance(message, messages.Evidence)] == [OTHER, ":2"]


def test_a_store_that_failed_makes_no_evidence() -> None:
    session = held(s.started())
    session.put(s.confirmed(), saw=(s.effect(session.state), 1, "returned", b'"ok"', ""))

    session.drop(ValueError("the store failed"))

    assert posted(session) == []


def test_evidence_names_the_effect_the_attempt_and_the_visit_it_was_made_in() -> None:
    session = held(s.started())
    effect = s.effect(session.state)

    session.evidence(effect, 2, "returned", b'"ok"', "why", visit=3)
    session.evidence(effect, 1, "unknown")

    facts: dict[str, Any] = {"at": NOW, "by": "worker-1", "step": STEP, "path": effect.path, "key": "k1"}
    assert posted(session) == [
        (
            f"evidence:3:{STEP}:k1:2:returned",
            messages.Evidence(**facts, visit=3, attempt=2, saw="returned", value=msgspec.Raw(b'"ok"'), why="why"),
        ),
        (f"evidence:0:{STEP}:k1:1:unknown", messages.Evidence(**facts, visit=0, attempt=1, saw="unknown")),
    ]
    assert [(post.run_id, post.at) for post in engine_of(session).posts] == [(s.RUN, NOW)] * 2


def test_a_read_leaves_no_evidence() -> None:
    session = held(s.started(effect="read"))

    session.evidence(s.effect(session.state), 1, "returned")

    assert posted(session) == []


# ---------------------------------------------------------------- identities


def identified(at: int = 10) -> e.EffectStarted:
    return s.started(plan=s.planned(at, once="i-1"))


FREED = OnceSettled("acme", "charge", "i-1", None, None, STEP)


@pytest.mark.parametrize(
    ("entries", "settled"),
    [
        ((s.confirmed(),), [OnceSettled("acme", "charge", "i-1", "confirmed", b'"ok"', STEP)]),
        ((s.failed(final=True, retry_at=None),), [FREED]),
        ((s.failed(),), []),
        ((s.lost(),), []),
        ((s.failed(), e.RunStopped(at=NOW, status="failed", code="x", why="")), [FREED]),
        ((s.failed(), e.RunStopped(at=NOW, status="blocked", code="x", why="")), []),
        ((s.lost(), e.RunStopped(at=NOW, status="failed", code="x", why="")), []),
    ],
)
def test_an_identity_is_settled_with_its_effect_and_set_free_where_that_is_left_behind(
    entries: tuple[e.Entry, ...], settled: list[OnceSettled]
) -> None:
    session = held(identified())

    written(session, *entries)

    assert [*engine_of(session).appends[0].once_settled] == settled


def test_what_failed_and_was_contradicted_keeps_its_identity_when_its_run_ends() -> None:
    contradicted = e.Contradicted(at=NOW, step=STEP, evidence="it is there", by="evidence", tool="charge")
    session = held(identified(), s.failed(), contradicted)

    written(session, e.RunStopped(at=NOW, status="failed", code="x", why=""))

    assert [*engine_of(session).appends[0].once_settled] == []


def going_back() -> Session:
    undo = [
        e.Undo(visit=0, step=step, path=s.PATH, tool="charge", with_="refund", result=s.NULL, once=once)
        for step, once in ((STEP, "i-1"), (OTHER, "i-2"), (":2", None))
    ]
    return held(e.RewindAsked(at=NOW, to=0, by="ann", boundary=s.boundary(), undo=tuple(undo)))


@pytest.mark.parametrize(("ended", "settled"), [(s.confirmed, [FREED]), (s.failed, []), (s.lost, [])])
def test_an_identity_is_set_free_with_the_confirmation_of_what_undoes_it(
    ended: Callable[..., e.Entry], settled: list[OnceSettled]
) -> None:
    session = going_back()
    written(session, s.started(step=undoing(0, STEP)))

    written(session, ended(step=undoing(0, STEP)))

    assert [*engine_of(session).appends[-1].once_settled] == settled


def test_what_was_undone_sets_its_own_identity_free_and_no_other_one() -> None:
    session = going_back()

    assert session.undone(undoing(0, STEP)) == [FREED]
    assert session.undone(undoing(0, ":2")) == session.undone(undoing(1, STEP)) == session.undone(STEP) == []
    assert held().undone(undoing(0, STEP)) == []


# ---------------------------------------------------------------- values


async def test_a_large_value_stands_by_reference_and_is_read_back() -> None:
    session = held()
    small, large = b'"%s"' % (b"x" * (BY_REFERENCE_BYTES - 2)), b'"%s"' % (b"x" * (BY_REFERENCE_BYTES - 1))
    like_a_reference = b'{"$ref":"abc"}'

    assert session.stow(small) == (msgspec.Raw(small), None)
    for value in (large, like_a_reference):
        raw, chunks = session.stow(value)
        assert bytes(raw) != value
        assert [*(chunks or {}).values()] == [value]
        assert await session.fetch(raw) == value
    assert await session.fetch(None) == b"null"
    assert await session.fetch(msgspec.Raw(small)) == small


async def test_a_value_of_another_process_is_asked_for_and_its_damage_stops_the_segment() -> None:
    session = held()
    raw, _ = held().stow(b'{"$ref":"abc"}')
    asked_for: list[tuple[str, str]] = []
    answers: list[bytes | Damaged] = [b"7", Damaged(s.RUN, "a chunk is not what its name says")]

    async def verified_chunk(run_id: str, digest: str) -> bytes:
        asked_for.append((run_id, digest))
        answer = answers.pop(0)
        if isinstance(answer, Damaged):
            raise answer
        return answer

    engine: Any = session.engine
    engine.verified_chunk = verified_chunk

    assert await session.fetch(raw) == b"7"
    with pytest.raises(Damaged) as damage:
        await session.fetch(raw)

    assert asked_for == [(s.RUN, bytes(raw)[9:-2].decode())] * 2
    assert (session.fatal, session.unloading) == (damage.value, True)
    session.stop(ValueError("a second reason"))
    assert session.fatal is damage.value
