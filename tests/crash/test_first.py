"""The first five minutes, as they stand in the README: `examples/first.py`, killed during its sleep and run again."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from milepost.app import open_store
from milepost.operations.inspection import Inspector
from milepost.stores.api import Query
from tests.crash.killing import ROOT, environment
from tests.polling import eventually

FIRST = [sys.executable, str(ROOT / "examples" / "first.py")]


def test_the_first_example_killed_in_its_sleep_and_run_again_charges_once_and_prints_the_receipt(
    tmp_path: Path,
) -> None:
    """Requirement 69."""
    ledger = tmp_path / "ledger.txt"
    first = subprocess.Popen(FIRST, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE)
    try:
        eventually(lambda: ledger.exists() and ledger.read_text(), saying="it charged, and sleeps")
    finally:
        first.send_signal(signal.SIGKILL)
        out, _ = first.communicate()
    assert (first.returncode, out) == (-signal.SIGKILL, b"")

    for _ in range(2):  # the same command again, and once more when all is done
        again = subprocess.run(
            FIRST, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=60, check=True
        )
        assert again.stdout == b"receipt for order-1\n"
        assert ledger.read_text() == "order-1 500\n"
    names = asyncio.run(_names(tmp_path / "shop.db"))
    assert [name for name in names if name.startswith("effect_")] == [
        "effect_started",
        "effect_unknown",
        "effect_confirmed",
    ]


async def _names(place: Path) -> list[str]:
    store = open_store(f"sqlite:///{place}")
    try:
        (run,) = await store.runs(Query())
        return [line.name for line in await Inspector(store).journal(run.id)]
    finally:
        store.close()
