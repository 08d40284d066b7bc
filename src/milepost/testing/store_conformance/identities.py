"""Business identities: one holder at a time, kept with their outcome, released only by a final failure."""

from __future__ import annotations

import asyncio

from milepost.stores.api import Once, OnceRow, OnceSettled, OnceTaken
from milepost.testing.store_conformance.subject import Subject, append, proves, refused


def order(value: str = "o1", *, tenant: str = "", tool: str = "charge", digest: str = "d1") -> Once:
    """Return the claim of an identity."""
    return Once(tenant, tool, value, ":0", digest)


def settled(outcome: str | None, result: bytes | None = None) -> OnceSettled:
    """Return what became of the identity that `order` claims."""
    return OnceSettled("", "charge", "o1", outcome, result)


class Identities:
    """No two runs start a tool for the same identity."""

    @proves
    async def test_an_identity_is_claimed_with_the_append_that_starts_it(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, b"started", once=order()))

        assert await subject.store.once("", "charge", "o1") == OnceRow("a1", ":0", "d1", "started", None)
        assert await subject.store.once("", "charge", "o2") is None

    @proves
    async def test_a_second_claim_is_refused_and_says_who_holds_it(self, subject: Subject) -> None:
        first, second = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(first, b"started", once=order()))

        (answer,) = await subject.write(append(second, b"started", once=order(digest="d2")))

        assert refused(answer, OnceTaken).row == OnceRow("a1", ":0", "d1", "started", None)
        assert await subject.bodies("a2") == [b"created a2", b"claimed 1"]

    @proves
    async def test_a_run_cannot_claim_its_own_identity_twice(self, subject: Subject) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"started", once=order()))

        (answer,) = await subject.write(append(head, b"started again", once=order()))

        refused(answer, OnceTaken)

    @proves
    async def test_an_effect_that_says_so_claims_what_it_may_have_claimed_before(self, subject: Subject) -> None:
        head, other = await subject.held("a1"), await subject.held("b1")
        again = Once("", "charge", "order-1", ":0", "d1", again=True)
        await subject.done(append(head, b"started", once=again))
        await subject.done(append(head, b"started again", once=again))

        (answer,) = await subject.write(append(other, b"started", once=again))

        assert refused(answer, OnceTaken).row.run_id == "a1", "only its own"

    @proves
    async def test_of_two_claims_in_one_batch_the_first_wins(self, subject: Subject) -> None:
        first, second = await subject.held("a1"), await subject.held("a2")

        answers = await subject.write(append(first, b"started", once=order()), append(second, b"started", once=order()))

        assert answers[0] is None
        assert refused(answers[1], OnceTaken).row.run_id == "a1"

    @proves
    async def test_of_two_processes_one_claims_the_identity(self, subject: Subject) -> None:
        other = await subject.other()
        first = await subject.held("a1")
        second = await subject.claim((await subject.create("a2")).id, "worker-2", store=other)

        (one,), (two,) = await asyncio.gather(
            subject.store.commit([append(first, b"started", once=order())]),
            other.commit([append(second, b"started", once=order())]),
        )

        assert sorted([isinstance(one, OnceTaken), isinstance(two, OnceTaken)]) == [False, True]

    @proves
    async def test_tenant_tool_and_value_together_are_the_identity(self, subject: Subject) -> None:
        head = await subject.held("a1")

        answers = await subject.write(
            *(
                append(head, b"started", once=once)
                for once in (order(), order("o2"), order(tenant="acme"), order(tool="refund"))
            )
        )

        assert answers == [None] * 4

    @proves
    async def test_a_confirmed_identity_keeps_its_result_for_whoever_comes_second(self, subject: Subject) -> None:
        first, second = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(first, b"started", once=order()))

        await subject.done(append(first, b"confirmed", once_settled=[settled("confirmed", b'"r1"')]))

        (answer,) = await subject.write(append(second, b"started", once=order()))
        row = refused(answer, OnceTaken).row
        assert (row.outcome, row.result) == ("confirmed", b'"r1"')

    @proves
    async def test_an_identity_that_is_released_may_be_claimed_anew(self, subject: Subject) -> None:
        first, second = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(first, b"started", once=order()))

        released, claimed = await subject.write(
            append(first, b"failed", once_settled=[settled(None)]), append(second, b"started", once=order())
        )

        assert (released, claimed) == (None, None)
        assert await subject.store.once("", "charge", "o1") == OnceRow("a2", ":0", "d1", "started", None)

    @proves
    async def test_only_its_holder_settles_or_releases_an_identity(self, subject: Subject) -> None:
        first, second = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(first, b"started", once=order()))

        await subject.done(append(second, b"failed", once_settled=[settled(None)]))
        await subject.done(append(second, b"confirmed", once_settled=[settled("confirmed", b"1")]))

        assert await subject.store.once("", "charge", "o1") == OnceRow("a1", ":0", "d1", "started", None)

    @proves
    async def test_an_identity_survives_the_kill_of_its_run(self, subject: Subject) -> None:
        first, second = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(first, b"started", once=order()))

        await subject.kill("a1")

        (answer,) = await subject.write(append(second, b"started", once=order()))
        assert refused(answer, OnceTaken).row.run_id == "a1"
