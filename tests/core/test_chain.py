"""The chain shows every change of a stored entry: of a bit, of its place, of its run, of its store, and a cut."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.chain import genesis, link, step_key, verify
from milepost.errors import Damaged

Stored = list[tuple[int, bytes, bytes]]

START = genesis("store-1", "run-1")
BODIES = [b'{"entry":"a.1"}', b'{"entry":"b.1"}', b'{"entry":"c.1"}', b'{"entry":"d.1"}']


def chained(bodies: list[bytes], start: bytes = START, first: int = 1) -> Stored:
    stored = []
    for seq, body in enumerate(bodies, start=first):
        start = link(start, body)
        stored.append((seq, body, start))
    return stored


def head_of(stored: Stored) -> bytes:
    return stored[-1][2]


def damage(stored: Stored, *, start: bytes = START, first: int = 1, head: bytes | None = None) -> Damaged:
    with pytest.raises(Damaged) as found:
        verify("run-1", start, first, stored, head if head is not None else head_of(chained(BODIES)))
    return found.value


def test_an_unchanged_chain_verifies_and_is_counted() -> None:
    stored = chained(BODIES)

    assert verify("run-1", START, 1, stored, head_of(stored)) == 4


def test_a_tail_verifies_from_the_hash_before_it() -> None:
    stored = chained(BODIES)

    assert verify("run-1", stored[1][2], 3, stored[2:], head_of(stored)) == 2


@given(st.integers(0, 3), st.integers(0, 14), st.integers(0, 7))
def test_every_flipped_bit_is_found_where_it_is(entry: int, byte: int, bit: int) -> None:
    """Requirement 48."""
    stored = chained(BODIES)
    seq, body, stored_hash = stored[entry]
    flipped = bytearray(body)
    flipped[byte] ^= 1 << bit
    stored[entry] = (seq, bytes(flipped), stored_hash)

    assert damage(stored).seq == entry + 1


def test_a_flipped_bit_of_a_hash_is_found() -> None:
    stored = chained(BODIES)
    seq, body, stored_hash = stored[1]
    stored[1] = (seq, body, bytes([stored_hash[0] ^ 1, *stored_hash[1:]]))

    assert damage(stored).seq == 2


CHANGES: dict[str, Callable[[Stored], Stored]] = {
    "its tail is cut off": lambda stored: stored[:-1],
    "its first entry is missing": lambda stored: stored[1:],
    "one of the middle is missing": lambda stored: [stored[0], *stored[2:]],
    "two changed places": lambda stored: [stored[0], stored[2], stored[1], stored[3]],
    "two changed places with their numbers": lambda stored: [
        stored[0], (2, *stored[2][1:]), (3, *stored[1][1:]), stored[3]
    ],
    "one stands twice": lambda stored: [stored[0], stored[0], *stored[1:]],
    "nothing is left": lambda _: [],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_chain_that_was_cut_or_reordered_does_not_verify(change: Callable[[Stored], Stored]) -> None:
    """Requirement 48. Requirement 4."""
    assert damage(change(chained(BODIES))).run_id == "run-1"


def test_a_rewritten_tail_does_not_end_at_the_head() -> None:
    rewritten = chained([*BODIES[:3], b'{"entry":"x.1"}'])

    assert damage(rewritten).seq == 4


@pytest.mark.parametrize("start", [genesis("store-2", "run-1"), genesis("store-1", "run-2")], ids=["store", "run"])
def test_entries_that_were_swapped_in_from_another_run_or_store_do_not_verify(start: bytes) -> None:
    """Requirement 48."""
    foreign = chained(BODIES, start)

    assert damage(foreign, head=head_of(foreign)).seq == 1


def test_the_beginning_of_a_chain_names_store_and_run_apart() -> None:
    assert genesis("a", "bc") != genesis("ab", "c")


def test_the_key_of_an_effect_is_the_same_for_every_attempt_and_differs_for_every_other_effect() -> None:
    """Requirement 13."""
    places = [
        ("s", "r", 0, ":0", 0), ("t", "r", 0, ":0", 0), ("s", "q", 0, ":0", 0), ("s", "r", 1, ":0", 0),
        ("s", "r", 0, ":1", 0), ("s", "r", 0, ":0", 1),
    ]  # fmt: skip

    assert step_key(*places[0]) == step_key(*places[0])
    assert len({step_key(*place) for place in places}) == len(places)
    assert len(step_key(*places[0])) == 48
