"""What listings show: written in the transaction of the entries that say it, found by whoever asks."""

from __future__ import annotations

import json
from typing import Any

from milepost.errors import UnknownRun
from milepost.stores.api import ApprovalRow, EffectRow, Emit, OpenEffect, Query
from milepost.stores.fleet import Enlist, WorkerRow
from milepost.testing.store_conformance.subject import Subject, append, proves, raised, status


def effect(step: str, outcome: str | None = "started", **facts: Any) -> EffectRow:
    """Return the row of an effect."""
    known: dict[str, Any] = {"attempt": 1, "started_at": 10}
    return EffectRow(step, outcome, f"pay/charge{step}", "charge", "keyed", **{**known, **facts})


def approval(id_: str, asked_at: int = 9, verdict: str = "asked") -> ApprovalRow:
    """Return the row of an approval."""
    return ApprovalRow(id_, "a1", ":0", "pay/charge#1", "charge", b'{"cents":5}', asked_at, verdict)


async def listed(subject: Subject, **asked: Any) -> list[str]:
    """Return the ids of the runs that fit."""
    return [row.id for row in await subject.store.runs(Query(**asked))]


class Projections:
    """Runs, effects, approvals, workers and events as they are listed."""

    # ------------------------------------------------------------ runs

    @proves
    async def test_a_run_is_shown_as_it_was_created(self, subject: Subject) -> None:
        await subject.create(
            "a1", key="k", principal="bot", tenant="acme", tags='{"team":"x"}', at=7, due=9, version="3", attached=False
        )

        row = await subject.store.run("a1")

        assert (row.id, row.workflow, row.version, row.key, row.attached) == ("a1", "desk", "3", "k", False)
        assert (row.status, row.due, row.owner, row.parent) == ("ready", 9, None, None)
        assert (row.principal, row.tenant, json.loads(row.tags)) == ("bot", "acme", {"team": "x"})
        assert (row.created_at, row.changed_at, row.epoch, row.seq, row.segment) == (7, 7, 0, 1, "pay")

    @proves
    async def test_a_status_is_shown_with_its_reason_and_what_to_type(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(
            append(head, status=status("parked", reason="signal", until=99, ask="milepost send", why="w"))
        )

        row = await subject.store.run("a1")
        assert (row.status, row.reason, row.until, row.ask, row.why, row.changed_at) == (
            "parked", "signal", 99, "milepost send", "w", 30
        )  # fmt: skip

    @proves
    async def test_of_several_statuses_in_one_batch_the_last_is_shown(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.write(append(head, b"1", status=status("parked")), append(head, b"2", status=status("running")))

        assert (await subject.store.run("a1")).status == "running"

    @proves
    async def test_runs_are_listed_newest_first_up_to_a_limit(self, subject: Subject) -> None:
        for number in range(4):
            await subject.create(f"a{number}")

        assert await listed(subject) == ["a3", "a2", "a1", "a0"]
        assert await listed(subject, limit=2) == ["a3", "a2"]

    @proves
    async def test_runs_are_found_by_status_workflow_key_parent_and_tag(self, subject: Subject) -> None:
        await subject.held("a1", key="k1", tags=json.dumps({"team": "x", "a.b": "1", 'q"': "z"}))
        await subject.create("a2", workflow="shop", parent="a1", tags='{"team":"y"}')

        assert await listed(subject, status="running") == ["a1"]
        assert await listed(subject, status="done") == []
        assert await listed(subject, workflow="shop") == ["a2"]
        assert await listed(subject, key="k1") == ["a1"]
        assert await listed(subject, parent="a1") == ["a2"]
        assert await listed(subject, tag=("team", "x")) == ["a1"]
        assert await listed(subject, tag=("team", "z")) == []
        assert await listed(subject, tag=("a.b", "1")) == ["a1"]
        assert await listed(subject, tag=('q"', "z")) == ["a1"]
        assert await listed(subject, tag=("none", "x")) == []
        assert await listed(subject, status="ready", workflow="shop", tag=("team", "y")) == ["a2"]

    @proves
    async def test_what_needs_a_person_is_what_is_blocked_asks_or_has_an_effect_for_a_person(
        self, subject: Subject
    ) -> None:
        heads = {name: await subject.held(name) for name in ("b0", "b1", "b2", "b3", "b4")}
        await subject.write(
            append(heads["b1"], status=status("blocked")),
            append(heads["b2"], status=status("parked", ask="milepost approve")),
            append(heads["b3"], effects=[effect(":0", "unknown", person="found twice")]),
            append(heads["b4"], status=status("parked", reason="time", until=99)),
        )

        assert await listed(subject, needs_you=True) == ["b3", "b2", "b1"]

    @proves
    async def test_runs_are_counted_by_status(self, subject: Subject) -> None:
        await subject.create("a1")
        await subject.create("a2")
        await subject.held("a3")

        assert await subject.store.counts() == {"ready": 2, "running": 1}

    @proves
    async def test_an_id_may_be_abbreviated_as_long_as_it_is_one(self, subject: Subject) -> None:
        for run_id in ("abc1", "abc2", "abd", "abdf"):
            await subject.create(run_id)

        assert await subject.store.resolve_id("abc1") == "abc1"
        assert await subject.store.resolve_id("abdf") == "abdf"
        assert await subject.store.resolve_id("abd") == "abd"
        assert (await raised(subject.store.resolve_id("abc"), UnknownRun)).matches == ("abc1", "abc2")
        assert (await raised(subject.store.resolve_id("f"), UnknownRun)).matches == ()
        assert (await raised(subject.store.resolve_id("ab%"), UnknownRun)).matches == ()

    @proves
    async def test_a_run_that_does_not_exist_is_unknown_to_every_reading_verb(self, subject: Subject) -> None:
        store = subject.store

        for reading in (
            store.run("nobody"), store.inbox("nobody"), store.effects("nobody"), store.events("nobody", 0),
            store.chunk("nobody", "d"),
        ):  # fmt: skip
            await raised(reading, UnknownRun)

    # ------------------------------------------------------------ effects

    @proves
    async def test_an_effect_is_shown_while_it_is_open(self, subject: Subject) -> None:
        head = await subject.held("a1")
        facts = effect(":0", "unknown", attempt=2, why="no answer", person="found twice")

        await subject.done(append(head, b"lost", effects=[facts]))

        assert await subject.store.effects("a1") == [
            OpenEffect("a1", ":0", "pay/charge:0", "charge", "keyed", "unknown", 2, 10, "no answer", "found twice")
        ]

    @proves
    async def test_a_later_row_of_an_effect_replaces_the_earlier_one_and_a_settled_one_leaves(
        self, subject: Subject
    ) -> None:
        head = await subject.held("a1")

        await subject.write(
            append(head, b"1", effects=[effect(":0"), effect(":1"), effect(":2", "not_started")]),
            append(head, b"2", effects=[effect(":0", "unknown"), effect(":1", None)]),
            append(head, b"3", effects=[effect(":2", None), effect(":2", "started")]),
        )

        assert [(row.step, row.outcome) for row in await subject.store.effects("a1")] == [
            (":0", "unknown"), (":2", "started")
        ]  # fmt: skip

    @proves
    async def test_a_step_of_a_later_visit_may_be_another_tool_s(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"1", effects=[effect(":0")]))

        await subject.done(
            append(head, b"2", effects=[EffectRow(":0", "started", "mail/send#1", "send", "irreversible", 1, 11)])
        )

        (row,) = await subject.store.effects("a1")
        assert (row.path, row.tool, row.effect) == ("mail/send#1", "send", "irreversible")

    @proves
    async def test_open_effects_of_all_runs_are_listed_together(self, subject: Subject) -> None:
        for run_id in ("a1", "a2"):
            await subject.done(append(await subject.held(run_id), b"1", effects=[effect(":0")]))

        assert [row.run_id for row in await subject.store.effects()] == ["a1", "a2"]
        assert [row.run_id for row in await subject.store.effects("a2")] == ["a2"]

    # ------------------------------------------------------------ approvals

    @proves
    async def test_an_approval_is_shown_from_the_stored_bytes_and_with_its_answer(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, b"asked", approvals=[approval("ap-1")]))
        asked = await subject.store.approvals()
        await subject.done(append(head, b"answered", answers=[("ap-1", "denied", "ann")]))
        answered = await subject.store.approvals()

        assert asked == [approval("ap-1")]
        assert [(row.verdict, row.by) for row in answered] == [("denied", "ann")]

    @proves
    async def test_approvals_are_found_by_prefix_and_verdict_oldest_first(self, subject: Subject) -> None:
        head = await subject.held("a1")
        asked = [approval("ap-1", 30), approval("ap-2", 20), approval("bp-1", 10)]
        await subject.done(append(head, b"asked", approvals=asked))
        await subject.done(append(head, b"answered", answers=[("ap-2", "approved", "ann")]))

        assert [row.id for row in await subject.store.approvals()] == ["bp-1", "ap-2", "ap-1"]
        assert [row.id for row in await subject.store.approvals("ap-")] == ["ap-2", "ap-1"]
        assert [row.id for row in await subject.store.approvals("", "asked")] == ["bp-1", "ap-1"]
        assert await subject.store.approvals("ap-*") == []
        assert await subject.store.approvals("[ab]p-1") == []

    # ------------------------------------------------------------ workers, events

    @proves
    async def test_every_worker_that_was_ever_enlisted_is_listed(self, subject: Subject) -> None:
        rows = [WorkerRow("w1", "host", 7, 1, 100), WorkerRow("w2", "host", 8, 2, 100)]
        await subject.write(*(Enlist(row) for row in rows))

        subject.store.end_worker("w1", 50)

        assert await subject.store.workers() == [WorkerRow("w1", "host", 7, 1, 0, 50), rows[1]]

    @proves
    async def test_events_are_read_in_order_from_where_one_left_off(self, subject: Subject) -> None:
        await subject.create("a1")
        await subject.create("a2")
        await subject.write(Emit([("a1", 5, b"one"), ("a2", 6, b"other"), ("a1", 7, b"two"), ("nobody", 8, b"lost")]))

        first, second = await subject.store.events("a1", 0)

        assert (first[1:], second[1:]) == ((5, b"one"), (7, b"two"))
        assert [event[2] for event in await subject.store.events("a1", first[0])] == [b"two"]
        assert await subject.store.events("a1", second[0]) == []

    @proves
    async def test_no_event_is_part_of_the_record(self, subject: Subject) -> None:
        head = await subject.held("a1")
        before = await subject.bodies("a1")

        await subject.write(Emit([("a1", 5, b"one")]), append(head, b"fact"))

        assert await subject.bodies("a1") == [*before, b"fact"]
