"""Starting a run, and having Temporal drive one.

A run is started in our store first, durably; then Temporal is told. Should the second fail, a worker finds the run and
tells Temporal itself. So there is no run that one of the two knows and nobody drives.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from milepost.drivers.temporal.messages import TASK_QUEUE, WAKE, WORKFLOW, Order, Pace, Wake

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle

    from milepost.app import App
    from milepost.core.authority import Authority
    from milepost.core.duration import Duration
    from milepost.definitions.run import Handle
    from milepost.definitions.tools import Cost
    from milepost.definitions.workflows import Workflow

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - "input", as in the documentation


def workflow_id(run_id: str) -> str:
    """Return the id of the Temporal workflow that drives a run."""
    return f"milepost-{run_id}"


async def drive(
    client: Client, run_id: str, *, task_queue: str = TASK_QUEUE, pace: Pace | None = None, news: Wake | None = None
) -> WorkflowHandle[Any, str]:
    """Start the workflow that drives a run, or wake it where it is there. Raises RPCError where Temporal is away.

    Its result is the run's status where the run is done; it fails with RunFailed, RunKilled or RunCancelled otherwise.
    """
    return await client.start_workflow(
        WORKFLOW,
        Order(run_id, pace or Pace()),
        id=workflow_id(run_id),
        task_queue=task_queue,
        result_type=str,
        start_signal=WAKE,
        start_signal_args=[news or Wake()],
    )


@overload
async def start(
    client: Client,
    app: App,
    workflow: Workflow[None, R],
    /,
    *,
    task_queue: str = TASK_QUEUE,
    pace: Pace | None = None,
    key: str | None = None,
    authority: Authority | None = None,
    budget: Cost | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: Duration | datetime | None = None,
    queue: str | None = None,
    priority: int = 0,
    group: str | None = None,
    begins: Duration | datetime | None = None,
) -> Handle[R]: ...
@overload
async def start(
    client: Client,
    app: App,
    workflow: Workflow[I, R],
    input: I,
    /,
    *,
    task_queue: str = TASK_QUEUE,
    pace: Pace | None = None,
    key: str | None = None,
    authority: Authority | None = None,
    budget: Cost | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: Duration | datetime | None = None,
    queue: str | None = None,
    priority: int = 0,
    group: str | None = None,
    begins: Duration | datetime | None = None,
) -> Handle[R]: ...
async def start(
    client: Client,
    app: App,
    workflow: Workflow[Any, R],
    input: Any = None,
    /,
    *,
    task_queue: str = TASK_QUEUE,
    pace: Pace | None = None,
    **options: Any,
) -> Handle[R]:
    """Start a run as `app.start` does, and have Temporal drive it at once. The app has to be open.

    Raises what `app.start` raises, and RPCError where Temporal is away: then the run is started all the same, and a
    worker has it driven as soon as Temporal is back.
    """
    handle = await app.start(workflow, input, **options)
    await drive(client, handle.id, task_queue=task_queue, pace=pace)
    return handle
