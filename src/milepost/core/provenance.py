"""What had answered a run before it made a call: what may have chosen the call, or its arguments.

This is not a trace of values. It says who *may* have had a say: whatever answered the run earlier, in this segment or
in one before, since its state carries on what it heard. It may name too many, and where it names none there was none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core.steps import ChildStart, ChildWait, Effect, Read, Receive

if TYPE_CHECKING:
    from milepost.core.state import RunState


def heard(state: RunState, before: str | None = None) -> tuple[str, ...]:
    """Return what answered before the step `before` (None: until now): tools by name, `signal:NAME`, `child:WORKFLOW`.

    A failure is an answer: its text may say anything. What the run was started with, and by whom, is no answer.
    """
    names = set(state.heard)
    children: dict[str, str] = {}
    for id_, step in state.steps.items():
        if id_ == before:
            break
        match step:
            case Effect(tool=tool, outcome="confirmed" | "failed") | Read(tool=tool, status="returned" | "failed"):
                names.add(tool)
            case Receive(taken=True, name=name):
                names.add(f"signal:{name}")
            case ChildStart(child=child, workflow=workflow):
                children[child] = workflow
            case ChildWait(child=child) if child in state.child_results:
                names.add(f"child:{children.get(child, '')}")
            case _:
                continue
    return tuple(sorted(names))
