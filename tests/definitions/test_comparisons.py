"""Plain comparisons have one answer: the one that the CEL library gives, or none."""

from typing import Any

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.policy import Request
from milepost.definitions import comparisons
from milepost.definitions.conditions import About, Condition

CONSTANTS = ("0", "-1", "5000", "0.5", "-0.0", "1000000.0", '"eur"', '""', "9223372036854775807")
FIELDS = ("args.cents", "args.deep.cents", "args.none", "budget.left.usd", "args.currency")
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")
terms = st.builds(lambda *parts: " ".join(parts), *map(st.sampled_from, (FIELDS, OPERATORS, CONSTANTS)))
sources = st.builds(lambda parts, joint: joint.join(parts), st.lists(terms, min_size=1, max_size=3),
                    st.sampled_from((" && ", " || ")))  # fmt: skip
scalars = st.one_of(
    st.integers(-2, 5001), st.just(2**63), st.just(-(2**63) - 1), st.floats(), st.booleans(), st.none(),
    st.sampled_from(("eur", "", "usd", "\u00e4")), st.lists(st.integers(0, 1), max_size=1),
)  # fmt: skip


def library_says(source: str, values: dict[str, Any]) -> object:
    try:
        return cel.compile(source).execute(cel.Context(values))
    except Exception as error:  # noqa: BLE001  whatever it raises is no answer
        return error


@given(sources, st.dictionaries(st.sampled_from(("cents", "none", "currency")), scalars), scalars, scalars)
def test_what_is_answered_plainly_is_what_the_library_says(
    source: str, args: dict[str, Any], deep: object, left: object
) -> None:
    values = {"args": {**args, "deep": {"cents": deep}}, "budget": {"left": {"usd": left}}}
    read = comparisons.read(source)
    plain = read.answer(values) if read is not None else None

    said = library_says(source, values)

    assert plain is None or said is plain


@pytest.mark.parametrize(
    ("source", "args", "answer"),
    [
        ("args.cents <= 5000", {"cents": 5000}, True),
        ("args.cents <= 5000", {"cents": 5001}, False),
        ("args.cents > 1 && args.cents < 3", {"cents": 2}, True),
        ("args.cents > 1 && args.cents < 3", {"cents": 3}, False),
        ("args.cents < 1 || args.cents > 3", {"cents": 4}, True),
        ("args.cents < 1 || args.cents > 3", {"cents": 2}, False),
        ('args.currency == "eur"', {"currency": "eur"}, True),
        ('args.currency != "eur"', {"currency": "eur"}, False),
        ("args.rate >= 0.5", {"rate": 0.5}, True),
        ("args.cents <= 5000", {}, None),
        ("args.cents <= 5000", {"cents": None}, None),
        ("args.cents <= 5000", {"cents": True}, None),
        ("args.cents <= 5000", {"cents": 5000.0}, None),
        ("args.cents <= 5000", {"cents": 2**63}, None),
        ("args.cents.more <= 5000", {"cents": 1}, None),
        ("args.cents < 1 && args.rate < 1", {"cents": 2}, None),
    ],
)
def test_a_comparison_is_answered_where_every_field_is_of_the_constant_s_type(
    source: str, args: dict[str, Any], answer: object
) -> None:
    read = comparisons.read(source)

    assert read is not None
    assert read.answer({"args": args}) is answer


@pytest.mark.parametrize(
    "source",
    [
        "args.cents <= 5000 && args.a > 1 || args.b > 1",
        "!(args.cents > 1)",
        "size(args.items) > 1",
        'args.currency < "eur"',
        "args.currency == 'eur'",
        'args.currency == "e\\u0075r"',
        "args.cents <= 9223372036854775808",
        "args.cents <= 5u",
        "args.cents <= args.most",
        "args.cents + 1 <= 5",
        "5 >= args.cents",
        'args["cents"] <= 5',
        "args.cents <= 1e3",
        "args <= 5",
        "true",
        "",
    ],
)
def test_anything_else_is_left_to_the_library(source: str) -> None:
    assert comparisons.read(source) is None


def test_nothing_is_converted_for_plain_comparisons_alone() -> None:
    about = About(Request("charge", views={"args": lambda: {"cents": 3, "unread": object()}}), {"args"})

    assert Condition("args.cents <= 5000").holds(about) is True
    assert about.wrong == ""


def test_what_cannot_be_converted_is_the_reason_where_the_library_is_needed() -> None:
    about = About(Request("charge", views={"args": lambda: {"cents": 3, "unread": object()}}), {"args"})

    said = Condition("args.cents + 1 <= 5000").holds(about)

    assert isinstance(said, str)
    assert about.wrong == said
