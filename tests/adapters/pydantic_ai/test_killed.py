"""An agent of Pydantic AI, killed for real in the middle of its second tool, and run again in a new process."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import milepost as mp
from milepost.stores.api import Query
from tests.adapters.pydantic_ai import desk
from tests.polling import eventually


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


async def recorded(folder: Path) -> dict[str, str]:
    """Return the outcomes of the calls, by path, as another process reads them."""
    if not (folder / "desk.db").exists():
        return {}
    async with mp.App(f"sqlite:///{folder}/desk.db").client() as app:
        runs = await app.inspect.runs(Query())
        return {one.path: one.outcome for run in runs for one in await app.inspect.effects(run.id)}


async def settled(folder: Path, path: str, finding: mp.Finding[str]) -> None:
    """Settle an unknown outcome, as a person does who has looked."""
    async with mp.App(f"sqlite:///{folder}/desk.db").client() as app:
        (run,) = await app.inspect.runs(Query())
        await app.resolve(run.id, path, finding, by="ada", why="I looked in the payment system")


def begin(folder: Path, how: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.adapters.pydantic_ai.desk", str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed_in_the_second_tool(folder: Path, how: str) -> None:
    (folder / "hang").touch()
    process = begin(folder, how)
    eventually(lambda: len(lines(folder / "ledger.txt")) == 2, saying="both effects happened")
    if how == "durable":
        eventually(lambda: asyncio.run(recorded(folder)).get("@call_1") == "confirmed", saying="tool 1 is recorded")
    assert process.poll() is None, "it ended before it was killed"
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (folder / "hang").unlink()


def said_by_a_new_process(folder: Path) -> str:
    process = begin(folder, "durable")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return said


def test_without_milepost_a_killed_batch_acts_twice_and_asks_the_model_again(tmp_path: Path) -> None:
    killed_in_the_second_tool(tmp_path, "bare")

    assert asyncio.run(desk.said_by(tmp_path, "bare")) == "said: flagged 7 and refunded 7"
    assert sorted(lines(tmp_path / "ledger.txt")) == ["flag 7", "flag 7", "refund 7 500", "refund 7 500"]
    assert lines(tmp_path / "asked.txt") == ["1 messages", "1 messages", "3 messages"]


def test_with_milepost_a_killed_batch_is_not_repeated_and_the_model_is_not_asked_again(tmp_path: Path) -> None:
    """Requirement 7. Requirement 11. Requirement 16. Requirement 18. Requirement 53.

    There is no transcript to go on from: the new process is given the key, and nothing else.
    """
    killed_in_the_second_tool(tmp_path, "durable")

    assert said_by_a_new_process(tmp_path) == "waits: call_2"
    assert asyncio.run(recorded(tmp_path)) == {"@call_1": "confirmed", "@call_2": "unknown"}
    assert lines(tmp_path / "asked.txt") == ["1 messages"]

    asyncio.run(settled(tmp_path, "@call_2", mp.happened("refunded 7, says the bank")))

    assert asyncio.run(desk.said_by(tmp_path, "durable")) == "said: flagged 7 and refunded 7, says the bank"
    assert sorted(lines(tmp_path / "ledger.txt")) == ["flag 7", "refund 7 500"]
    assert lines(tmp_path / "asked.txt") == ["1 messages", "3 messages"]
