"""What a call of one held run must have before it starts, and how it is taken back or rests where it has not."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core import codec
from milepost.core import entries as e
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.authority import Granted
from milepost.core.chain import step_key
from milepost.core.policy import Verdict
from milepost.core.pools import Short
from milepost.definitions.rules import PolicyFile
from milepost.errors import Waiting
from milepost.runtime import approvals, gates, ruling, waits
from milepost.runtime.branch import ToolStep
from milepost.runtime.session import Session
from milepost.stores import marks
from milepost.stores.api import OnceRow, OnceTaken, SwitchedOff
from milepost.stores.pools import PoolShort
from milepost.stores.waits import once_scope
from tests.core import samples as s
from tests.runtime.policies import ALLOW, File
from tests.runtime.sessions import NOW, OTHER, STEP, engine_of, held
from tests.runtime.test_what_a_call_rests_on import FROZEN, OPEN, Branch, with_switches

GRANT = e.Widened(at=1, by="ann", budget=s.usd(9))


def paying(**options: Any) -> Any:
    @mp.tool(**{"name": "charge", "effect": "keyed", "key_ttl": "1h", "version": "7", **options})
    async def act(order: str = "o-1") -> str:
        return "ok"

    return act


def step_of(tool: Any, id_: str = STEP) -> Any:
    no_branch: Any = None
    return ToolStep(no_branch, tool, tool.arguments.bind(("o-1",), {}), id_, s.PATH)


def recorded(session: Session) -> list[e.Entry]:
    return [codec.decode(body) for append in engine_of(session).appends for body in append.entries]


def acting_for(session: Session, *scopes: str, **changes: Any) -> Session:
    session.about = msgspec.structs.replace(session.about, authority=Granted("bot", scopes, **changes))
    return session


# ---------------------------------------------------------------- work inside the transaction


def test_the_stop_file_refuses_a_transaction_before_its_work_and_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stands, asked, done = [False, True], [], []

    def stopped(place: str) -> bool:
        asked.append(place)
        return stands.pop(0)

    monkeypatch.setattr(marks, "stopped", stopped)

    def work(tx: Any) -> list[bytes]:
        done.append(tx)
        return [b"x"]

    guarded = gates.unless_halted("place", work)

    with pytest.raises(gates.Halted):
        guarded("tx")
    stands[:] = [True]
    with pytest.raises(gates.Halted):
        guarded("not reached")
    stands[:] = [False, False]
    assert guarded("again") == [b"x"]
    assert (done, asked) == (["tx", "again"], ["place"] * 5)


def test_whatever_work_raises_refuses_its_own_append() -> None:
    def fails(tx: Any) -> list[bytes]:
        raise RuntimeError(tx)

    with pytest.raises(gates.WorkFailed, match="why") as raised:
        gates.certain(fails)("why")

    assert raised.value.error is raised.value.__cause__
    assert isinstance(raised.value.error, RuntimeError)
    assert gates.certain(lambda tx: [tx])(b"x") == [b"x"]


# ---------------------------------------------------------------- the gate


def test_a_plan_says_what_will_be_sent_and_under_which_key() -> None:
    session, tool = held(), paying(once="order")
    session.state.visit, session.state.generation = 3, 2
    step = step_of(tool)

    assert gates.planned(session, step, 77) == e.EffectPlanned(
        at=77, step=STEP, path=s.PATH, tool="charge", version="7", effect="keyed", digest=step.bound.digest,
        args=msgspec.Raw(step.bound.data), key=step_key("store", s.RUN, 3, STEP, 2), once='["o-1"]',
    )  # fmt: skip


def test_a_tool_is_stopped_by_the_switches_of_all_that_it_belongs_to() -> None:
    session = held()

    found = gates.scopes(session, paying())

    assert found == ("all", "tool:charge", "workflow:flow", "tenant:acme")
    assert gates.scopes(session, paying()) is found
    assert gates.scopes(session, paying(name="other"))[1] == "tool:other"


def test_nothing_starts_in_a_run_that_closes() -> None:
    session = held()
    session.draining = True

    assert gates.gate(session, step_of(paying()), None) == Waiting("switch")


def test_a_scope_that_is_missing_is_asked_for_and_one_that_was_granted_or_taken_counts() -> None:
    step = step_of(paying(scopes=["b", "a"]))
    ask = Waiting("authority", None, f"milepost grant {s.RUN} a b")

    assert gates.gate(held(), step, None) == ask
    assert gates.gate(acting_for(held(), "a", "b"), step, None) is None
    assert gates.gate(held(e.Widened(at=1, by="ann", scopes=("a", "b"))), step, None) is None
    taken = acting_for(held(), "a", "b")
    taken.state.revoked = ("b",)
    assert gates.gate(taken, step, None) == Waiting("authority", None, f"milepost grant {s.RUN} b")


def test_under_an_authority_that_expired_nothing_starts() -> None:
    session = acting_for(held(), expires_at=NOW)
    ask = f"the authority of 'bot' expired: start a new run, or milepost cancel {s.RUN}"

    assert gates.gate(session, step_of(paying()), None) == Waiting("authority", None, ask)
    assert gates.gate(acting_for(held(), expires_at=NOW + 1), step_of(paying()), None) is None


def test_a_policy_is_asked_with_the_worst_case_and_its_answer_stands_at_the_call(tmp_path: Path) -> None:
    file = File(tmp_path / "policy.toml")
    tool, asked = paying(), []

    @tool.cost  # type: ignore[untyped-decorator]
    def _(order: str) -> dict[str, int]:
        asked.append(order)
        return {"usd": 2}

    session, step = held(GRANT), step_of(tool)
    engine: Any = session.engine
    engine.policy = PolicyFile(file.says(ALLOW, 'dear; deny; when = "budget.cost.usd > 1"'))

    verdict = gates.gate(session, step, None)
    assert isinstance(verdict, Verdict)
    assert (verdict.rule, step.verdict, asked) == ("dear", verdict, ["o-1"])

    asked.clear()
    file.says('cheap; allow; when = "budget.cost.usd < 9"')
    assert gates.gate(session, step, None) is None
    assert (step.cost, asked) == (s.usd(2), ["o-1"]), "the policy and the budget see the same amounts"

    file.says('other; allow; tool = "x"')
    waiting = gates.gate(session, step, None)
    assert waiting == ruling.waiting_for(session, step.verdict, s.PATH)

    file.says(ALLOW, 'large; ask; tool = "charge"')
    waiting = gates.gate(session, step, None)
    assert isinstance(waiting, Waiting)
    assert (waiting.reason, step.asking.rule) == ("approval", "large")
    sent = held(s.started())
    engine = sent.engine
    engine.policy = session.engine.policy
    s.effect(sent.state).approval = "ap-1"
    assert gates.gate(sent, step_of(paying()), s.effect(sent.state)) is None


def test_what_is_missing_of_the_budget_is_asked_for() -> None:
    step = step_of(paying(cost={"usd": Decimal("30.50"), "eur": 1}))
    grant = e.Widened(at=1, by="ann", budget={"usd": Decimal("10.5"), "eur": Decimal(1)})

    assert gates.gate(held(grant), step, None) == Waiting("budget", None, f"milepost grant {s.RUN} --budget usd=20")
    both = f"milepost grant {s.RUN} --budget usd=30.5 --budget eur=1"
    assert gates.gate(held(), step, None) == Waiting("budget", None, both)
    assert step.cost == {"usd": Decimal("30.50"), "eur": Decimal(1)}


def test_a_call_reserves_once_and_a_read_that_was_lost_again() -> None:
    tool, read = paying(cost={"usd": 2}), paying(effect="read", key_ttl=None, cost={"usd": 2})
    for entries, called, cost in (
        ((GRANT,), tool, s.usd(2)),
        ((GRANT, s.started(reserve=s.usd(2)), s.failed()), tool, {}),
        ((GRANT, s.started(), s.failed()), tool, s.usd(2)),
        ((GRANT, s.started(reserve=s.usd(2)), s.lost()), tool, {}),
        ((GRANT, s.started(effect="read", reserve=s.usd(2)), s.lost()), read, s.usd(2)),
        ((GRANT,), paying(), {}),
    ):
        session, step = held(*entries), step_of(called)
        assert gates.gate(session, step, session.state.steps.get(STEP)) is None  # type: ignore[arg-type]
        assert step.cost == cost


# ---------------------------------------------------------------- what is recorded of waiting


def test_what_waits_is_planned_once_and_asks_its_question() -> None:
    session, tool = held(), paying(approval=True)
    step = step_of(tool)
    plan = gates.planned(session, step, NOW)

    gates.plan(session, step, None, Waiting("budget"))
    assert recorded(session) == [plan]
    gates.plan(session, step, s.effect(session.state), Waiting("budget"))
    assert recorded(session) == [plan]
    older = step_of(paying(version="6", approval=True))
    approvals.waiting_for(session, older, None)
    session.put(older.asking)
    waiting = approvals.waiting_for(session, step, None)
    assert waiting is not None
    gates.plan(session, step, s.effect(session.state), Waiting("budget"))
    assert len(recorded(session)) == 2
    gates.plan(session, step, s.effect(session.state), waiting)
    closed, asked = recorded(session)[2:]
    assert isinstance(closed, ApprovalClosed)
    assert (closed.id, asked) == (older.asking.id, step.asking)
    step.asking = None
    gates.plan(session, step, s.effect(session.state), waiting)
    assert len(recorded(session)) == 4


def test_what_asks_before_it_is_known_is_planned_with_its_question() -> None:
    session, step = held(), step_of(paying(approval=True))
    waiting = approvals.waiting_for(session, step, None)
    assert waiting is not None

    gates.plan(session, step, None, waiting)

    assert recorded(session) == [gates.planned(session, step, NOW), step.asking]


def test_what_a_rule_denies_is_planned_and_fails() -> None:
    session, step = held(), step_of(paying())
    plan = gates.planned(session, step, NOW)
    verdict = Verdict("deny", "never")

    gates.deny(session, step, None, verdict)

    entries = recorded(session)
    assert (entries[0], [type(entry) for entry in entries[1:]]) == (plan, [e.EffectFailed])
    known = held(s.planned())
    gates.deny(known, step, s.effect(known.state), verdict)
    assert [type(entry) for entry in recorded(known)] == [e.EffectFailed]
    read = held(GRANT, s.started(effect="read", reserve=s.usd(2)), s.lost())
    gates.deny(read, step_of(paying(effect="read", key_ttl=None)), s.effect(read.state), verdict)
    (failed,) = recorded(read)
    assert isinstance(failed, e.EffectFailed)
    assert (failed.attempt, failed.spent) == (1, s.usd(2))


# ---------------------------------------------------------------- resting


async def test_an_effect_that_is_unknown_is_settled_while_its_call_rests() -> None:
    session = held()
    branch: Any = Branch(session, lambda: None)

    await gates.wait_unknown(branch, step_of(paying()))

    assert branch.seen == [({STEP: Waiting("unknown")}, {}, {})]
    assert engine_of(session).settled == 1


async def test_a_switch_is_rested_on_unless_it_lets_a_probe_pass() -> None:
    session, step = held(), step_of(paying())
    store = with_switches(session, OPEN)
    branch: Any = Branch(session)

    await gates.wait_switch(branch, step, None, SwitchedOff(OPEN))
    assert (branch.seen, store.reads, recorded(session)) == ([], 1, [])

    with_switches(session, FROZEN)
    asked = Branch(session, lambda: engine_of(session).stops.again)
    asked.meanwhile = [lambda: with_switches(session)]
    await gates.wait_refused(asked, step, None, SwitchedOff(FROZEN), frozenset())  # type: ignore[arg-type]
    assert [seen[0][STEP] for seen in asked.seen] == [waits.waiting_for(session, step.tool, FROZEN)]
    assert recorded(session) == [gates.planned(session, step, NOW)]
    known = Branch(session, lambda: with_switches(session))
    with_switches(session, FROZEN)
    await gates.wait_switch(known, step, s.effect(session.state), SwitchedOff(FROZEN))  # type: ignore[arg-type]
    assert len(recorded(session)) == 1


async def test_a_shared_budget_that_is_short_is_rested_on() -> None:
    session, step = held(s.started(step=OTHER)), step_of(paying())
    short = Short("total", "ever", "usd", Decimal(5), Decimal(2), Decimal(0))
    session.state.ledger.reserve(OTHER, s.usd(1), 1)

    branch: Any = Branch(session, lambda: session.state.ledger.release(OTHER))
    await gates.wait_refused(branch, step, None, PoolShort(short), frozenset({OTHER}))

    asked = Waiting("budget", None, "milepost budget set total usd=7 --why …")
    assert [seen[0] for seen in branch.seen] == [{STEP: asked}]
    assert recorded(session) == [gates.planned(session, step, NOW)]
    await gates.wait_pool(branch, step, s.effect(session.state), PoolShort(short), frozenset({OTHER}))
    assert (len(branch.seen), len(recorded(session))) == (1, 1)


async def test_a_stop_file_is_rested_on() -> None:
    session, step = held(), step_of(paying())
    engine_of(session).halted = True

    def lifted() -> None:
        engine_of(session).halted = False

    branch: Any = Branch(session, lifted)
    await gates.wait_refused(branch, step, None, gates.Halted(), frozenset())

    assert [seen[0][STEP].reason for seen in branch.seen] == ["switch"]


# ---------------------------------------------------------------- an identity that is taken


def row_of(step: Any, **changes: Any) -> OnceTaken:
    facts: dict[str, Any] = {
        "run_id": "run-2", "step": ":5", "digest": step.bound.digest, "outcome": "confirmed", "result": b'"theirs"',
    }  # fmt: skip
    facts |= changes
    return OnceTaken(OnceRow(facts["run_id"], facts["step"], facts["digest"], facts["outcome"], facts["result"]))


FIRST = "run run-2 claimed the same identity"


async def refused(session: Session, step: Any, taken: OnceTaken, *meanwhile: Any) -> tuple[list[e.Entry], Any]:
    branch: Any = Branch(session, *meanwhile)
    effect: Any = session.state.steps.get(STEP)
    await gates.wait_refused(branch, step, effect, taken, frozenset())
    return recorded(session), branch


@pytest.mark.parametrize(("result", "value"), [(b'"theirs"', b'"theirs"'), (None, b"null")])
async def test_the_outcome_of_whoever_was_first_is_taken_over(result: bytes | None, value: bytes) -> None:
    session, step = held(), step_of(paying(once="order"))

    (plan, confirmed), _ = await refused(session, step, row_of(step, result=result))

    assert plan == gates.planned(session, step, NOW)
    assert confirmed == e.EffectConfirmed(
        at=NOW, step=STEP, attempt=0, result=msgspec.Raw(value), by="once", why=FIRST, spent={}
    )
    assert [append.once_settled for append in engine_of(session).appends][-1] == []


async def test_a_result_by_reference_is_read_from_the_run_that_was_first() -> None:
    session, step = held(), step_of(paying(once="order"))
    asked: list[tuple[str, str]] = []

    async def verified_chunk(run_id: str, digest: str) -> bytes:
        asked.append((run_id, digest))
        return b'"' + b"x" * 300_000 + b'"'

    engine: Any = session.engine
    engine.verified_chunk = verified_chunk

    entries, _ = await refused(session, step, row_of(step, result=b'{"$ref":"abc"}'))

    assert asked == [("run-2", "abc")]
    (chunk,) = engine.appends[-1].chunks.values()
    assert len(chunk) == 300_002
    confirmed = entries[-1]
    assert isinstance(confirmed, e.EffectConfirmed)
    assert bytes(confirmed.result or b"").startswith(b'{"$ref":"')


async def test_other_arguments_under_the_same_identity_are_a_conflict() -> None:
    session, step = held(s.planned(once='["o-1"]')), step_of(paying(once="order"))

    entries, _ = await refused(session, step, row_of(step, digest="other"))

    why = f"{FIRST} with other arguments (step :5)"
    assert entries == [
        e.EffectFailed(at=NOW, step=STEP, attempt=0, why=why, reason="conflict", final=True),
    ]
    assert [append.once_settled for append in engine_of(session).appends] == [()]


async def test_what_was_tried_elsewhere_and_done_here_is_a_conflict() -> None:
    session, step = held(s.started(), s.failed()), step_of(paying(once="order"))
    s.effect(session.state).once = '["o-1"]'

    entries, _ = await refused(session, step, row_of(step))

    why = f"{FIRST}, and has done it here (step :5)"
    assert entries == [
        e.EffectFailed(at=NOW, step=STEP, attempt=1, why=why, reason="conflict", final=True, by="once"),
    ]
    assert [append.once_settled for append in engine_of(session).appends] == [()]


async def test_an_identity_without_an_outcome_is_rested_on() -> None:
    session, step = held(), step_of(paying(once="order"))
    rows = [row_of(step, outcome="pending", result=None).row, None]

    async def once(*_: str) -> OnceRow | None:
        return rows.pop()

    engine_of(session).store.once = once

    entries, branch = await refused(session, step, row_of(step, outcome="pending", result=None), lambda: None)

    assert entries == [gates.planned(session, step, NOW)]
    assert [seen[2][STEP].scope for seen in branch.seen] == [once_scope("acme", "charge", '["o-1"]')]


# ---------------------------------------------------------------- what is known of attempts


@pytest.mark.parametrize(
    ("entries", "number", "unsettled"),
    [
        ((s.started(), s.lost(), s.started(attempt=2, resend=True)), 2, True),
        ((s.started(), s.lost(), s.started(attempt=2, resend=True)), 1, False),
        ((s.started(), s.failed(), s.started(attempt=2)), 2, False),
        ((s.started(), s.lost(quiet_at=20), *s.absent(), s.started(attempt=2)), 2, True),
        ((s.started(effect="read"), s.lost(), s.started(attempt=2, effect="read", resend=True)), 2, False),
    ],
)
def test_an_earlier_attempt_may_still_have_happened(
    entries: tuple[e.Entry, ...], number: int, *, unsettled: bool
) -> None:
    assert gates.earlier_unsettled(s.effect(s.run(*entries)), number) is unsettled


def test_a_branch_stays_closed_while_what_closed_it_is_unsettled() -> None:
    assert gates.still_open(held(s.started(), s.lost()), STEP)
    assert not gates.still_open(held(s.started(), s.confirmed()), STEP)
    assert not gates.still_open(held(), STEP)
