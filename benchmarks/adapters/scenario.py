"""The scenario of `tests.adapters.outside`, put to one host, and what its ledger and its record say afterwards.

Two calls in one batch: `reserve` may be repeated with its key, `refund` is irreversible. The host's process is killed
(SIGKILL) when `refund` was applied and has not answered, and is started again with the same command, as often as it
needs: without Milepost once; with it once more, after a person has looked into the ledger and said what happened. Then,
in another folder, three calls in one batch, of which the second is objected to. A program may serve both.
"""

import asyncio
import json
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import milepost as mp
from benchmarks.child import ROOT
from milepost.stores.api import Query
from tests.adapters import outside
from tests.crash.killing import environment
from tests.crash.world import CRASH_AT

PATIENCE_S = 60
SIBLINGS = 2
REFUND = outside.RESULTS["refund"]


class NotMade(Exception):
    """The scenario could not be put to a host: it did not die where it should, or did not go on."""


@dataclass(frozen=True)
class Host:
    """A host with its words: the environment that has it, what it goes on from by itself, and its two programs.

    In a program's words `BATCH` is the batch, and `LIFE` the number of the process.
    """

    name: str
    goes_on_from: str
    bare: tuple[str, str]
    durable: tuple[str, str]


@dataclass(frozen=True)
class Measured:
    """What came of it: from the outside ledger, the calls that reached the model, the record, the host's own words."""

    reserves: int
    refunds: int
    model_calls: int
    reported: str
    finished: int
    """Siblings of the call that was objected to, which were done to their end."""
    recorded: int | None
    """Of these, how many are confirmed on record; None without one."""

    @property
    def kept(self) -> bool:
        """Whether that is what Milepost promises."""
        once = self.reserves == self.refunds == 1
        return once and self.reported == SETTLED and self.finished == self.recorded == SIBLINGS


SETTLED = "unknown; a person looked: confirmed"


def without(host: Host) -> Measured:
    """Put the scenario to the bare host. Raises NotMade."""
    with tempfile.TemporaryDirectory(prefix="milepost-adapters-") as folder:
        two = _folder(folder, "two")
        _killed(host, host.bare, two)
        said = _ended(host, host.bare, two, "two", 2)
        three = _folder(folder, "three")
        _life(host.bare, three, "three", 1)  # it may well end with the exception that is the objection
        return Measured(
            outside.applied(two).count("reserve"),
            outside.applied(two).count("refund"),
            outside.model_calls(two),
            "done" if REFUND in json.dumps(said) else "not done",
            outside.applied(three).count("noted"),
            None,
        )


def durable(host: Host) -> Measured:
    """Put the scenario to the host with Milepost. Raises NotMade."""
    with tempfile.TemporaryDirectory(prefix="milepost-adapters-") as folder:
        two = _folder(folder, "two")
        _killed(host, host.durable, two)
        _ended(host, host.durable, two, "two", 2)
        (parked,) = _outcomes(two, "refund")
        asyncio.run(outside.settle(two))
        _ended(host, host.durable, two, "two", 3)
        (settled,) = _outcomes(two, "refund")
        three = _folder(folder, "three")
        _ended(host, host.durable, three, "three", 1)
        published = outside.applied(three).count("publish")
        return Measured(
            outside.applied(two).count("reserve"),
            outside.applied(two).count("refund"),
            outside.model_calls(two),
            f"{parked}; a person looked: {settled}",
            0 if published else outside.applied(three).count("noted"),
            _outcomes(three, "note").count("confirmed"),
        )


def _folder(folder: str, name: str) -> Path:
    made = Path(folder) / name
    made.mkdir()
    return made


def _killed(host: Host, program: tuple[str, str], folder: Path) -> None:
    code, out = _life(program, folder, "two", 1, kill=True)
    if code != -signal.SIGKILL or outside.applied(folder)[-1:] != ["refund"]:
        raise NotMade(f"{host.name}: it was not killed in `refund`, but ended with {code}:\n{out[-2000:]}")


def _ended(host: Host, program: tuple[str, str], folder: Path, batch: str, life: int) -> Any:
    code, out = _life(program, folder, batch, life)
    if code != 0:
        raise NotMade(f"{host.name}: process {life} with the batch of {batch} ended with {code}:\n{out[-2000:]}")
    return json.loads(out.splitlines()[-1])


def _life(program: tuple[str, str], folder: Path, batch: str, life: int, *, kill: bool = False) -> tuple[int, str]:
    """One process of a host: its code, and what it wrote."""
    interpreter, words = program
    given = words.replace("BATCH", batch).replace("LIFE", str(life)).split()
    surroundings = environment(folder, **({CRASH_AT: outside.KILL} if kill else {}))
    ended = subprocess.run(
        [str(ROOT / interpreter / "bin" / "python"), "-m", *given],
        env=surroundings, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    return ended.returncode, ended.stdout if ended.returncode == 0 else ended.stderr


def _outcomes(folder: Path, tool: str) -> list[str]:
    async def ask() -> list[str]:
        looking = mp.App(outside.url(folder))
        async with looking.client():
            runs = await looking.inspect.runs(Query())
            effects = [effect for run in runs for effect in await looking.inspect.effects(run.id)]
        return [effect.outcome for effect in effects if outside.plain(effect.tool) == tool]

    return asyncio.run(ask())
