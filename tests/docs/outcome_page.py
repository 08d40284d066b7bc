"""Draws docs/outcomes.md from the table in core/outcome.py: `python -m tests.docs.outcome_page` writes it anew."""

from pathlib import Path

from milepost.core.outcome import TABLE, Event, Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "outcomes.md"

HEAD = """\
# Outcomes

Drawn from `TABLE` in [`core/outcome.py`](../src/milepost/core/outcome.py), which holds every legal change of one.
Anything else is refused. Do not edit this page: `python -m tests.docs.outcome_page` writes it, and a test compares.
What each outcome means, and what may be done about an unknown one, is in
[the recovery contract](recovery-contract.md#what-may-follow-unknown).
"""

ENDS: tuple[Outcome, ...] = ("confirmed", "failed")

SAYS: dict[Event, str] = {
    "start": "an attempt began, and is durable before a byte leaves",
    "confirm": "it happened: an answer, a finding, late evidence, or a person's word",
    "fail": "it did not happen: never sent, refused, proven absent, denied, or a person's word",
    "lose": "nobody knows: a timeout, a crash, a cancellation, any exception that proves nothing",
    "resend": "the same bytes under the same key, while the earlier attempt is still in doubt",
    "retry": "a further attempt, where the failure was certain and not final",
    "contradict": "evidence against what is recorded: kept beside it, the run blocks",
}

MORE_EXACTLY: dict[tuple[Outcome, Event], str] = {
    ("not_started", "confirm"): "another step that names the same business identity (`once=`) was confirmed",
    ("not_started", "fail"): "a person or a rule denied it, or its identity was claimed with other arguments",
    ("failed", "fail"): "it was not tried again: a rule denies it now. Only while the failure is not final",
    ("failed", "confirm"): "a person who looked overrules it; only after it was contradicted",
    ("unknown", "lose"): "a further attempt was lost as well, or only that attempt is proven not to have happened",
}


def render() -> str:
    """Return the page as it must be."""
    return f"{HEAD}\n{_diagram()}\n{_rows()}\n"


def _diagram() -> str:
    arrows = [f"    {before} --> {after}: {event}" for (before, event), after in TABLE.items()]
    ends = [f"    {outcome} --> [*]" for outcome in ENDS]
    return "\n".join(("```mermaid", "stateDiagram-v2", "    [*] --> not_started", *arrows, *ends, "```", ""))


def _rows() -> str:
    lines = ["| from | event | to | what it says |", "|---|---|---|---|"]
    lines += [_row(before, event, after) for (before, event), after in TABLE.items()]
    return "\n".join(lines)


def _row(before: Outcome, event: Event, after: Outcome) -> str:
    return f"| `{before}` | `{event}` | `{after}` | {MORE_EXACTLY.get((before, event), SAYS[event])} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
