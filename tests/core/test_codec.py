"""Entries to bytes and back: the same entry, or a refusal with a reason; never a guess."""

from collections.abc import Callable
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core import codec
from milepost.core import entries as e
from milepost.errors import MalformedEntry, NewerSchema
from tests.core import samples as say

KINDS: tuple[type[e.Entry], ...] = get_args(codec.AnyEntry)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
BASIC: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(max_size=40),
    bool: st.booleans(),
    NoneType: st.none(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    msgspec.Raw: VALUES.map(msgspec.json.encode).map(msgspec.Raw),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return values of a type that stands in an entry."""
    if kind in BASIC:
        return BASIC[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return st.one_of([values_of(part) for part in parts])
    if origin is dict:
        return st.dictionaries(values_of(parts[0]), values_of(parts[1]), max_size=3)
    if origin is tuple and parts[-1] is Ellipsis:
        return st.lists(values_of(parts[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, parts))
    return st.deferred(lambda: structs(kind))


def structs(kind: Any) -> st.SearchStrategy[Any]:
    """Return entries, or parts of them, with every field drawn, and with the optional ones left out as well."""
    hints = get_type_hints(kind)
    needed = {field.name for field in msgspec.structs.fields(kind) if field.required}
    drawn = {name: values_of(hints[name]) for name in kind.__struct_fields__}
    always, maybe = {n: drawn[n] for n in drawn if n in needed}, {n: drawn[n] for n in drawn if n not in needed}
    return st.fixed_dictionaries(always, optional=maybe).map(lambda facts: kind(**facts))


def tagged(tag: str, **more: Any) -> bytes:
    """Return the bytes of an entry under another name or schema."""
    return msgspec.json.encode({**msgspec.json.decode(codec.encode(say.claimed())), "entry": tag, **more})


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_every_entry_is_read_back_as_it_was_written(kind: type[e.Entry], data: st.DataObject) -> None:
    entry = data.draw(structs(kind))

    body = codec.encode(entry)

    assert codec.decode(body) == entry
    assert codec.encode(codec.decode(body)) == body


def test_every_entry_that_is_defined_can_be_read() -> None:
    assert set(KINDS) == set(e.Entry.__subclasses__())
    assert len(codec.KNOWN) == len(KINDS)


def test_an_entry_says_its_name_and_schema() -> None:
    body = msgspec.json.decode(codec.encode(say.claimed()))

    assert body["entry"] == "claimed.1"
    assert codec.name_of(say.claimed()) == "claimed"


def test_bytes_name_no_class_and_hold_no_code() -> None:
    body = codec.encode(say.created()).decode()

    assert "RunCreated" not in body
    assert "milepost" not in body


def test_entries_are_frozen() -> None:
    with pytest.raises(AttributeError):
        say.claimed().epoch = 9  # type: ignore[misc]


# ---------------------------------------------------------------- what is refused


def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(MalformedEntry, match="no entry 'coup'"):
        codec.decode(tagged("coup.1"))


def test_a_newer_schema_is_refused_with_both_numbers() -> None:
    with pytest.raises(NewerSchema) as refused:
        codec.decode(tagged("claimed.2", brand_new="x"))

    assert (refused.value.found, refused.value.known) == (2, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b'{"entry":1}', b'{"entry":"claimed"}', b'{"entry":"claimed."}',
        b'{"entry":"claimed.x","at":1}', b'{"entry":"claimed.-1","at":1}', b'{"entry":"claimed.' + b"9" * 5_000 + b'"}',
        b'{"entry":"claimed.1"}', b'{"entry":"claimed.1","at":1,"epoch":"one","owner":"w"}',
        b'{"entry":"claimed.1","at":1,"epoch":1,"owner":"w"', b'{"entry":"claimed.1","at":1,"epoch":1,"owner":"\xff"}',
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_entry_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedEntry):
        codec.decode(body)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_in_one_way(body: bytes) -> None:
    with pytest.raises(MalformedEntry):
        codec.decode(body)


def test_lone_surrogates_are_refused_on_the_way_in() -> None:
    with pytest.raises(MalformedEntry, match="surrogates"):
        codec.encode(say.claimed(owner="\ud800"))


def test_lone_surrogates_are_refused_on_the_way_out() -> None:
    with pytest.raises(MalformedEntry):
        codec.decode(b'{"entry":"claimed.1","at":1,"epoch":1,"owner":"\\ud800"}')


def test_an_entry_over_the_size_limit_is_refused_both_ways() -> None:
    large = "x" * codec.ENTRY_BYTES_MAX

    with pytest.raises(MalformedEntry, match="by reference"):
        codec.encode(say.claimed(owner=large))
    with pytest.raises(MalformedEntry, match="the limit is"):
        codec.decode(b'{"entry":"claimed.1","at":1,"epoch":1,"owner":"' + large.encode() + b'"}')


@pytest.mark.parametrize("field", ["result", "unheard_of"])
def test_what_is_nested_beyond_all_measure_is_refused(field: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000

    with pytest.raises(MalformedEntry):
        codec.decode(b'{"entry":"effect_confirmed.1","at":1,"step":"s","attempt":1,"%b":%b}' % (field.encode(), deep))


# ---------------------------------------------------------------- what an older version wrote

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Upcaster], None]:
    """Return how to register an upcaster for an older schema of `claimed`, as an entry's own change would do."""
    monkeypatch.setitem(codec.KNOWN, "claimed", 1)
    return lambda schema, upcaster: monkeypatch.setitem(codec.UPCASTERS, ("claimed", schema), upcaster)


def test_an_older_entry_passes_through_its_upcaster(older: Callable[[int, Upcaster], None]) -> None:
    older(0, lambda fields: {"at": fields["when"], "epoch": fields["epoch"], "owner": fields["worker"]})

    entry = codec.decode(b'{"entry":"claimed.0","when":5,"epoch":2,"worker":"w"}')

    assert entry == e.Claimed(at=5, epoch=2, owner="w")


def test_an_older_entry_without_upcaster_is_refused() -> None:
    with pytest.raises(MalformedEntry, match="no upcaster"):
        codec.decode(b'{"entry":"claimed.0","when":5,"epoch":2,"worker":"w"}')


@pytest.mark.parametrize(
    "upcaster",
    [lambda _: {"at": "never"}, lambda fields: {**fields, "owner": "\ud800"}],
    ids=["does not fit", "cannot be written"],
)
def test_an_older_entry_that_cannot_be_upcast_is_refused(
    older: Callable[[int, Upcaster], None], upcaster: Upcaster
) -> None:
    older(0, upcaster)

    with pytest.raises(MalformedEntry, match="could not be upcast"):
        codec.decode(b'{"entry":"claimed.0","at":5,"epoch":2,"owner":"w"}')


def test_an_older_entry_with_unreadable_text_is_refused(older: Callable[[int, Upcaster], None]) -> None:
    older(0, dict)

    with pytest.raises(MalformedEntry):
        codec.decode(b'{"entry":"claimed.0","at":5,"epoch":2,"owner":"w","note":"\\ud800"}')
