"""How deeply JSON may be nested: a fixed bound, found without parsing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.nesting import LEVELS_MAX, too_deep
from milepost.errors import MalformedEntry

LEAVES = st.none() | st.integers() | st.text(alphabet='[]{}"\\ab', max_size=12)
VALUES = st.recursive(
    LEAVES,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=4), parts, max_size=3),
    max_leaves=20,
)


def levels(value: object) -> int:
    parts: list[object] = []
    if isinstance(value, list):
        parts = value
    elif isinstance(value, dict):
        parts = list(value.values())
    else:
        return 0
    return 1 + max(map(levels, parts), default=0)


@given(VALUES, st.integers(0, 8))
def test_the_depth_is_that_of_the_value_whatever_its_texts_look_like(value: object, bound: int) -> None:
    assert too_deep(json.dumps(value).encode(), bound) == (levels(value) > bound)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":', b"}]")])
def test_the_bound_itself_is_allowed_and_one_level_more_is_not(opening: bytes, closing: bytes) -> None:
    each = opening.count(b"[") + opening.count(b"{")
    allowed = LEVELS_MAX // each

    assert not too_deep(opening * allowed + b"1" + closing * allowed)
    assert too_deep(opening * (allowed + 1) + b"1" + closing * (allowed + 1))


@pytest.mark.parametrize("text", ["]", "[", "\\]", '"]', '\\"]', "]["])
def test_brackets_inside_texts_neither_hide_a_level_nor_make_one(text: str) -> None:
    value = {f"{text} ": [[1]], "[": text, "]": text}

    assert not too_deep(json.dumps(value).encode(), 3)
    assert too_deep(json.dumps(value).encode(), 2)


def test_a_hundred_thousand_levels_are_refused_without_following_them() -> None:
    assert too_deep(b"[" * 100_000 + b"]" * 100_000)


def test_an_entry_that_is_nested_too_deeply_is_refused_before_it_is_written() -> None:
    deep: object = "x"
    for _ in range(codec.ENTRY_LEVELS_MAX + 1):
        deep = [deep]

    with pytest.raises(MalformedEntry, match="levels deep"):
        codec.encode(e.Contradicted(at=1, step="0", by="tool", evidence=deep))  # type: ignore[arg-type]
