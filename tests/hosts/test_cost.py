"""What `make bench ARGS=adapters` times of these hosts: a turn is a call on record, with Milepost, and none without."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import milepost as mp
from benchmarks.adapters.calling import TURNS
from milepost.stores.api import Query
from tests.crash.killing import ROOT, environment


@pytest.mark.parametrize(
    "program", ["calls_claude server", "calls_claude built_in", "calls_adk", "calls_strands", "calls_agent_framework"]
)
def test_each_turn_that_is_timed_with_milepost_is_one_call_on_record(program: str, tmp_path: Path) -> None:
    """Requirement 41."""
    name, *form = program.split()
    shown = subprocess.run(
        [sys.executable, "-m", f"benchmarks.adapters.{name}", str(tmp_path), "1", *form],
        env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert shown.returncode == 0, shown.stderr
    taken = json.loads(shown.stdout.splitlines()[-1])
    assert sorted(taken) == ["bare", "durable", "extended", "fresh"]
    assert [one["count"] for slices in taken.values() for one in slices] == [TURNS] * 4
    once = [("nothing", "confirmed")] * TURNS
    assert asyncio.run(on_record(tmp_path)) == [once, once], "the unmeasured conversation, and the measured one"


async def on_record(folder: Path) -> list[list[tuple[str, str]]]:
    """Return the calls of each run, and what came of them."""
    async with mp.App(f"sqlite:///{folder}/store.db").client() as looking:
        return [
            [(effect.tool, effect.outcome) for effect in await looking.inspect.effects(run.id)]
            for run in await looking.inspect.runs(Query())
        ]
