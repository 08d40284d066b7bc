"""Keeping a store: its standing for a seal, runs that are pruned, runs that are taken in from another store."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from milepost.core.chain import genesis, link, verify
from milepost.errors import MilepostError, Refused, UnknownRun
from milepost.stores.api import ApprovalRow, Create, EffectRow, NewRun, Once, OnceRow, OnceSettled, Switch
from milepost.stores.keeping import MarkSeal, Prune, RunCopy, TakeIn, TakenIn, Tombstone
from milepost.testing.store_conformance.subject import Subject, append, deliver, proves, raised, refused, status

SYSTEM = "system"
REFERRED = b'{"$ref":"' + b"c" * 64 + b'"}'


def prune(*run_ids: str) -> Prune:
    """Return the pruning of runs, whose entry names each."""
    return Prune(run_ids, 70, "ann", "a year is over", lambda stone: b"pruned " + stone.run_id.encode())


def seal(above: int = 0) -> MarkSeal:
    """Return a seal whose entry names its number."""
    return MarkSeal(60, above, lambda number: f"sealed {number}".encode())


def row(run_id: str, **facts: Any) -> dict[str, object]:
    """Return a run's row in another store."""
    known: dict[str, object] = {
        "id": run_id, "workflow": "desk", "version": "1", "attached": 0, "key": None, "digest": "d1",
        "status": "running", "reason": None, "until": None, "ask": None, "why": None, "parent": None, "principal": "",
        "tenant": None,
        "tags": "{}", "created_at": 1, "changed_at": 2,
    }  # fmt: skip
    return {**known, **facts}


def copied(run_id: str = "f1", *bodies: bytes, origin: str = "another store", **facts: Any) -> RunCopy:
    """Return a run of another store with these entries behind its first one, which is its boundary."""
    digest = genesis(origin, run_id)
    for body in (b"created", *bodies):
        digest = link(digest, body)
    beside = {name: facts.pop(name) for name in ("chunks", "once", "approvals", "effects") if name in facts}
    beside.setdefault("chunks", {})
    whole = (b"created", *bodies)
    return RunCopy(run_id, origin, row(run_id, **facts), len(whole), digest, 3, "pay", 1, whole, **beside)


def take_in(copy: RunCopy, *, stop: bytes | None = b"stopped") -> TakeIn:
    """Return the taking in of a run, under an entry that keeps it from being driven."""
    return TakeIn(copy, 80, "ann", "b1", "bob", "milepost retry", "imported", stop, b"took in " + copy.run_id.encode())


class Keeping:
    """What is done to a store as a whole."""

    async def ended(self, subject: Subject, run_id: str, name: str = "done", **facts: Any) -> None:
        """Bring a run to its end, held by nobody."""
        head = await subject.held(run_id, **facts)
        await subject.done(append(head, b"the end", status=status(name), release=(None, None)))

    # ------------------------------------------------------------ seals

    @proves
    async def test_a_standing_names_the_end_of_every_chain_and_the_last_seal(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"one"))
        await subject.create("b1")

        assert [await subject.done(seal()), await subject.done(seal())] == [1, 2]

        standing = await subject.store.standing()
        leaves = {leaf.run_id: leaf for leaf in standing.leaves}
        assert (standing.store_id, standing.sequence, standing.tombstones) == (subject.store.id, 2, [])
        assert {run: leaf.seq for run, leaf in leaves.items()} == {"a1": 3, "b1": 1, SYSTEM: 2}
        assert leaves["a1"].hash == (await subject.store.chain("a1"))[2].hash
        assert await subject.bodies(SYSTEM) == [b"sealed 1", b"sealed 2"]

    @proves
    async def test_the_number_of_a_seal_is_above_every_one_that_was_seen(self, subject: Subject) -> None:
        assert await subject.done(seal(above=7)) == 8
        assert await subject.done(seal(above=3), store=await subject.other()) == 9

    # ------------------------------------------------------------ pruning

    @proves
    async def test_a_pruned_key_starts_nothing_and_a_pruned_number_is_not_given_again(self, subject: Subject) -> None:
        await self.ended(subject, "a1", key="k1")
        await subject.done(prune("a1"))

        await raised(subject.create("b1", key="k1"), Refused)
        head = await subject.held("c1")
        await subject.done(append(head, b"one"))

        assert await subject.bodies("c1") == [b"created c1", b"claimed 1", b"one"]

    @proves
    async def test_only_what_ended_before_a_moment_is_offered_for_pruning(self, subject: Subject) -> None:
        await self.ended(subject, "a1")
        await self.ended(subject, "b1", "killed", workflow="other")
        await subject.held("c1")

        found = await subject.store.prunable(31, None, 10)
        assert [(one.run_id, one.status, one.seq, one.kept) for one in found] == [
            ("a1", "done", 3, ""),
            ("b1", "killed", 3, ""),
        ]
        assert [one.run_id for one in await subject.store.prunable(31, "other", 10)] == ["b1"]
        assert [one.run_id for one in await subject.store.prunable(31, None, 1)] == ["a1"]
        assert await subject.store.prunable(30, None, 10) == []

    @proves
    async def test_a_pruned_run_is_gone_but_for_its_tombstone(self, subject: Subject) -> None:
        await self.ended(subject, "a1", chunks={"c" * 64: b"state"})
        await self.ended(subject, "b1")
        last = (await subject.store.chain("a1"))[2]

        stones = await subject.done(prune("a1"))

        assert stones == [Tombstone("a1", last.seq, last.hash, "d1", "desk", "done", 70, "ann", "a year is over")]
        assert (await subject.store.standing()).tombstones == stones
        await raised(subject.store.run("a1"), UnknownRun)
        await raised(subject.store.chain("a1"), UnknownRun)
        assert await subject.bodies(SYSTEM) == [b"pruned a1"]
        assert len(await subject.bodies("b1")) == 3

    @proves
    async def test_a_run_that_goes_on_or_is_open_is_not_pruned_and_neither_are_those_with_it(
        self, subject: Subject
    ) -> None:
        await self.ended(subject, "good")
        await subject.held("running")
        for outcome in ("started", "unknown", "confirmed"):
            head = await subject.held(outcome)
            effects = [EffectRow(":0", outcome, "pay/charge#1", "charge", "keyed", 1, 10)]
            await subject.done(append(head, b"x", effects=effects, status=status("killed"), release=(None, None)))
        head = await subject.held("held")
        await subject.done(append(head, b"x", status=status("done")))
        await self.ended(subject, "mail")
        await subject.done(deliver("mail", "m1"))
        await subject.held("parent")
        await self.ended(subject, "child", parent="parent")
        await self.ended(subject, "mother")
        await subject.create("daughter", parent="mother")

        for run_id in ("running", "started", "unknown", "confirmed", "held", "mail", "child", "mother"):
            (answer,) = await subject.write(prune("good", run_id))
            assert run_id in str(refused(answer, Refused)), run_id
        refused((await subject.write(prune("good", "nobody")))[0], UnknownRun)

        standing = await subject.store.standing()
        assert standing.tombstones == []
        assert {"good", "running", "mail", "child", "mother"} <= {leaf.run_id for leaf in standing.leaves}
        assert len(await subject.bodies("good")) == 3

    @proves
    async def test_an_identity_outlives_the_run_that_claimed_it_with_its_result(self, subject: Subject) -> None:
        head = await subject.held("a1", chunks={"c" * 64: b'"a large receipt"'})
        claims = [Once("", "charge", value, ":0", "d1") for value in ("o1", "o2")]
        for once, result in zip(claims, (b'"small"', REFERRED), strict=True):
            settled = [OnceSettled("", "charge", once.value, "confirmed", result)]
            await subject.done(append(head, b"started", once=once))
            await subject.done(append(head, b"confirmed", once_settled=settled))
        await subject.done(append(head, b"the end", status=status("done"), release=(None, None)))

        await subject.done(prune("a1"))

        second = await subject.held("a2")
        for once, result in zip(claims, (b'"small"', b'"a large receipt"'), strict=True):
            assert await subject.store.once("", "charge", once.value) == OnceRow("a1", ":0", "d1", "confirmed", result)
            (answer,) = await subject.write(append(second, b"started", once=once))
            assert isinstance(answer, MilepostError)
            assert answer.code == "once_taken"

    @proves
    async def test_neither_the_id_nor_the_key_nor_the_number_of_a_pruned_run_is_given_again(
        self, subject: Subject
    ) -> None:
        await subject.held("first", key="k0")
        await self.ended(subject, "a1", key="k1")
        await subject.done(prune("a1"))
        by_key = NewRun("b1", "desk", "1", "d1", b"created", "pay", 1, 1, key="k1")
        by_id = NewRun("a1", "desk", "1", "d1", b"created", "pay", 1, 1)

        for new in (by_key, by_id):
            (answer,) = await subject.write(Create(new))
            assert "pruned by ann" in str(refused(answer, Refused))
        await subject.create("c1", key="k2")
        assert (await subject.store.run("c1")).run > 2
        assert (await subject.create("d1", key="k0")).id == "first"

    # ------------------------------------------------------------ copies

    @proves
    async def test_a_copy_holds_the_bytes_as_stored_and_verifies_by_itself(self, subject: Subject) -> None:
        head = await subject.held("a1", chunks={"c" * 64: b"state"}, key="k1")
        claim = Once("", "charge", "o1", ":0", "d1")
        asked = ApprovalRow("ap-1", "a1", ":1", "pay/mail#1", "mail", b"{}", 9, "asked")
        effect = EffectRow(":0", "started", "pay/charge#1", "charge", "keyed", 1, 10)
        await subject.done(append(head, b"boundary", b"started", boundary=0, once=claim, effects=[effect]))
        await subject.done(append(head, b"asked", approvals=[asked]))

        copy = await subject.store.copy("a1")

        assert (copy.run_id, copy.origin, copy.epoch, copy.segment, copy.boundary) == (
            "a1",
            subject.store.id,
            1,
            "pay",
            3,
        )
        assert list(copy.bodies) == [b"created a1", b"claimed 1", b"boundary", b"started", b"asked"]
        assert dict(copy.chunks) == {"c" * 64: b"state"}
        digest = genesis(copy.origin, "a1")
        for body in copy.bodies:
            digest = link(digest, body)
        assert (digest, copy.seq) == (copy.hash, 5)
        assert (copy.row["key"], copy.once[0]["value"], copy.approvals[0]["id"]) == ("k1", "o1", "ap-1")
        assert copy.effects[0]["outcome"] == "started"

    @proves
    async def test_a_run_that_is_taken_in_verifies_from_the_store_it_was_begun_in_and_is_due_to_nobody(
        self, subject: Subject
    ) -> None:
        given = copied("f1", b"claimed 3", chunks={"c" * 64: b"state"}, key="k1", tenant="t1")

        assert await subject.done(take_in(given)) == TakenIn("f1", fresh=True, held=[])

        run = await subject.store.run("f1")
        assert (run.status, run.owner, run.due, run.key, run.tenant, run.epoch) == (
            "blocked",
            None,
            None,
            "k1",
            "t1",
            4,
        )
        assert (run.reason, run.ask, run.why) == ("person", "milepost retry", "imported")
        assert await subject.bodies("f1") == [b"created", b"claimed 3", b"stopped"]
        tail = await subject.store.tail("f1")
        assert tail.before == genesis("another store", "f1")
        entries = ((one.seq, one.body, one.hash) for one in tail.entries)
        assert verify("f1", tail.before, 1, entries, tail.head.hash) == 3
        assert await subject.store.chunk("f1", "c" * 64) == b"state"
        assert await subject.store.due(10**13, ["desk"], 10) == []
        assert await subject.bodies(SYSTEM) == [b"took in f1"]

    @proves
    async def test_a_run_that_had_ended_comes_in_as_it_was(self, subject: Subject) -> None:
        given = copied("f1", b"the end", status="done")

        await subject.done(take_in(given, stop=None))

        run = await subject.store.run("f1")
        assert (run.status, run.epoch, run.due) == ("done", 3, None)
        assert await subject.bodies("f1") == [b"created", b"the end"]
        assert (await subject.store.copy("f1")).origin == "another store"

    @proves
    async def test_taking_the_same_run_in_twice_changes_nothing(self, subject: Subject) -> None:
        await subject.done(take_in(copied("f1", b"claimed 3")))
        before = await subject.store.standing()

        for again in (copied("f1", b"claimed 3"), copied("f1")):
            assert await subject.done(take_in(again)) == TakenIn("f1", fresh=False)

        assert await subject.store.standing() == before

    @proves
    async def test_another_chain_another_runs_key_and_a_pruned_run_are_refused(self, subject: Subject) -> None:
        await subject.create("here", key="k1")
        await self.ended(subject, "gone", key="k2")
        await subject.done(prune("gone"))
        await subject.done(take_in(copied("f1", b"claimed 3")))
        before = await subject.store.standing()

        for given in (
            copied("f1", b"claimed 3", b"more"),
            copied("f1", b"another"),
            copied("f1", origin="a third store"),
            copied("here"),
            copied("gone"),
            copied("f2", key="k1"),
            copied("f3", key="k2"),
        ):
            refused((await subject.write(take_in(given)))[0], Refused)

        assert await subject.store.standing() == before

    @proves
    async def test_what_was_claimed_asked_and_in_flight_comes_along(self, subject: Subject) -> None:
        first = await subject.held("a1")
        await subject.done(append(first, b"started", once=Once("", "charge", "mine", ":0", "d1")))
        names = ("tenant", "tool", "value", "step", "digest", "outcome", "result")
        once = [
            dict(zip(names, ("", "charge", value, ":0", "d1", "confirmed", b"1"), strict=True))
            for value in ("mine", "theirs")
        ]
        approval = {
            "id": "ap-1", "step": ":1", "path": "p", "tool": "mail", "args": b"{}", "asked_at": 9,
            "verdict": "approved", "by": "ann",
        }  # fmt: skip
        effect = {
            "step": ":0", "path": "pay/charge#1", "tool": "charge", "effect": "keyed", "outcome": "started",
            "attempt": 1, "started_at": 10, "why": None, "person": None,
        }  # fmt: skip

        taken = await subject.done(take_in(copied("f1", once=once, approvals=[approval], effects=[effect])))

        assert taken.held == [("", "charge", "mine")]
        assert await subject.store.once("", "charge", "theirs") == OnceRow("f1", ":0", "d1", "confirmed", b"1")
        assert (await subject.store.once("", "charge", "mine") or OnceRow("", "", "", "", None)).run_id == "a1"
        assert [(row_.run_id, row_.verdict) for row_ in await subject.store.approvals("ap-1")] == [("f1", "approved")]
        assert [effect_.outcome for effect_ in await subject.store.effects("f1")] == ["unknown"]

    @proves
    async def test_what_a_run_that_is_taken_in_holds_and_overspent_is_held_and_told_here(
        self, subject: Subject
    ) -> None:
        hold = Switch("tool:charge", "hold", "contradicted", "f1", 80, "f1 pay/charge#1")
        given = take_in(copied("f1", b"claimed 3"))
        given.holds, given.overspent = [hold], {"usd": Decimal("1.50")}

        await subject.done(given)
        await subject.done(given)

        assert await subject.store.switches() == [hold]
        assert await subject.store.overspent() == {"f1": {"usd": Decimal("1.50")}}
