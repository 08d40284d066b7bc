import datetime as dt
import json
import math
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.definitions.values import Codec
from milepost.errors import InvalidDeclaration, InvalidValue


@dataclass(frozen=True)
class Receipt:
    order: str
    cents: int
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Refund(Receipt):
    why: str = ""


@dataclass(eq=False)
class Ticket:
    """Equal only to itself, as a class is by default."""

    number: int
    inside: Any = None


class Point(msgspec.Struct):
    x: int
    y: int


class Labels(TypedDict):
    name: str


class Pair(NamedTuple):
    left: int
    right: str


class Colour(StrEnum):
    RED = "red"


class Level(Enum):
    LOW = 1


class Item(pydantic.BaseModel):
    name: str
    due: dt.date
    price: Decimal
    tags: set[str] = set()


class Order(pydantic.BaseModel):
    number: int = pydantic.Field(alias="orderNumber")
    items: list[Item] = []


class Card(pydantic.BaseModel):
    last4: str


class Transfer(pydantic.BaseModel):
    iban: str


@dataclass(frozen=True)
class Paying:
    how: Card | Transfer
    order: Order


ITEM = Item(name="pen", due=dt.date(2026, 1, 2), price=Decimal("1.10"), tags={"b", "a", "c"})


def of(kind: Any) -> Codec[Any]:
    return Codec(kind, "value")


WRITABLE: list[tuple[Any, Any]] = [
    (str, "café ✓"),
    (int, -7),
    (int, 2**80),
    (bool, True),
    (float, 0.1),
    (float, 3),
    (None, None),
    (bytes, b"\x00\xff"),
    (str | None, None),
    (int | str, "7"),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (set[int], {3, 1, 2}),
    (frozenset[str], frozenset({"b", "a"})),
    (dict[str, Any], {"b": 1, "a": [None, True, "x", 1.5]}),
    (dict[int, str], {2: "b", 10: "a"}),
    (dict[dt.date, int], {dt.date(2026, 1, 2): 1}),
    (dt.datetime, dt.datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=dt.UTC)),
    (dt.datetime, dt.datetime(2026, 1, 2)),  # noqa: DTZ001 - a user's naive time stays naive
    (dt.date, dt.date(2026, 1, 2)),
    (dt.time, dt.time(3, 4)),
    (dt.timedelta, dt.timedelta(days=1, microseconds=5)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Colour, Colour.RED),
    (Level, Level.LOW),
    (Receipt, Receipt("o-1", 5, ["a"])),
    (list[Receipt], [Receipt("o-1", 5)]),
    (Ticket, Ticket(1, [2])),
    (list[Ticket], [Ticket(1)]),
    (dict[str, Ticket], {"a": Ticket(1)}),
    (Point, Point(1, 2)),
    (Labels, {"name": "n"}),
    (Pair, Pair(1, "a")),
    (Annotated[str, msgspec.Meta(max_length=3)], "abc"),
    (Item, ITEM),
    (Item | None, ITEM),
    (list[Item], [ITEM]),
    (Order, Order(orderNumber=4, items=[ITEM])),
    (Card | Transfer, Transfer(iban="DE1")),
    (Card | str, "cash"),
    (list[Card | Transfer], [Card(last4="1"), Transfer(iban="2")]),
    (Paying, Paying(Transfer(iban="DE1"), Order(orderNumber=4))),
    (Any, {"a": [1, "b", None, True, {}]}),
    (object, [1]),
]

LOSSY: list[tuple[Any, Any, str]] = [
    (float, math.nan, "float"),
    (float | None, math.nan, "nan would be read back as None"),
    (float, math.inf, "float"),
    (Any, math.nan, "nan would be read back as None"),
    (Any, [math.nan], "read back as"),
    (Any, {1, 2}, "read back as"),
    (Any, (1, 2), "read back as"),
    (dict[str, Any], {"a": {"b": (1,)}}, "read back as"),
    (Any, {1: "a"}, "read back as"),
    (Any, dt.date(2026, 1, 2), "read back as"),
    (Any, Receipt("o", 1), "read back as"),
    (Any, object(), "object cannot be stored"),
    (str, "\ud800", "surrogates not allowed"),
    (Any, ["\ud800"], "surrogates not allowed"),
    (str, 5, "Expected `str`, got `int`"),
    (int, True, "Expected `int`, got `bool`"),
    (int, "5", "Expected `int`, got `str`"),
    (Decimal, Decimal("NaN"), "read back as"),
    (Receipt, Refund("o", 1, why="w"), "read back as"),
    (Receipt, Receipt("o", "5"), "Expected `int`, got `str` - at `$.cents`"),  # type: ignore[arg-type]
    (Ticket, Ticket(1, (2,)), "read back as"),
    (Labels, {"name": "n", "more": 1}, "read back as"),
    (Annotated[str, msgspec.Meta(max_length=3)], "abcd", "length <= 3"),
    (Item, Item.model_construct(name="pen", due="soon", price=Decimal(1)), "due"),
]


@pytest.mark.parametrize(("kind", "value"), WRITABLE)
def test_what_is_written_is_read_back_equal(kind: Any, value: Any) -> None:
    codec: Codec[Any] = Codec(kind, "value")

    data, kept = codec.round_trip(value)

    assert data == codec.write(value)
    assert codec.write(codec.read(data)) == codec.write(kept) == data
    assert repr(codec.read(data)) == repr(kept)
    assert type(kept) is type(value) or (kind, value) == (float, 3)
    if not isinstance(value, list | dict | Ticket):
        assert kept == value


@pytest.mark.parametrize(("kind", "value", "why"), LOSSY)
def test_what_cannot_be_read_back_is_refused_before_it_is_written(kind: Any, value: Any, why: str) -> None:
    codec: Codec[Any] = Codec(kind, "result of charge")

    with pytest.raises(InvalidValue) as refused:
        codec.write(value)

    assert refused.value.what == "result of charge"
    assert why in refused.value.why


def test_a_value_at_the_bound_of_nesting_is_written_and_read_back_and_one_level_more_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(127):
        deep = [deep]

    assert of(Any).read(of(Any).write(deep)) == deep
    with pytest.raises(InvalidValue, match="nested more than 128 levels deep"):
        of(Any).write([deep])


def test_a_value_nested_beyond_reason_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(InvalidValue, match="nested more than 128 levels deep"):
        of(Any).write(deep)
    with pytest.raises(InvalidValue, match="nested more than 128 levels deep"):
        of(Any).read(b"[" * 100_000 + b"]" * 100_000)
    while deep:  # freed link by link: the interpreter would run out of stack too
        deep = deep[0]


@pytest.mark.parametrize(
    ("kind", "lossless"),
    [(str, True), (None, True), (int | None, True), (Any, False), (float, False), (Item, False), (str | Item, False)],
)
def test_only_a_type_that_json_keeps_whole_is_lossless(kind: Any, lossless: bool) -> None:  # noqa: FBT001
    assert of(kind).lossless is lossless


@pytest.mark.parametrize("data", [b"", b"{", b'{"order":"o"}', b'{"order":"o","cents":"x"}', b'"\\ud800"', b"\xff"])
def test_bytes_that_do_not_fit_the_type_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidValue):
        Codec(Receipt, "state").read(data)


def test_a_type_that_refuses_in_its_own_constructor_is_refused_by_name() -> None:
    @dataclass
    class Positive:
        amount: int

        def __post_init__(self) -> None:
            if self.amount < 0:
                raise LookupError("less than nothing")

    with pytest.raises(InvalidValue, match="less than nothing"):
        Codec(Positive, "state").read(b'{"amount":-1}')


def test_an_eq_that_raises_lets_the_parts_decide() -> None:
    @dataclass(eq=False)
    class Odd:
        number: int

        def __eq__(self, other: object) -> bool:
            raise LookupError

        __hash__ = None  # type: ignore[assignment]

    assert of(Odd).write(Odd(3)) == b'{"number":3}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_json_value_survives(value: Any) -> None:
    try:
        data = of(Any).write(value)
    except InvalidValue as refused:
        assert "surrogates" in refused.why  # noqa: PT017 - the one reason there may be
        return
    assert of(Any).read(data) == value
    assert json.loads(data) == value


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers()))
def test_equal_values_have_equal_bytes_in_whatever_order_they_were_built(value: dict[str, int]) -> None:
    turned = OrderedDict(reversed(value.items()))

    assert of(Any).write(turned) == of(Any).write(value)


ORDERS_OF_SETS = """
import sys
from tests.definitions.test_values import ITEM, Order, Codec
names = {f"n{number}" for number in range(50)}
order = Order(orderNumber=1, items=[ITEM.model_copy(update={"tags": names})])
sys.stdout.buffer.write(Codec(Order, "o").write(order) + Codec(set[str], "s").write(names))
"""


def test_sets_have_equal_bytes_in_every_process() -> None:
    root = Path(__file__).parents[2]
    written = {
        subprocess.run(
            [sys.executable, "-c", ORDERS_OF_SETS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{root / 'src'}:{root}"},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(written) == 1
    assert b'["n0","n1","n10"' in written.pop()


class Opaque:
    """Nothing can write this."""


@dataclass
class Holder:
    inside: list[Opaque | None]


@pytest.mark.parametrize("kind", [Opaque, list[Opaque], Holder, Path, Receipt | Refund, "Missing"])
def test_a_type_that_cannot_be_stored_is_refused_when_it_is_declared(kind: Any) -> None:
    with pytest.raises(InvalidDeclaration, match=r"^state of pay: "):
        Codec(kind, "state of pay")


@dataclass
class Tree:
    children: "list[Tree]"


def test_a_recursive_type_can_be_stored() -> None:
    assert of(Tree).write(Tree([Tree([])])) == b'{"children":[{"children":[]}]}'


def test_the_schema_of_a_type_holds_what_it_refers_to() -> None:
    schema = Codec(list[Order], "orders").schema()

    assert set(schema["$defs"]) == {"Item"}
    assert schema["items"]["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert Codec(Card | Transfer, "how").schema()["anyOf"] == [{"$ref": "#/$defs/Card"}, {"$ref": "#/$defs/Transfer"}]
    assert Codec(Any, "x").schema() == {}
    assert Codec(object, "x").schema() == {"description": "any value"}


def test_the_fingerprint_of_a_type_changes_when_the_type_does() -> None:
    @dataclass
    class State:
        number: int

    first = Codec(State, "state").fingerprint

    @dataclass
    class State:  # type: ignore[no-redef]
        number: int | None

    assert Codec(State, "state").fingerprint != first
    assert len(first) == 64
    assert Codec(int, "a").fingerprint == Codec(int, "b").fingerprint


def test_pydantic_is_not_imported_by_us() -> None:
    imports = "import sys, milepost.definitions.run, milepost.definitions.http"
    program = f"{imports}; print({{'pydantic', 'httpx'}} & {{*sys.modules}})"
    src = Path(__file__).parents[2] / "src"
    ran = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(src)}, capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "set()"
