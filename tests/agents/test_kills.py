"""Agents killed for real: before, in the middle of and after a model call, a tool call and a checkpoint."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost import agents
from milepost.testing import crash_at, crash_everywhere
from tests.agents import killed
from tests.testing.books import Books, book, finding

ROOT = Path(__file__).parent.parent.parent
WITHIN_S = 120


def process(folder: Path, kill_at: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "KILL_AT": kill_at, "MILEPOST_LOCAL": str(folder / "local")}
    return subprocess.run(
        [sys.executable, "-m", "tests.agents.killed", str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip


def rested(folder: Path) -> dict[str, Any]:
    done = process(folder)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def ledger(folder: Path) -> Counter[str]:
    lines = (folder / "ledger.txt").read_text().splitlines()
    return Counter(" ".join(line.split()[:3]) if line.startswith("asked") else line.split()[0] for line in lines)


def resolved(folder: Path, run_id: str, found: mp.Finding[Any]) -> str:
    """Settle the mail as a person does, and let this process finish the run."""
    assert folder == killed.FOLDER

    async def by_hand() -> str:
        async with mp.App(f"sqlite:///{folder / 'store.db'}", workflows=[killed.desk.workflow]) as app:
            (open_,) = await app.inspect.open_effects(run_id)
            assert (open_.tool, open_.outcome) == ("mail", "unknown")
            await app.resolve(run_id, open_.path, found, by="me", why="looked")
            return await app.handle(run_id, killed.desk.workflow).result(timeout="60s")

    return asyncio.run(by_hand())


@pytest.mark.parametrize(
    ("kill_at", "asked"),
    [
        ("ask 1:before", {}),
        ("ask 2:before", {}),
        ("ask 2:middle", {"asked turn 2": 2}),  # the only call that is made again: it was in the air
        ("ask 3:middle", {"asked turn 3": 2}),
    ],
)
def test_a_process_killed_around_a_model_call_leaves_one_result_and_no_turn_is_asked_for_twice(
    tmp_path: Path, kill_at: str, asked: dict[str, int]
) -> None:
    """Requirement 18. Requirement 69. Requirement 50. Requirement 19."""
    assert process(tmp_path, kill_at).returncode == -signal.SIGKILL

    said = rested(tmp_path)

    assert (said["status"], said["result"]) == ("done", "Done: confirmed confirmed confirmed confirmed.")
    once = {"asked turn 1": 1, "asked turn 2": 1, "asked turn 3": 1, "refund": 1, "mail": 1}
    assert ledger(tmp_path) == {**once, **asked}


@pytest.mark.parametrize("kill_at", ["look_up:before", "refund:before", "refund:middle"])
def test_a_process_killed_in_tool_two_of_three_asks_nothing_again_and_repeats_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: str
) -> None:
    """Requirement 69. Requirement 50. Requirement 51. What was in the air beside it goes to a person, as declared."""
    monkeypatch.setattr(killed, "FOLDER", tmp_path)
    assert process(tmp_path, kill_at).returncode == -signal.SIGKILL
    assert "asked turn 3" not in ledger(tmp_path)

    said = rested(tmp_path)
    result = said["result"]
    if said["status"] == "parked":
        sent = ledger(tmp_path)["mail"]
        result = resolved(tmp_path, said["run"], mp.happened(None) if sent else mp.did_not_happen())

    assert result == "Done: confirmed confirmed confirmed confirmed."
    assert ledger(tmp_path) == {"asked turn 1": 1, "asked turn 2": 1, "asked turn 3": 1, "refund": 1, "mail": 1}


def test_an_irreversible_call_that_was_in_the_air_waits_for_a_person_and_its_siblings_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirement 10. Requirement 11. Requirement 19."""
    monkeypatch.setattr(killed, "FOLDER", tmp_path)
    assert process(tmp_path, "mail:middle").returncode == -signal.SIGKILL

    said = rested(tmp_path)
    assert (said["status"], said["waiting"]) == ("parked", "unknown")
    assert ledger(tmp_path) == {"asked turn 1": 1, "asked turn 2": 1, "refund": 1, "mail": 1}

    result = resolved(tmp_path, said["run"], mp.happened(None))

    assert result == "Done: confirmed confirmed confirmed confirmed."
    assert ledger(tmp_path)["mail"] == 1


# ---------------------------------------------------------------- at every point, in forked workers


@mp.tool(effect="keyed", key_ttl="24h", approval=True)
async def pay(call: mp.Call, order: str, cents: int) -> str:
    """Pay an order back."""
    book(call).once("pay", call.key, order=order, cents=cents)
    return "paid back"


@mp.tool(effect="queryable", visible_within="30s")
async def ship(call: mp.Call, parcel: str) -> str:
    """Send a parcel."""
    book(call).write("ship", call.key, parcel=parcel)
    return "on its way"


@ship.reconcile
async def _shipped(call: mp.Call, parcel: str) -> mp.Finding[str]:
    return finding([line for line in book(call).applied() if line.key == call.key], lambda: "on its way")


@mp.tool
async def write_to(call: mp.Call, to: str) -> None:
    """Write to a customer."""
    book(call).write("write_to", call.key, to=to)


THREE = agents.together(
    agents.call("pay", order="o-1", cents=300), agents.call("ship", parcel="p-1"), agents.call("write_to", to="ann")
)
careful = agents.Agent(
    "careful", version="1", model=agents.ScriptedModel(THREE, agents.call("ship", parcel="p-2"), "Done."), result=str,
    tools=[pay, ship, write_to], limits=agents.Limits(turns=20),
)  # fmt: skip


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """A world of files."""
    return Books(tmp_path)


def test_an_agent_ends_the_same_wherever_its_worker_dies(books: Books) -> None:
    """Requirement 50. Requirement 51. Requirement 69. Requirement 33."""
    report = crash_everywhere(
        careful.workflow, agents.Task("Refund o-1."), books, budget=careful.budget, most=16, seed=7
    )

    report.raise_if_broken()
    assert len(report.points) == 16


POINTS = [
    "before effect started turn/ask.careful#1",
    "after effect started turn/ask.careful#1",
    "ask.careful#1: returned",
    "before effect confirmed turn/ask.careful#1",
    "after effect confirmed turn/ask.careful#1",
    "before effect started turn@2/ask.careful#1",  # the transaction that writes the checkpoint as well
    "after effect started turn@2/ask.careful#1",
]


def test_an_agent_killed_at_a_checkpoint_or_beside_a_recorded_reply_ends_the_same(books: Books) -> None:
    """Requirement 8. Requirement 69."""
    report = crash_at(careful.workflow, agents.Task("x"), books, *POINTS, budget=careful.budget, seed=7)

    report.raise_if_broken()
    assert report.missed == ()
