"""The same work on DBOS and on LangGraph's SQLite saver, each in a process of its own (it brings another SQLite).

Their unit is a recorded step: neither tells a free read from an effect, so each has one rate. A row says so where an
engine is not installed. Each stores in SQLite, and commits as durably as its own defaults say.
"""

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import measured
from benchmarks.comparing import Bench, Row
from benchmarks.conversation import Growth
from benchmarks.growth import described
from benchmarks.timing import Slice

ROUNDS = 3


@dataclass(frozen=True)
class Peer:
    """Another engine: its name, the module that must be installed, our program that drives it, what a step is there."""

    name: str
    needs: str
    program: str
    unit: str
    in_sequence: int
    together: int


PEERS = (
    Peer("DBOS (SQLite)", "dbos", "benchmarks.dbos_work", "steps/s", 300, 5),
    Peer("LangGraph (SQLite saver)", "langgraph.checkpoint.sqlite", "benchmarks.langgraph_work", "nodes/s", 500, 5),
)


def rows(bench: Bench, peers: Sequence[Peer] = PEERS) -> Iterator[Row]:
    """Rates in sequence and of 100 runs together, and the growth of a conversation, for each that is installed."""
    for peer in peers:
        if not _installed(peer.needs):
            yield Row(f"{peer.name}: steps in sequence, 100 runs, a conversation", "not installed")
            continue
        rounds = min(bench.rounds, ROUNDS)
        alone = _Rate(peer, 1, bench.amount(peer.in_sequence))
        yield bench.rate_row(f"{peer.name}: one run in sequence", alone, peer.unit, rounds=rounds)
        yield bench.rate_row(f"{peer.name}: 100 runs", _Rate(peer, 100, peer.together), peer.unit, rounds=rounds)
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            growth = Growth(**measured(peer.program, "growth", folder, 1, 1))
        yield from described(peer.name, growth)


@dataclass(frozen=True)
class _Rate:
    peer: Peer
    runs: int
    each: int

    def __call__(self, folder: Path) -> Slice:
        return Slice(**measured(self.peer.program, "rate", folder, self.runs, self.each))


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
