"""Chunks: content under its digest, a run's own, written with the append that names it."""

from __future__ import annotations

from milepost.core.chunks import digest_of
from milepost.errors import Damaged, EpochLost
from milepost.testing.store_conformance.subject import Subject, append, proves, raised, refused

BODY = b'["v",' + bytes(range(256)) + b"]"
NAME = digest_of(BODY)


class Chunks:
    """Content-addressed state."""

    @proves
    async def test_a_chunk_comes_back_byte_for_byte(self, subject: Subject) -> None:
        head = await subject.held("a1")

        await subject.done(append(head, b"boundary", boundary=0, chunks={NAME: BODY}))

        assert await subject.store.chunk("a1", NAME) == BODY
        assert await (await subject.other()).chunk("a1", NAME) == BODY

    @proves
    async def test_the_first_boundary_s_chunks_come_with_the_run(self, subject: Subject) -> None:
        await subject.create("a1", chunks={NAME: BODY})

        assert await subject.store.chunk("a1", NAME) == BODY

    @proves
    async def test_a_run_that_exists_gets_no_chunks_from_being_created_again(self, subject: Subject) -> None:
        await subject.create("a1", key="k")
        await subject.create("a2", key="k", chunks={NAME: BODY})

        await raised(subject.store.chunk("a1", NAME), Damaged)

    @proves
    async def test_the_same_chunk_may_be_written_again_and_stays_as_it_was(self, subject: Subject) -> None:
        head = await subject.held("a1", chunks={NAME: BODY})

        answers = await subject.write(
            append(head, b"one", chunks={NAME: BODY}), append(head, b"two", chunks={NAME: b"forged"})
        )

        assert answers == [None, None]
        assert await subject.store.chunk("a1", NAME) == BODY

    @proves
    async def test_a_chunk_belongs_to_its_run(self, subject: Subject) -> None:
        await subject.create("a1", chunks={NAME: BODY})
        await subject.create("a2")

        await raised(subject.store.chunk("a2", NAME), Damaged)

    @proves
    async def test_a_chunk_that_is_missing_is_damage_and_never_nothing(self, subject: Subject) -> None:
        await subject.create("a1")

        error = await raised(subject.store.chunk("a1", NAME), Damaged)

        assert error.run_id == "a1"

    @proves
    async def test_the_chunks_of_a_refused_append_are_not_written(self, subject: Subject) -> None:
        lost = await subject.held("a1")
        await subject.claim("a1", "worker-2", "worker-1")

        (answer,) = await subject.write(append(lost, b"boundary", boundary=0, chunks={NAME: BODY}))

        refused(answer, EpochLost)
        await raised(subject.store.chunk("a1", NAME), Damaged)

    @proves
    async def test_a_large_chunk_is_kept_whole(self, subject: Subject) -> None:
        head, large = await subject.held("a1"), b"x" * 3_000_000

        await subject.done(append(head, b"boundary", boundary=0, chunks={digest_of(large): large}))

        assert await subject.store.chunk("a1", digest_of(large)) == large
