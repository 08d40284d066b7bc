from __future__ import annotations

import datetime as dt
import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.definitions import signatures
from milepost.definitions.arguments import Arguments
from milepost.errors import InvalidArguments, InvalidDeclaration


@dataclass(frozen=True)
class Address:
    street: str


class Person(pydantic.BaseModel):
    name: str
    address: Address


class Robot(pydantic.BaseModel):
    serial: int


def of(fn: Callable[..., Any], *volatile: str) -> Arguments:
    return Arguments("charge", signatures.read(fn, "charge").parameters, volatile)


def charge(order: str, cents: int = 5) -> None: ...


def both(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def first(*args: Any) -> Any:
    return args[0]


def test_defaults_belong_to_the_recorded_arguments() -> None:
    bound = of(charge).bind(("o-1",), {})

    assert bound.data == b'{"order":"o-1","cents":5}'
    assert bound.digest == hashlib.sha256(bound.data).hexdigest()
    assert (bound.value("order"), bound.value("cents")) == ("o-1", 5)


@pytest.mark.parametrize(("args", "kwargs"), [(("o", 7), {}), (("o",), {"cents": 7}), ((), {"cents": 7, "order": "o"})])
def test_a_call_is_the_same_however_its_arguments_are_passed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bound = of(charge).bind(args, kwargs)

    assert bound.digest == of(charge).from_json('{"cents": 7, "order": "o"}').digest
    assert bound.call(lambda *given: given) == ("o", 7)


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "order"),
        (("o", 1, 2), {}, "Extra positional"),
        (("o",), {"order": "p"}, "given by name and position"),
        (("o",), {"colour": 1}, "colour"),
        ((5,), {}, "Expected `str`, got `int` - at `$.order`"),
        (("o", True), {}, "Expected `int`, got `bool`"),
        (("o", float("nan")), {}, "cents"),
        (("\ud800",), {}, "surrogates"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        of(charge).bind(args, kwargs)

    assert refused.value.tool == "charge"
    assert why in refused.value.why


def test_an_argument_that_would_change_on_the_way_is_named() -> None:
    def ask(messages: list[dict[str, Any]], more: Any = None) -> None: ...

    with pytest.raises(InvalidArguments, match=r"more=\(1, 2\) would be read back as \[1, 2\]"):
        of(ask).bind(([{}],), {"more": (1, 2)})


def test_the_function_gets_what_the_record_says() -> None:
    def mean(numbers: list[float], at: dt.date) -> None: ...

    numbers = [1, 2]
    bound = of(mean).bind((numbers, dt.date(2026, 1, 2)), {})
    numbers.append(3)

    given, at = bound.call(lambda *args: args)
    assert given == [1.0, 2.0]
    assert all(type(number) is float for number in given)
    assert at == dt.date(2026, 1, 2)


def test_one_attempt_cannot_change_what_the_next_one_sends() -> None:
    def ask(messages: list[str]) -> None: ...

    bound = of(ask).bind((["hello"],), {})
    bound.call(lambda messages: messages.append("spoilt"))
    bound.value("messages").append("spoilt")

    assert bound.call(lambda messages: messages) == ["hello"]


def test_keyword_only_parameters_are_passed_by_name() -> None:
    def send(to: str, retries: int = 1, *, body: str, subject: str = "hi") -> None: ...

    arguments = of(send)
    bound = arguments.bind(("a",), {"body": "b"})

    assert bound.call(both) == (("a", 1), {"body": "b", "subject": "hi"})
    assert bound.call(both, "CALL") == (("CALL", "a", 1), {"body": "b", "subject": "hi"})
    assert arguments.read(bound.data).call(send) is None
    assert arguments.from_json({"body": "b", "to": "a"}).digest == bound.digest
    with pytest.raises(InvalidArguments, match="Extra positional"):
        arguments.bind(("a", 1, "b"), {})


def test_a_default_that_can_be_changed_is_copied_for_each_call() -> None:
    def tag(names: list[str] = ["a"], where: Address = Address("x")) -> None: ...  # noqa: B006

    bound = of(tag).bind((), {})

    assert bound.data == b'{"names":["a"],"where":{"street":"x"}}'
    assert bound.call(first) is not bound.call(first)


def test_a_volatile_argument_is_recorded_and_does_not_identify() -> None:
    def ask(text: str, trace_id: str) -> None: ...

    arguments = of(ask, "trace_id")
    one, two = arguments.bind(("hi", "1"), {}), arguments.bind(("hi", "2"), {})

    assert one.data != two.data
    assert one.digest == two.digest == arguments.read(two.data).digest
    assert one.digest != arguments.bind(("ho", "1"), {}).digest
    assert two.value("trace_id") == "2"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers())
def test_recorded_arguments_are_read_back_as_the_same_call(order: str, cents: int) -> None:
    bound = of(charge).bind((order, cents), {})
    again = of(charge).read(bound.data)

    assert (again.digest, again.data) == (bound.digest, bound.data)
    assert again.call(lambda *args: args) == (order, cents)


def test_recorded_arguments_that_no_longer_fit_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="cents"):
        of(charge).read(b'{"order":"o","cents":"x"}')


@pytest.mark.parametrize("said", ["", "  ", "{}"])
def test_a_model_may_say_nothing_to_a_tool_without_parameters(said: str) -> None:
    def ping() -> None: ...

    assert of(ping).from_json(said).data == b"{}"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"cents": 1}', "order"),
        ('{"order": "o", "cents": "1"}', "Expected `int`, got `str` - at `$.cents`"),
        ('{"order": "o", "colour": 1}', "colour"),
        ({"order": float("nan")}, "read back"),
        ({"order": "o", "cents": object()}, "object"),
        ({"order": "o", "cents": 1.5}, "cents"),
    ],
)
def test_arguments_made_by_a_model_are_refused_in_words_for_it(said: Any, why: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        of(charge).from_json(said)

    assert why in refused.value.why
    assert refused.value.for_model().startswith("The arguments for charge are not valid: ")


def test_models_inside_arguments_are_validated_and_kept() -> None:
    def meet(who: Person, others: list[Person | Robot]) -> None: ...

    arguments = of(meet)
    said = {"who": {"name": "A", "address": {"street": "s"}}, "others": [{"serial": 3}]}
    bound = arguments.from_json(json.dumps(said))

    assert bound.value("who") == Person(name="A", address=Address("s"))
    assert bound.value("others") == [Robot(serial=3)]
    assert bound.digest == arguments.bind((bound.value("who"), bound.value("others")), {}).digest
    with pytest.raises(InvalidArguments, match="serial"):
        arguments.from_json({"who": said["who"], "others": [{"serial": "x"}]})


def test_the_schema_is_one_object_with_its_definitions_inside() -> None:
    def meet(who: Person, where: Address, times: int = 1) -> None: ...

    schema = of(meet).schema

    assert schema["type"] == "object"
    assert schema["required"] == ["who", "where"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["where"] == {"$ref": "#/$defs/Address"}
    assert schema["properties"]["times"] == {"type": "integer", "default": 1}
    assert "Address" in schema["$defs"]
    assert "$ref" not in schema


def test_a_default_that_does_not_fit_its_type_is_refused_when_it_is_declared() -> None:
    def charge(order: str, cents: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    with pytest.raises(InvalidDeclaration, match="the default of parameter cents of charge does not fit its type"):
        of(charge)


def test_parameters_without_a_name_are_refused() -> None:
    def one(*orders: str) -> None: ...

    def two(**orders: str) -> None: ...

    for fn in (one, two):
        with pytest.raises(InvalidDeclaration, match=r"orders.*cannot be recorded"):
            of(fn)


def test_a_parameter_without_an_annotation_takes_anything_that_can_be_read_back() -> None:
    def log(what) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    assert of(log).bind(({"a": [1]},), {}).value("what") == {"a": [1]}
    with pytest.raises(InvalidArguments):
        of(log).bind(({1},), {})


def test_an_annotation_that_cannot_be_resolved_is_refused_by_name() -> None:
    def charge(order: Order, cents: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert inspect.signature(charge).parameters["order"].annotation == "Order"
    with pytest.raises(InvalidDeclaration, match="the annotation 'Order' cannot be resolved"):
        of(charge)


def test_equal_numbers_are_the_same_call_however_they_are_spelled() -> None:
    def weigh(kilos: float, more: list[float]) -> None: ...

    whole, spelled = of(weigh).bind((3, [1]), {}), of(weigh).bind((3.0, [1.0]), {})

    assert whole.data == spelled.data == b'{"kilos":3.0,"more":[1.0]}'
    assert whole.digest == spelled.digest == of(weigh).from_json('{"more": [1], "kilos": 3}').digest
