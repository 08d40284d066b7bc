"""What a person types at the plain command line reaches a run that Temporal drives; and the other way round.

In the pace of these tests a run that waits is looked at by itself only after ten days. What moves one is news.
"""

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from milepost.app import App
from milepost.drivers.temporal import drive, start
from milepost.stores.api import Query
from tests.crash.fleet import holding
from tests.drivers import desk
from tests.drivers.floor import ON_BOTH, Floor
from tests.polling import eventually


def status(floor: Floor, run: str) -> str:
    return floor.run(run).status


@ON_BOTH
def test_an_approval_that_is_typed_wakes_the_run(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.mailing, "Bob")
    floor.parked(run, "approval")
    (waiting,) = floor.app(lambda app: app.inspect.approvals())

    floor.typed("approve", waiting.id, "--by", "ann")

    assert floor.result(run).endswith("wrote to Bob")
    assert floor.closed(run).name == "COMPLETED"
    assert floor.judged() == []


def test_runs_of_a_limited_queue_go_one_after_the_other(floor: Floor) -> None:
    for _ in range(2):
        floor.work()

    runs = [floor.begin(desk.turning, f"lamp {number}") for number in range(4)]

    assert [floor.result(run) for run in runs] == [f"lamp {number} again placed" for number in range(4)]
    things = [(line.args or {})["thing"].removesuffix(" again") for line in floor.applied("place")]
    assert things[::2] == things[1::2]
    assert sorted(things[::2]) == [f"lamp {number}" for number in range(4)]
    assert floor.judged() == []


@ON_BOTH
def test_a_run_that_was_started_without_temporal_is_driven_as_well(floor: Floor) -> None:
    floor.work()

    run = floor.app(_started)

    assert floor.result(run) == "lamp placed"
    assert floor.closed(run).name == "COMPLETED"


async def _started(app: App) -> str:
    return (await app.start(desk.one, "lamp")).id


@ON_BOTH
def test_a_freeze_that_is_typed_holds_a_run_back_and_a_thaw_lets_it_go(floor: Floor) -> None:
    floor.work()
    floor.typed("freeze", "tool:place", "--why", "the shop is closed", "--by", "ann")
    run = floor.begin(desk.one, "lamp")
    floor.parked(run, "switch")

    floor.typed("thaw", "tool:place", "--why", "it is open", "--by", "ann")

    assert floor.result(run) == "lamp placed"


@ON_BOTH
def test_everything_stopped_by_file_moves_again_when_that_is_lifted(floor: Floor) -> None:
    floor.work()
    floor.typed("stop", "--hard", "--why", "fire", "--by", "ann")
    run = floor.begin(desk.one, "lamp")
    eventually(lambda: floor.events(run, "ACTIVITY_TASK_COMPLETED") >= 1, saying="it was asked for")
    assert (status(floor, run), floor.applied("place")) == ("ready", [])

    floor.typed("stop", "--lift", "--why", "a false alarm", "--by", "ann")

    assert floor.result(run) == "lamp placed"


def test_each_child_is_a_workflow_of_its_own_and_its_end_wakes_the_parent(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.many, 8)

    assert sorted(floor.result(run)) == [f"thing {which} placed" for which in range(8)]
    children = floor.app(lambda app: app.inspect.runs(Query(parent=run)))
    assert [floor.closed(child.id).name for child in children] == ["COMPLETED"] * 8
    assert len(floor.applied("place")) == 8
    assert floor.judged() == []


def test_cancelling_the_workflow_cancels_the_run_which_ends_by_its_own_rules(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.asking, "name")
    floor.parked(run, "signal")

    floor.temporal(run, lambda handle: handle.cancel())

    assert floor.closed(run) is WorkflowExecutionStatus.CANCELED
    assert status(floor, run) == "cancelled"


def test_a_workflow_cancelled_in_the_middle_of_an_effect_lets_it_finish(floor: Floor) -> None:
    floor.work()
    run = floor.begin(holding, "door")
    eventually(lambda: floor.applied("hold"), saying="the door is held")

    floor.temporal(run, lambda handle: handle.cancel())
    eventually(lambda: floor.events(run, "ACTIVITY_TASK_COMPLETED") >= 1, saying="the run was told")
    floor.go()

    assert floor.closed(run) is WorkflowExecutionStatus.CANCELED
    assert status(floor, run) == "cancelled"
    assert floor.applied("ship") == []
    assert floor.judged() == []


def test_a_terminated_workflow_says_nothing_about_its_run_which_goes_on_with_the_next_news(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.asking, "name")
    floor.parked(run, "signal")

    floor.temporal(run, lambda handle: handle.terminate("by mistake"))
    floor.typed("send", run, "name", '"Ada"')

    assert floor.result(run) == "Ada"
    eventually(lambda: len(floor.histories(run)) == 2, saying="a workflow of its own was made for the news")
    assert floor.closed(run).name == "COMPLETED"


def test_a_run_killed_at_the_command_line_ends_its_workflow(floor: Floor) -> None:
    floor.work()
    run = floor.begin(holding, "door")
    eventually(lambda: floor.applied("hold"), saying="the door is held")

    floor.typed("kill", run, "--by", "ann", "--why", "the wrong door")

    assert floor.closed(run) is WorkflowExecutionStatus.FAILED
    assert status(floor, run) == "killed"
    assert floor.applied("ship") == []


def test_a_retry_that_is_typed_makes_a_new_workflow_for_a_run_that_had_failed(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.refusing, "no reason")
    assert floor.closed(run) is WorkflowExecutionStatus.FAILED

    floor.typed("retry", run, "--by", "ann")

    eventually(lambda: len(floor.histories(run)) == 2, saying="a second workflow")
    assert floor.closed(run) is WorkflowExecutionStatus.FAILED


def test_a_worker_that_does_not_know_the_run_fails_its_workflow_and_says_which_run(floor: Floor) -> None:
    floor.work()

    async def ask(client: Client, _: App) -> ApplicationError:
        handle = await drive(client, "0123456789abcdef0123", task_queue=floor.queue)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        error = failed.value.cause.__cause__
        assert isinstance(error, ApplicationError)
        return error

    error = floor.ask(ask)

    assert (error.type, error.message) == ("UnknownRun", "run 0123456789abcdef0123: unknown_run")


def test_a_start_that_is_repeated_is_the_same_run_and_the_same_workflow(floor: Floor) -> None:
    floor.work()

    async def twice(client: Client, app: App) -> set[str]:
        pace, queue = desk.pace_of(300), floor.queue
        return {
            (await start(client, app, desk.asking, "name", key="once", pace=pace, task_queue=queue)).id
            for _ in range(2)
        }

    (run,) = floor.ask(twice)

    floor.parked(run, "signal")
    assert len(floor.histories(run)) == 1
