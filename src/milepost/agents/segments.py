"""The two segments of every agent, kept apart and kept still.

The source of a segment is its fingerprint, and a run that stands in the middle of one blocks when it changed. So a
release of Milepost may change how a turn is taken, and must not touch this file, unless the recorded calls of a turn
(one model call, then one `map` over its calls) are made in another order; that is another version of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.agents.messages import Conversation, Task, Words
from milepost.agents.turns import may_enter, may_leave
from milepost.definitions.run import Run
from milepost.definitions.workflows import Next, go

if TYPE_CHECKING:
    from milepost.agents.turns import Turns
    from milepost.definitions.workflows import Workflow


def declare(workflow: Workflow[Task, Any], turns: Turns[Any]) -> None:
    """Declare an agent's segments on its workflow."""

    @workflow.segment
    async def begin(run: Run, task: Task) -> Next[Any]:  # noqa: ARG001  the form of a segment
        return go(turn, Conversation((*task.history, Words(task.text))))

    @workflow.segment(requires=may_enter, ensures=may_leave)
    async def turn(run: Run, conversation: Conversation) -> Next[Any]:
        return await turns.turn(run, conversation)

    turns.segment = turn
