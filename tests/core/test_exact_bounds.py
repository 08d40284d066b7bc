"""A bound is where it is said to be: what lies on it is still allowed, what lies one beyond is not."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.approval import Binding, approval_id
from milepost.core.budget import Ledger, amounts
from milepost.core.chain import genesis, link, verify
from milepost.core.chunks import DEPTH_MAX, FANOUT, HEIGHT_MAX, WHOLE_BYTES, join, split
from milepost.core.nesting import LEVELS_MAX
from milepost.core.outcome import Ask, Attempt, Doubt, Facts, change, key_valid_until, next_move
from milepost.core.retry import Retry
from milepost.errors import Damaged, IllegalOutcome, MalformedEntry
from tests.core import samples as say


def leaves(*parts: Any) -> bytes:
    return msgspec.json.encode(list(parts))


def joined(data: bytes) -> bytes:
    root, parts = split(data)
    return join(root, parts.__getitem__)


# ---------------------------------------------------------------- state in chunks


def test_a_value_is_split_when_it_is_larger_than_a_whole_chunk_and_not_before() -> None:
    whole = leaves("x" * 200, "y" * (WHOLE_BYTES - 207))
    larger = leaves("x" * 200, "y" * (WHOLE_BYTES - 206))

    assert (len(whole), len(larger)) == (WHOLE_BYTES, WHOLE_BYTES + 1)
    assert len(split(whole)[1]) == 1
    assert len(split(larger)[1]) == 3


def test_a_list_that_fits_into_one_node_is_one_node() -> None:
    for length, height in ((FANOUT, 0), (FANOUT + 1, 1), (FANOUT * FANOUT, 1), (FANOUT * FANOUT + 1, 2)):
        data = leaves(*("x" * 300 for _ in range(length)))
        root, parts = split(data)

        assert parts[root].startswith(b'["l",%d,' % height)
        assert joined(data) == data


def test_a_value_is_split_down_to_the_greatest_depth_and_no_further() -> None:
    value: Any = "x" * (WHOLE_BYTES + 1)
    for _ in range(DEPTH_MAX + 20):
        value = [value]

    assert len(split(msgspec.json.encode(value))[1]) == DEPTH_MAX + 1


def referring(times: int) -> dict[str, bytes]:
    """Return a root and as many chunks, each in the one before it."""
    inner = {str(number): b'["l",0,["%d"]]' % (number + 1) for number in range(times)}
    return {**inner, str(times): b'["v",1]'}


def test_chunks_may_refer_to_each_other_twice_as_deeply_as_we_split_and_no_deeper() -> None:
    deepest = 2 * DEPTH_MAX

    assert join("0", referring(deepest).__getitem__) == b"[" * deepest + b"1" + b"]" * deepest
    with pytest.raises(MalformedEntry, match="too deeply"):
        join("0", referring(deepest + 1).__getitem__)


def test_a_list_may_be_as_high_as_the_highest_and_no_higher() -> None:
    def tower(height: int) -> dict[str, bytes]:
        return {"0": b'["l",0,[[1]]]', **{str(n): b'["l",%d,["%d"]]' % (n, n - 1) for n in range(1, height + 1)}}

    assert join(str(HEIGHT_MAX), tower(HEIGHT_MAX).__getitem__) == b"[1]"
    with pytest.raises(MalformedEntry, match="height"):
        join(str(HEIGHT_MAX + 1), tower(HEIGHT_MAX + 1).__getitem__)


def test_a_number_in_the_place_of_a_node_is_refused_like_any_other_leaf() -> None:
    with pytest.raises(MalformedEntry, match="height"):
        join("root", {"root": b'["l",1,["below"]]', "below": b'["v",1]'}.__getitem__)


# ---------------------------------------------------------------- entries


def test_an_entry_of_exactly_the_greatest_size_is_written_and_read() -> None:
    room = codec.ENTRY_BYTES_MAX - len(codec.encode(say.claimed(owner="")))
    largest = say.claimed(owner="x" * room)

    body = codec.encode(largest)

    assert len(body) == codec.ENTRY_BYTES_MAX
    assert codec.decode(body) == largest


def test_a_value_of_the_greatest_depth_still_fits_into_an_entry() -> None:
    deepest = msgspec.Raw(b"[" * LEVELS_MAX + b"]" * LEVELS_MAX)

    assert codec.decode(codec.encode(say.confirmed(result=deepest))) == say.confirmed(result=deepest)


def test_the_schemas_that_are_known_are_those_of_the_entries() -> None:
    assert codec._known_schemas() == codec.KNOWN
    assert codec.KNOWN["claimed"] == 1


@pytest.mark.parametrize("schema", ["+2", "2.2", " 2", "2_2"])
def test_a_schema_that_is_no_plain_number_is_malformed_and_not_newer(schema: str) -> None:
    with pytest.raises(MalformedEntry, match="there is no entry"):
        codec.decode(b'{"entry":"claimed.' + schema.encode() + b'","at":1}')


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def third_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `claimed` have been changed twice."""
    monkeypatch.setitem(codec.KNOWN, "claimed", 3)
    monkeypatch.setitem(codec.UPCASTERS, ("claimed", 1), lambda fields: {**fields, "trail": "1"})
    monkeypatch.setitem(codec.UPCASTERS, ("claimed", 2), lambda fields: {**fields, "owner": fields["trail"] + "2"})


def upcast(body: bytes, monkeypatch: pytest.MonkeyPatch) -> e.Claimed:
    """Decode what an older version wrote, where today's entry is `claimed.3`."""

    class Claimed(msgspec.Struct, tag="claimed.3", tag_field="entry", kw_only=True):
        at: int
        owner: str
        trail: str

    monkeypatch.setattr(codec, "_decoder", msgspec.json.Decoder(Claimed))
    decoded: Any = codec.decode(body)
    return e.Claimed(at=decoded.at, epoch=0, owner=decoded.owner)


@pytest.mark.usefixtures("third_schema")
def test_an_entry_passes_through_each_upcaster_from_its_own_schema_on(monkeypatch: pytest.MonkeyPatch) -> None:
    second = upcast(b'{"entry":"claimed.2","at":5,"trail":"own"}', monkeypatch)
    first = upcast(b'{"entry":"claimed.1","at":5}', monkeypatch)

    assert (first.owner, second.owner) == ("12", "own2")


@pytest.mark.usefixtures("third_schema")
def test_an_entry_without_a_schema_is_not_taken_for_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MalformedEntry, match="there is no entry"):
        upcast(b'{"entry":"claimed.x","at":5}', monkeypatch)


def test_a_gap_in_a_chain_is_found_at_the_entry_that_is_missing() -> None:
    start = genesis("store-1", "run-1")
    first = link(start, b"1")

    with pytest.raises(Damaged) as found:
        verify("run-1", start, 7, [(7, b"1", first), (9, b"2", link(first, b"2"))], first)

    assert found.value.seq == 8


def test_the_id_of_an_approval_is_the_same_in_every_version() -> None:
    """What a person was asked before an upgrade is answered after it."""
    binding = Binding(":0", "charge", "1", "keyed", "d1", "7+fingerprint")
    assert approval_id("run-1", 0, ":0/0", binding, "bot", 1_000) == "ap-6169d6449fbd0f82"


# ---------------------------------------------------------------- money, keys, retries


def test_an_amount_below_one_and_nothing_at_all_are_amounts() -> None:
    assert amounts({"usd": Decimal("0.01"), "calls": 0}) == {"usd": Decimal("0.01"), "calls": Decimal(0)}


def test_a_reservation_in_one_unit_holds_nothing_of_another() -> None:
    ledger = Ledger(granted=say.usd(5), reserved={":0": {"tokens": Decimal(900)}, ":1": say.usd(2)})

    assert ledger.left("usd") == 3


def test_a_key_that_lives_a_little_more_than_four_attempts_loses_one_attempt_s_time() -> None:
    first = [Attempt(1, 100, 1)]

    assert key_valid_until(Facts("keyed", key_ttl_ms=40_000, timeout_ms=10_000), first) == 100 + 30_000
    assert key_valid_until(Facts("keyed", key_ttl_ms=44_000, timeout_ms=10_000), first) == 100 + 34_000


def test_a_failure_is_taken_for_final_where_nobody_says_otherwise() -> None:
    with pytest.raises(IllegalOutcome):
        change("failed", "retry")


def test_an_answer_that_was_neither_found_nor_absent_lets_it_be_asked_at_once() -> None:
    in_doubt = Doubt([Attempt(1, 0, 1)], asks=1)

    assert next_move(Facts("queryable", visible_ms=1_000, reconcilable=True), in_doubt, now=0) == Ask()


def test_one_try_is_a_retry_policy_that_never_tries_again() -> None:
    assert Retry(1).delay_ms(1, 0.0) is None


def test_a_retry_without_a_pause_does_not_wait() -> None:
    assert Retry(3, first="0s").delay_ms(1, 0.5) == 0
