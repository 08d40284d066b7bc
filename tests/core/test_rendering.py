"""What is approved is read by a person: nothing in it acts, hides or pretends, and other bytes have other lines."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.rendering import look_alikes, rendered, visible


def lines(value: Any) -> list[str]:
    return rendered(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def test_each_leaf_is_a_line_in_the_order_in_which_it_is_recorded() -> None:
    assert lines({"to": "bob", "cents": 500, "tags": ["a", {"b": None}], "odd name": True, "none": [], "": {}}) == [
        'to = "bob"', "cents = 500", 'tags[0] = "a"', "tags[1].b = null", '["odd name"] = true', "none = []",
        '[""] = {}',
    ]  # fmt: skip


def test_a_change_of_one_line_of_a_text_is_a_change_of_one_line() -> None:
    before, after = lines({"body": "Dear Bob,\nyou owe 5.\nAnn"}), lines({"body": "Dear Bob,\nyou owe 50.\nAnn"})

    assert before == ["body =", "  | Dear Bob,", "  | you owe 5.", "  | Ann"]
    assert [one for one, other in zip(before, after, strict=True) if one != other] == ["  | you owe 5."]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("\ufeffa", "⟨U+FEFF⟩a"),
        ("a\u00a0b", "a⟨U+00A0⟩b"),
        ("\x1b[2J", "⟨U+001B⟩[2J"),
        ("a\tb\r", "a⟨U+0009⟩b⟨U+000D⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("\u3164", "⟨U+3164⟩"),
        ("\u2800", "⟨U+2800⟩"),
        ("x\U000e0041", "x⟨U+E0041⟩"),
        ("x\ufe0f", "x⟨U+FE0F⟩"),
        ("\ue000", "⟨U+E000⟩"),
        ("⟨U+202E⟩", "⟨U+27E8⟩U+202E⟨U+27E9⟩"),
        ("größe 名前", "größe 名前"),
    ],
)
def test_what_cannot_be_seen_is_made_visible(text: str, shown: str) -> None:
    """Requirement 20."""
    assert visible(text) == shown
    assert lines({"x": text})[0] == f'x = "{shown}"'


def test_numbers_stand_as_the_bytes_have_them_and_a_name_twice_is_shown_twice() -> None:
    assert rendered(b'{"a":1.50,"a":1e2,"b":123456789012345678901234567890}') == [
        "a = 1.50", "a = 1e2", "b = 123456789012345678901234567890",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "x\n  | b"}, {"a": "x\nb"}),
        ({"a": 'x"\nb = "y'}, {"a": "x", "b": "y"}),
        ({"a": 'x", b = "y'}, {"a": "x", "b": "y"}),
        ({"a": "\\n"}, {"a": "\n"}),
        ({"a": "1"}, {"a": 1}),
        ({"a": "null"}, {"a": None}),
        ({"a.b": 1}, {"a": {"b": 1}}),
        ({"a": [1]}, {"a[0]": 1}),
        ({"a": []}, {"a": {}}),
        ({"a": "x "}, {"a": "x"}),
        ({"a": "x \ny"}, {"a": "x\ny"}),
    ],
)
def test_a_text_cannot_pretend_to_be_something_else(one: Any, other: Any) -> None:
    """Requirement 20."""
    assert lines(one) != lines(other)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_values_that_differ_have_lines_that_differ(one: Any, other: Any) -> None:
    """Requirement 20."""
    assert (lines(one) == lines(other)) is (json.dumps(one) == json.dumps(other))


@given(st.text())
def test_no_line_holds_anything_that_cannot_be_seen(text: str) -> None:
    for line in [*lines({"x": text, text: 1}), *rendered(text.encode("utf-8", "surrogatepass"))]:
        assert not [one for one in line if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}]
        assert "\n" not in line


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"1", ["value = 1"]),
        (b'"a\\nb"', ["value =", "  | a", "  | b"]),
        (b'{"x":false,"y":true}', ["x = false", "y = true"]),
        (b'{"x":NaN,"y":-Infinity}', ["x = NaN", "y = -Infinity"]),
        (b'{"a":{"odd name":{"b":1}}}', ['a["odd name"].b = 1']),
        (b'{"x":"a\\"b\\\\c"}', ['x = "a\\"b\\\\c"']),
        (b'{"x":"  a  \\nX"}', ["x =", "  |   a⟨U+0020⟩⟨U+0020⟩", "  | X"]),
    ],
)
def test_a_leaf_is_shown_as_what_it_is_wherever_it_stands(data: bytes, shown: list[str]) -> None:
    assert rendered(data) == shown


def test_bytes_that_are_no_json_are_shown_as_they_are() -> None:
    assert rendered(b'{"a":\n\xff\x1b') == ['no JSON: {"a":', "no JSON: \\xff⟨U+001B⟩"]


def test_words_that_may_be_taken_for_others_are_noted() -> None:
    assert look_alikes(json.dumps({"to": "p\u0430ypal"}).encode()) == [
        "p\u0430ypal mixes scripts: Latin U+0070, Cyrillic U+0430"
    ]
    assert look_alikes('{"to":"\uff50ay"}'.encode()) == ["\uff50ay stands for pay"]
    assert look_alikes('{"to":"größe Привет 名前"}'.encode()) == []


@pytest.mark.parametrize("data", [b"\xff p\xd0\xb0y", b"[" * 100_000 + b'"p\xd0\xb0y"', '{"to":"p\u0430y"'.encode()])
def test_words_are_looked_at_also_where_the_bytes_are_no_json_that_anybody_can_follow(data: bytes) -> None:
    assert look_alikes(data) == ["p\u0430y mixes scripts: Latin U+0070, Cyrillic U+0430"]


def test_a_letter_that_has_no_name_is_taken_for_no_other() -> None:
    assert look_alikes('"\U00017000\u0430"'.encode()) == []
