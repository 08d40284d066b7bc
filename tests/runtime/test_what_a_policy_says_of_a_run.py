"""What rules see of a call of one held run, and what follows from their answer."""

import logging
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import milepost as mp
from milepost.core import codec, messages
from milepost.core import entries as e
from milepost.core.authority import Granted
from milepost.core.policy import Request, Verdict
from milepost.definitions.rules import PolicyFile
from milepost.errors import InvalidValue, Waiting
from milepost.runtime import ruling
from milepost.runtime.branch import ToolStep
from milepost.runtime.session import Session
from milepost.stores.api import Query
from tests.core import samples as s
from tests.runtime.policies import ALLOW, File
from tests.runtime.sessions import NOW, OTHER, STEP, engine_of, held

GRANT = e.Widened(at=1, by="ann", budget={"usd": Decimal(9), "eur": Decimal(1)})
ASKED = e.ApprovalAsked(at=5, step=STEP, id="ap-1", tool_version="1", digest="d1")
RULE = "large; {}; tool = \"charge\"; why = 'too much'"


@pytest.fixture
def policy(tmp_path: Path) -> File:
    return File(tmp_path / "policy.toml")


def costing(**options: Any) -> Any:
    @mp.tool(
        **{
            "name": "charge", "effect": "keyed", "key_ttl": "1h", "version": "7", "risk": "high", "scopes": ["pay"],
            "cost": {"usd": 2}, **options,
        }
    )  # fmt: skip
    async def act(order: str = "o-1") -> str:
        return "ok"

    return act


def step_of(tool: Any, id_: str = STEP) -> Any:
    no_branch: Any = None
    return ToolStep(no_branch, tool, tool.arguments.bind(("o-1",), {}), id_, s.PATH)


def under(session: Session, path: str) -> PolicyFile:
    engine: Any = session.engine
    engine.policy = found = PolicyFile(path)
    found.current()
    return found


def recorded(session: Session) -> list[e.Entry]:
    return [codec.decode(body) for append in engine_of(session).appends for body in append.entries]


# ---------------------------------------------------------------- what rules see


def test_rules_see_a_call_by_what_its_tool_declares_and_who_the_run_acts_for() -> None:
    session, tool = held(), costing()

    request = ruling.request_of(session, tool, step_of(tool).bound, STEP)

    shown = Request("charge", "7", "keyed", "high", frozenset({"pay"}), "acme", "flow", "pay", "bot", request.views)
    assert request == shown
    assert (list(request.views), len(request.views)) == (["args", "authority", "budget", "provenance"], 4)
    session.state.segment = None
    assert ruling.request_of(session, tool, step_of(tool).bound, STEP).segment == ""


def test_conditions_see_the_arguments_the_authority_the_money_and_what_was_heard() -> None:
    session = held(
        GRANT,
        e.Widened(at=1, by="ann", scopes=("more",)),
        s.started(reserve={"usd": Decimal(2)}),
        s.started(step=OTHER, reserve={"usd": Decimal(3)}),
        s.confirmed(step=OTHER, spent={"usd": Decimal("1.5")}),
    )
    session.about = msgspec.structs.replace(session.about, authority=Granted("bot", ("pay",), expires_at=NOW + 1))
    tool = costing(cost={"usd": 2, "gbp": 1})

    views = {name: view() for name, view in ruling.request_of(session, tool, step_of(tool).bound, STEP).views.items()}

    assert views["args"] == {"order": "o-1"}
    assert views["authority"] == {"principal": "bot", "scopes": ("more", "pay"), "expires_at": NOW + 1}
    session.about = msgspec.structs.replace(session.about, authority=Granted("bot", tenant="acme"))
    of_a_tenant = ruling.request_of(session, tool, step_of(tool).bound, STEP).views["authority"]()
    assert of_a_tenant == {"principal": "bot", "tenant": "acme", "scopes": ("more",)}
    assert views["budget"] == {
        "left": {"usd": 7.5, "eur": 1.0, "gbp": 0.0},
        "cost": {"usd": 2.0, "gbp": 1.0},
    }
    assert {type(amount) for part in views["budget"].values() for amount in part.values()} == {float}
    assert views["provenance"] == {"after": []}
    later = ruling.request_of(session, tool, step_of(tool).bound, ":2").views
    assert later["provenance"]() == {"after": ["charge"]}
    assert later["budget"]()["left"]["usd"] == 5.5


def test_what_a_comparison_finds_of_a_call_is_what_conditions_see_or_nothing() -> None:
    @mp.tool(name="charge", effect="keyed", key_ttl="1h", cost={"usd": 2, "gbp": 1})
    async def act(order: str, cents: int, rate: float, sure: bool, many: list[int], much: Decimal) -> str:  # noqa: FBT001
        return "ok"

    session = held(GRANT, s.started(reserve={"usd": Decimal(2)}), s.started(step=OTHER, reserve={"usd": Decimal(3)}))
    no_branch: Any = None
    bound = act.arguments.bind(("o-1", 2**70, 0.5, True, [1], Decimal("1.5")), {})
    for id_ in (STEP, OTHER, ":2"):
        step = ToolStep(no_branch, act, bound, id_, s.PATH)
        views = {name: view() for name, view in ruling.request_of(session, act, bound, id_).views.items()}
        find = ruling._Plain(session, step, ruling.WorstCase(act, bound))

        for name in ("order", "cents", "rate"):
            assert find(("args", name)) == views["args"][name], name
            assert type(find(("args", name))) is type(views["args"][name])
        assert [find(("args", name)) for name in ("sure", "many", "much", "gone", "__module__")] == [None] * 5
        for which in ("left", "cost"):
            for unit in ("usd", "eur", "gbp", "tokens"):
                assert find(("budget", which, unit)) == views["budget"][which].get(unit), (which, unit)


def test_what_a_call_costs_at_worst_is_worked_out_once() -> None:
    asked: list[str] = []
    tool = costing(cost=None)

    @tool.cost  # type: ignore[untyped-decorator]
    def _(order: str) -> dict[str, int]:
        asked.append(order)
        return {"usd": 2}

    worst = ruling.WorstCase(tool, step_of(tool).bound)

    assert worst.amounts() is worst.amounts()
    assert (worst.amounts(), asked) == ({"usd": Decimal(2)}, ["o-1"])
    given = ruling.request_of(held(), tool, step_of(tool).bound, STEP, worst).views["budget"]()
    assert (given["cost"], asked) == ({"usd": 2.0}, ["o-1"])


def test_a_cost_that_is_no_amount_is_an_error_of_its_tool() -> None:
    tool = costing(cost=None)

    @tool.cost  # type: ignore[untyped-decorator]
    def _(order: str) -> dict[str, Any]:
        return {"usd": 0.5}

    with pytest.raises(InvalidValue):
        ruling.WorstCase(tool, step_of(tool).bound).amounts()


def test_without_a_policy_everything_is_allowed_and_with_one_the_call_is_decided(policy: File) -> None:
    session = held()
    step = step_of(costing())
    assert ruling.verdict_on(session, step) == Verdict("allow")

    found = under(session, policy.says(ALLOW, 'poor; deny; when = "budget.left.usd < budget.cost.usd"'))

    assert ruling.verdict_on(session, step).rule == "poor"
    session.put(GRANT)
    verdict = ruling.verdict_on(session, step)
    assert (verdict.answer, verdict.rule, verdict.policy) == ("allow", "all", found.label)
    free = ruling.WorstCase(costing(cost={"usd": 100}), step.bound)
    assert ruling.verdict_on(session, step, free).rule == "poor"
    session.put(s.started(reserve={"usd": Decimal(9)}))
    assert ruling.verdict_on(session, step).rule == "all", "what the call has reserved is left for it"


def test_calls_of_one_session_are_each_decided_by_the_file_as_it_is_then(policy: File) -> None:
    session = held(GRANT)
    step = step_of(costing())
    found = under(session, policy.says('rich; allow; when = "budget.left.usd > 8.0"'))

    def decided() -> list[tuple[str, str, bool]]:
        verdicts = [ruling.verdict_on(session, step) for _ in range(3)]  # from the second on by comparisons alone
        return [(verdict.answer, verdict.rule, verdict.policy == found.label) for verdict in verdicts]

    assert decided() == [("allow", "rich", True)] * 3
    policy.says('costs; deny; when = "budget.cost.usd >= 2.0"', ALLOW)
    assert decided() == [("deny", "costs", True)] * 3
    policy.says('rich; allow; when = "budget.left.usd > 9.0"')
    assert decided() == [("deny", "", True)] * 3
    policy.holds("no policy")
    assert decided() == [("deny", "", False)] * 3
    policy.says("order; allow; when = 'args.order == \"o-1\"'")
    assert decided() == [("allow", "order", True)] * 3


# ---------------------------------------------------------------- what follows from a denial


def test_what_is_denied_by_default_says_what_to_type(policy: File) -> None:
    session = held()
    path = under(session, policy.says(ALLOW)).path

    def ask(verdict: Verdict) -> str:
        waiting = ruling.waiting_for(session, verdict, s.PATH)
        assert (waiting.reason, waiting.until) == ("authority", None)
        return waiting.ask

    check = f"milepost policy check {path}: {s.PATH} is denied"
    assert ask(Verdict("deny", why="nobody said so", policy="3+abc+d", explicit=False)) == (
        f"{check} under version 3: nobody said so"
    )
    assert ask(Verdict("deny", why="unfit", explicit=False)) == f"{check}: unfit"


def test_why_something_was_denied_names_the_rule_and_what_it_says() -> None:
    assert ruling.why_denied(Verdict("deny", "never", "no mail")) == "denied by policy rule 'never': no mail"
    assert ruling.why_denied(Verdict("deny", "never")) == "denied by policy rule 'never'"


def test_a_denial_is_final_and_answers_what_was_asked_for_that_step() -> None:
    other = s.planned(step=OTHER)
    session = held(
        s.planned(), other, ASKED, msgspec.structs.replace(ASKED, id="ap-2", step=OTHER),
        msgspec.structs.replace(ASKED, id="ap-3"), e.ApprovalAnswered(at=6, id="ap-3", approved=False, by="ann"),
    )  # fmt: skip
    verdict = Verdict("deny", "never", "no mail", "3+abc")
    before: list[e.Entry] = [e.Widened(at=NOW, by="ann")]

    ruling.deny(session, s.effect(session.state), before, verdict)

    why = "denied by policy rule 'never': no mail"
    failed = e.EffectFailed(
        at=NOW, step=STEP, attempt=0, why=why, reason="denied", final=True, by="policy never", policy="3+abc"
    )
    answered = e.ApprovalAnswered(at=NOW, id="ap-1", approved=False, by="policy never", why=why)
    assert recorded(session) == [*before, answered, failed]


@pytest.mark.parametrize(("effect", "spent"), [("read", s.usd(2)), ("keyed", None)])
def test_only_a_read_that_was_lost_may_have_been_charged_when_it_is_denied(effect: str, spent: Any) -> None:
    session = held(GRANT, s.started(effect=effect, reserve=s.usd(2)), s.lost() if effect == "read" else s.failed())

    ruling.deny(session, s.effect(session.state), [], Verdict("deny", "never"))

    (failed,) = recorded(session)
    assert isinstance(failed, e.EffectFailed)
    assert (failed.attempt, failed.spent) == (1, spent)


def test_a_read_that_reserved_nothing_is_denied_without_a_cost() -> None:
    session = held(s.planned(effect="read"))

    ruling.deny(session, s.effect(session.state), [], Verdict("deny", "never"))

    (failed,) = recorded(session)
    assert isinstance(failed, e.EffectFailed)
    assert failed.spent is None


# ---------------------------------------------------------------- resends


LOST = (s.started(), s.lost(quiet_at=20))


def sent_again(session: Session, effect: Any, step: Any) -> str | None:
    """Return why an effect is not sent again, None where it is."""
    if ruling.may_send_again(session, step, effect):
        assert session.held == {}
        return None
    turns, waiting = session.held[effect.step]
    assert (turns, waiting.reason, waiting.until) == (session.engine.policy.turns, "authority", None)  # type: ignore[union-attr]
    return waiting.ask


def test_a_resend_that_a_policy_does_not_let_go_is_held_back_and_says_why(policy: File) -> None:
    session = held(*LOST)
    effect, step = s.effect(session.state), step_of(costing())
    session.held[STEP] = (0, Waiting("authority"))
    assert sent_again(session, effect, step) is None

    path = under(session, policy.says(RULE.format("deny"))).path

    def why(said: str) -> str:
        return (
            f"{s.PATH} is not sent again: {said}. Change {path} (milepost policy check {path}), or "
            f"milepost resolve {s.RUN} {s.PATH} --happened VALUE | --did-not-happen | --rejected"
        )

    assert sent_again(session, effect, step) == why("denied by policy rule 'large': too much")
    assert step.verdict.rule == "large"
    policy.says(RULE.format("ask"))
    assert sent_again(session, effect, step) == why(
        f"policy rule 'large' asks for an approval, which {s.PATH} was sent without"
    )
    assert ruling.held_back(session, STEP) == session.held[STEP][1]
    effect.approval = "ap-1"
    assert sent_again(session, effect, step) is None
    policy.says(RULE.format("deny"))
    assert sent_again(session, effect, step) == why("denied by policy rule 'large': too much")
    policy.says('other; allow; tool = "x"')
    waiting = sent_again(session, effect, step)
    assert waiting == why(ruling.waiting_for(session, step.verdict, s.PATH).ask)
    policy.says(ALLOW)
    assert sent_again(session, effect, step) is None


def test_what_is_held_back_is_so_only_under_the_policy_that_held_it(policy: File) -> None:
    session = held(*LOST)
    assert ruling.held_back(session, STEP) is None
    session.held[STEP] = (1, Waiting("authority", None, "x"))
    assert ruling.held_back(session, STEP) is None

    found = under(session, policy.says(ALLOW))

    assert ruling.held_back(session, STEP) == Waiting("authority", None, "x")
    assert ruling.held_back(session, OTHER) is None
    assert ruling.resting(session) == Waiting("authority", None, "x")
    policy.says(ALLOW)
    found.current()
    assert ruling.held_back(session, STEP) is None
    assert ruling.resting(session) is None


def test_a_run_says_of_all_its_effects_that_are_held_back_why(policy: File) -> None:
    more = s.started(step=OTHER), s.lost(step=OTHER), s.started(step=":2"), s.lost(step=":2")
    session = held(*LOST, *more)
    under(session, policy.says(ALLOW))
    session.held = {STEP: (1, Waiting("authority", None, "x")), ":2": (1, Waiting("authority", None, "y"))}

    assert ruling.resting(session) == Waiting("authority", None, "x; y")


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize(
    ("options", "until"),
    [
        ({"key_ttl": "1h"}, [10 + 3_600_000 - 60_000]),
        ({"key_ttl": "8s", "timeout": "1s"}, []),
        ({"effect": "queryable", "key_ttl": None}, []),
    ],
)
def test_what_is_held_back_may_move_when_its_key_ends(
    options: dict[str, Any], until: list[int], policy: File, *, attached: bool
) -> None:
    session = held(*LOST, tool=costing(**options), attached=attached)
    effect = s.effect(session.state)
    assert ruling.held_until(session, effect, NOW) is None
    under(session, policy.says(ALLOW))
    session.held[STEP] = (1, Waiting("authority"))

    found = ruling.held_until(session, effect, NOW)

    assert found == [*until, *([NOW + ruling.RECHECK_MS] if attached else [])]
    assert ruling.held_until(session, effect, until[0] if until else NOW) == (
        [(until[0] if until else NOW) + ruling.RECHECK_MS] if attached else []
    )


# ---------------------------------------------------------------- today's policy


class Waiters:
    """The rows of parked runs, and what is delivered to them."""

    def __init__(self, *rows: Any) -> None:
        self.rows = rows
        self.asked: list[Query] = []
        self.posts: list[Any] = []

    async def runs(self, query: Query) -> list[Any]:
        self.asked.append(query)
        return list(self.rows)

    async def durable(self, operation: Any) -> None:
        self.posts.append(operation.post)


def row(id_: str, reason: str, ask: str | None, workflow: str = "flow") -> Any:
    return SimpleNamespace(id=id_, reason=reason, ask=ask, workflow=workflow, epoch=4)


async def test_another_policy_wakes_what_waits_for_it_once(policy: File, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "milepost")
    session = held()
    engine: Any = session.engine
    engine.sessions = {s.RUN: session}
    check, rule = "milepost policy check p: no", "milepost approve ap-1 (policy rule 'large')"
    store = Waiters(
        row("a", "authority", check), row("b", "approval", rule), row("c", "authority", rule),
        row("d", "approval", check), row("e", "budget", check), row("f", "authority", "grant"),
        row("g", "authority", None), row("h", "approval", ""), row("i", "authority", check, "unknown here"),
    )  # fmt: skip
    engine.store, engine.writer, engine.known, engine.policy_told = store, store, {"flow"}, 0
    await ruling.wake(engine)
    assert (store.asked, session._changes) == ([], 0)
    path = policy.says(ALLOW)
    found = under(session, path)

    await ruling.wake(engine)
    await ruling.wake(engine)

    assert engine.policy_told == found.turns == 1
    assert session._changes == 1
    (query,) = store.asked
    assert (query.status, query.limit > 10**6) == ("parked", True)
    assert [post.run_id for post in store.posts] == ["a", "b", "c", "d"]
    first = store.posts[0]
    assert (first.message_id, first.at) == ("recheck:worker-1:4:1", NOW)
    assert messages.decode(first.body) == messages.Recheck(at=NOW, by="worker-1")
    (told,) = caplog.records
    assert (told.levelname, told.getMessage().startswith("policy: "), path in told.getMessage()) == ("INFO", True, True)
    policy.holds("not toml at all [")
    await ruling.wake(engine)
    assert caplog.records[1].levelname == "ERROR"
    assert (caplog.records[1].msg, caplog.records[1].args) == ("%s", (found.current(),))
    assert (len(store.asked), session._changes, engine.policy_told) == (2, 2, 2)
