"""What another tool's answer says of an attempt whose own answer was lost."""

from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from milepost.adapters.mcp.gateway.config import Asked
from milepost.adapters.mcp.gateway.reconciling import MISSING, at, filled, judged

ASKED = Asked(
    "find", {}, {"structured.found": True}, {"structured.found": False}, {"structured.cents": "$args.cents"}
)  # fmt: skip


def answered(structured: Any = None, text: str = "", *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=structured, is_error=is_error
    )


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        (answered({"found": True, "cents": 5}), "happened"),
        (answered({"found": True, "cents": 6}), "conflict"),
        (answered({"found": True}), "conflict"),
        (answered({"found": False}), "did_not_happen"),
        (answered({"found": False}, is_error=True), "still_unknown"),
        (answered({"found": "yes"}), "still_unknown"),
        (answered({"found": 1, "cents": 5}), "still_unknown"),
        (answered({}), "still_unknown"),
        (answered(None), "still_unknown"),
    ],
)
def test_an_answer_is_judged_by_what_the_file_says_and_all_else_is_still_unknown(
    answer: CallToolResult, finding: str
) -> None:
    """Requirement 46."""
    assert judged(ASKED, answer, "key", {"cents": 5}).answer == finding


def test_an_answer_that_fits_both_is_still_unknown() -> None:
    asked = Asked("find", {}, {"text": "ok"}, {"text": "ok"}, {})

    assert judged(asked, answered(text="ok"), "key", {}).answer == "still_unknown"


def test_without_a_word_for_absence_nothing_is_ever_absent() -> None:
    asked = Asked("find", {}, {"json.0.key": "$key"}, {}, {})

    assert judged(asked, answered(text='[{"key": "key"}]'), "key", {}).answer == "happened"
    assert judged(asked, answered(text="[]"), "key", {}).answer == "still_unknown"
    assert judged(asked, answered(text="no json"), "key", {}).answer == "still_unknown"


def test_what_happened_has_the_asked_answer_as_its_result() -> None:
    found = judged(ASKED, answered({"found": True, "cents": 5}, "found"), "key", {"cents": 5})

    assert found.value is not None
    assert found.value["structuredContent"] == {"found": True, "cents": 5}


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.b", 1), ("list.1", "y"), ("list.2", MISSING), ("list.x", MISSING), ("none.a", MISSING), ("a", {"b": 1})],
)
def test_a_path_leads_into_an_answer_or_nowhere(path: str, value: Any) -> None:
    assert at({"a": {"b": 1}, "list": ["x", "y"], "none": None}, path) == value


def test_a_condition_on_an_argument_that_was_left_out_never_holds_by_chance() -> None:
    """A path that leads nowhere is not equal to an argument that is not there."""
    asked = Asked("find", {}, {"structured.cents": "$args.cents"}, {}, {})

    assert judged(asked, answered({}), "key", {}).answer == "still_unknown"


def test_what_is_asked_for_is_filled_in() -> None:
    assert [filled(value, "k", {"a": {"b": 2}}) for value in ("$key", "$args.a.b", "$args", "plain", 3)] == [
        "k", 2, "$args", "plain", 3,
    ]  # fmt: skip
