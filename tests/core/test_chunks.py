"""State in chunks: what did not change is not stored again, and no bytes can make more of it than one JSON value."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.core import chunks
from milepost.core.chunks import FANOUT, INLINE_BYTES, WHOLE_BYTES, digest_of, join, references, split
from milepost.errors import MalformedEntry

NUMBER = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
LEAF = st.none() | st.booleans() | NUMBER | st.text()
JSON = st.recursive(LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40)


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def stored(data: bytes) -> set[str]:
    return set(split(data)[1])


def joined(data: bytes) -> bytes:
    root, parts = split(data)
    return join(root, parts.__getitem__)


@given(JSON)
def test_what_was_split_is_joined_to_the_very_bytes(value: Any) -> None:
    assert joined(encoded(value)) == encoded(value)


@given(JSON, st.integers(1, 6))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
def test_large_values_are_joined_to_the_very_bytes_too(value: Any, size: int) -> None:
    """Everything is repeated and padded until it no longer fits into one chunk."""
    members = {f"k{number}": [value, "y" * 200] for number in range(size * 10)}
    large = {"list": [value, "x" * 400] * (size * 20), "object": members}
    data = encoded(large)

    root, parts = split(data)

    assert len(parts) > 1
    assert join(root, parts.__getitem__) == data


def test_every_chunk_is_named_by_its_digest_and_reached_from_the_root() -> None:
    root, parts = split(encoded({"log": ["x" * 300] * 100 + list(range(500)), "name": "n" * 5_000}))
    reached, wanted = set(), [root]
    while wanted:
        digest = wanted.pop()
        reached.add(digest)
        wanted.extend(references(parts[digest]))

    assert reached == set(parts)
    assert all(digest_of(body) == digest for digest, body in parts.items())


def test_a_small_value_is_one_chunk() -> None:
    root, parts = split(b'{"a":1}')

    assert parts == {root: b'["v",{"a":1}]'}
    assert references(parts[root]) == []


def test_a_growing_list_costs_its_new_elements_and_the_logarithm_of_its_length() -> None:
    turns = [{"turn": number, "text": f"{number:06} " + "x" * 1_000} for number in range(3_000)]
    costs = {}
    for length in (50, 400, 2_999):
        before, (_, after) = stored(encoded({"turns": turns[:length]})), split(encoded({"turns": turns[: length + 1]}))
        costs[length] = sum(len(body) for digest, body in after.items() if digest not in before)

    whole = len(encoded(turns))
    assert costs[2_999] < 8_000 < whole / 100
    assert costs[2_999] <= costs[50] + 3 * FANOUT * 80  # one more node per level of the tree, nothing else


def test_a_change_in_the_middle_of_a_long_list_costs_one_path() -> None:
    turns = [f"{number:06} " + "x" * 500 for number in range(1_000)]
    before = stored(encoded(turns))
    turns[500] = "changed " + "y" * 500

    new = stored(encoded(turns)) - before

    assert len(new) <= 1 + 3


def test_the_rest_of_an_object_is_not_stored_again_when_one_member_changes() -> None:
    value = {f"k{number}": f"{number} " + "x" * 500 for number in range(40)}
    before = stored(encoded(value))

    new = stored(encoded({**value, "k7": "changed " + "y" * 500})) - before

    assert len(new) == 2


def test_the_same_part_twice_is_stored_once() -> None:
    part = "x" * 3_000

    _, parts = split(encoded([part, part, part]))

    assert len(parts) == 2


def test_what_fits_in_place_makes_no_chunk_of_its_own() -> None:
    short, long = "x" * (INLINE_BYTES - 2), "y" * (INLINE_BYTES - 1)

    _, parts = split(encoded([short] * 60 + [long]))

    leaves = [body for body in parts.values() if body.startswith(b'["v"')]
    assert leaves == [b'["v",' + encoded(long) + b"]"]


def test_a_value_that_is_nested_deeper_than_the_split_goes_ends_in_one_leaf() -> None:
    value: Any = "x" * (WHOLE_BYTES + 1)
    for _ in range(chunks.DEPTH_MAX + 20):
        value = [value]

    assert joined(encoded(value)) == encoded(value)


def test_an_empty_list_and_an_empty_object_survive_inside_large_ones() -> None:
    data = encoded({"empty": [], "nothing": {}, "pad": ["x" * 300] * 30})

    assert joined(data) == data


# ---------------------------------------------------------------- chunks that nobody of ours wrote

ONE = digest_of(b"one")
HOSTILE: dict[str, dict[str, bytes]] = {
    "no JSON": {"root": b"}{"},
    "no UTF-8": {"root": b'["\xff",1]'},
    "no array": {"root": b'{"v":1}'},
    "nothing": {"root": b"[]"},
    "another kind": {"root": b'["x",1]'},
    "a kind that is no text": {"root": b"[1,1]"},
    "a leaf of two values": {"root": b'["v",1,2]'},
    "an object that is a list": {"root": b'["o",[1]]'},
    "an object with a bare member": {"root": b'["o",{"a":1}]'},
    "a slot of two values": {"root": b'["l",0,[[1,2]]]'},
    "a slot of no value": {"root": b'["l",0,[[]]]'},
    "a slot that is an object": {"root": b'["l",0,[{"a":1}]]'},
    "a reference that is no text": {"root": b'["l",1,[[1]]]'},
    "a list without slots": {"root": b'["l",0,[]]'},
    "a list that is too wide": {"root": b'["l",0,[' + b",".join([b"[1]"] * (FANOUT + 1)) + b"]]"},
    "a list of slots that is no list": {"root": b'["l",0,{"a":1}]'},
    "a height that is no number": {"root": b'["l","0",[[1]]]'},
    "a height below zero": {"root": b'["l",-1,["below"]]', "below": b'["l",-2,["below"]]'},
    "a height beyond all lists": {"root": b'["l",1000000,["root"]]'},
    "a node that is its own child": {"root": b'["l",1,["root"]]'},
    "a node whose child is too low": {"root": b'["l",2,["below"]]', "below": b'["l",0,[[1]]]'},
    "a node whose child is a leaf": {"root": b'["l",1,["below"]]', "below": b'["v",[1]]'},
    "an object that holds itself": {"root": b'["o",{"a":"root"}]'},
    "a list that holds itself": {"root": b'["l",0,["root"]]'},
    "a leaf nested beyond all measure": {"root": b'["v",' + b"[" * 100_000 + b"]" * 100_000 + b"]"},
}


@pytest.mark.parametrize("parts", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_chunk_is_refused(parts: dict[str, bytes]) -> None:
    """Requirement 15."""
    with pytest.raises(MalformedEntry):
        join("root", parts.__getitem__)


@pytest.mark.parametrize(
    "body",
    [b"}{", b"[]", b'["x",1]', b'["o",[1]]', b'["l",0,{"a":1}]', b'["l",-1,["x"]]', b'["l",0,["\\ud800"]]'],
)
def test_what_is_no_chunk_refers_to_nothing(body: bytes) -> None:
    with pytest.raises(MalformedEntry):
        references(body)


def test_a_chunk_names_its_parts() -> None:
    assert references(b'["o",{"a":"' + ONE.encode() + b'","b":[1]}]') == [ONE]
    assert references(b'["l",0,["' + ONE.encode() + b'",[2]]]') == [ONE]


@given(st.dictionaries(st.just("root"), st.binary(max_size=60), min_size=1))
def test_random_bytes_are_refused_or_joined_to_json(parts: dict[str, bytes]) -> None:
    try:
        data = join("root", parts.__getitem__)
    except (MalformedEntry, KeyError):
        return
    msgspec.json.decode(data)
