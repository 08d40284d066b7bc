"""Temporal's history of a run: short whatever the run's length, and with nothing in it of what the run is about."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker

from milepost.drivers.temporal import workflow_id
from milepost.drivers.temporal.workflow import DriveRun
from tests.drivers import desk
from tests.drivers.floor import Floor
from tests.polling import eventually

KEPT = sorted((Path(__file__).parent / "histories").glob("*.json"))
EVENTS_A_ROUND = 12  # three of a workflow task before and after, three of an activity, a timer's two and a signal
WORDS = {"run", "pace", "segments", "heartbeat_s", "again_s", "rounds", "epoch", "lost"}
WORDS |= {"status", "reason", "wait_ms", "ended"}


def payloads(floor: Floor, run: str) -> list[object]:
    """Return everything of ours that stands in the history of a run."""
    found: list[object] = []
    for history in floor.told(run):
        for event in json.loads(history.to_json())["events"]:
            found.extend(json.loads(data) for data in _decoded(event))
    return found


def _decoded(part: object) -> list[bytes]:
    if isinstance(part, list):
        return [data for one in part for data in _decoded(one)]
    if not isinstance(part, dict):
        return []
    if "metadata" in part and "data" in part:
        return [base64.b64decode(part["data"])]
    return [data for one in part.values() for data in _decoded(one)]


def words(value: object) -> set[str]:
    """Return the names in a payload."""
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(words(inner) for inner in value.values()))


@pytest.mark.parametrize("upto", [100, 300])
def test_a_history_stays_as_short_however_long_the_run_is(floor: Floor, upto: int) -> None:
    floor.work()
    run = floor.begin(desk.counting, upto)

    assert floor.result(run) == upto
    assert floor.closed(run).name == "COMPLETED"
    lengths = [len(events) for events in floor.histories(run)]
    pace = desk.pace_of(1)
    assert len(lengths) >= upto // (pace.segments * pace.rounds)
    assert max(lengths) <= EVENTS_A_ROUND * pace.rounds


def test_nothing_of_a_run_but_its_id_and_its_status_is_in_a_history(floor: Floor) -> None:
    floor.work()
    mailing = floor.begin(desk.mailing, desk.SECRET)
    refusing = floor.begin(desk.refusing, desk.SECRET)
    floor.parked(mailing, "approval")
    (waiting,) = floor.app(lambda app: app.inspect.approvals())
    floor.typed("approve", waiting.id, "--by", desk.SECRET)

    assert desk.SECRET in floor.result(mailing)
    assert (floor.closed(mailing).name, floor.closed(refusing).name) == ("COMPLETED", "FAILED")
    for run in (mailing, refusing):
        said = b"".join(event.SerializeToString() for events in floor.histories(run) for event in events)
        assert run.encode() in said
        assert desk.SECRET.encode() not in said
        assert {word for payload in payloads(floor, run) for word in words(payload)} <= WORDS


def test_a_run_that_rests_writes_nothing_into_a_history(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.asking, "name")
    floor.parked(run, "signal")
    eventually(lambda: floor.events(run, "TIMER_STARTED") == 1, saying="its workflow waits")
    before = [len(events) for events in floor.histories(run)]

    other = floor.begin(desk.counting, 100)

    assert floor.result(other) == 100
    assert [len(events) for events in floor.histories(run)] == before


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_a_history_that_is_kept_goes_on_to_replay(kept: Path) -> None:
    """A workflow that is under way while a new version is installed is replayed by that.

    A history is kept with `floor.told(run)[-1].to_json()`; where the workflow changes, `workflow.patched` keeps it
    replaying.
    """
    history = WorkflowHistory.from_json(workflow_id(kept.stem), kept.read_text())

    result = asyncio.run(Replayer(workflows=[DriveRun]).replay_workflow(history))

    assert result.replay_failure is None


def test_histories_are_kept_of_a_wait_a_takeover_a_cancellation_and_a_long_run() -> None:
    assert [path.stem for path in KEPT] == ["cancelled", "long", "taken-over", "woken"]


def test_the_workflow_passes_temporals_sandbox_as_that_is_by_default(floor: Floor) -> None:
    async def validated() -> set[str]:
        client = await Client.connect(floor.server.target)
        Worker(client, task_queue="nobody", workflows=[DriveRun])  # raises where the module does not pass
        return {"validated"}

    assert asyncio.run(validated()) == {"validated"}
