"""What an adapter costs a tool call: the framework with it and without it, in turn in one process.

The frameworks are in the environment of the tests and not in that of the other engines, so each is measured by a
program in a process of that environment. The tool does nothing, and is `keyed`: what is paid for is the record on disk.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.child import ROOT, TIMEOUT
from benchmarks.comparing import Bench, Row
from benchmarks.timing import Slice

PYTHON = ROOT / ".venv" / "bin" / "python"
MOST_ROUNDS = 20


@dataclass(frozen=True)
class Adapter:
    """An adapter, the module that must be installed for it, our program, and what it measures."""

    name: str
    needs: str
    program: str


ADAPTERS = (
    Adapter("LangGraph", "langchain", "benchmarks.adapters.calls_langgraph"),
    Adapter("Pydantic AI", "pydantic_ai", "benchmarks.adapters.calls_pydantic_ai"),
    Adapter("OpenAI Agents SDK", "agents", "benchmarks.adapters.calls_openai_agents"),
    Adapter("MCP client, stdio", "mcp", "benchmarks.adapters.calls_mcp client"),
    Adapter("MCP gateway, stdio", "mcp", "benchmarks.adapters.calls_mcp gateway"),
    Adapter("milepost.agents, beside a bare loop", "milepost", "benchmarks.adapters.calls_loop"),
)


def rows(bench: Bench) -> Iterator[Row]:
    """One row an adapter: calls a second with it and without it, and what a call takes longer."""
    rounds = min(MOST_ROUNDS, max(1, round(bench.rounds * bench.scale)))
    for adapter in ADAPTERS:
        work = f"{adapter.name}: a turn with one tool call"
        if not _installed(adapter.needs):
            yield Row(work, "not installed: `make adapters` sets its environment up")
            continue
        yield _row(work, *_measured(bench, adapter, rounds))


def _row(work: str, bare: list[Slice], durable: list[Slice]) -> Row:
    without, kept = (statistics.median(one.rate for one in slices) for slices in (bare, durable))
    more_ms = (1 / kept - 1 / without) * 1e3
    cpu = [statistics.median(one.cpu / one.count for one in slices) * 1e6 for slices in (bare, durable)]
    figure = f"{kept:,.0f} calls/s, {without:,.0f} without: {more_ms:+.2f} ms"
    return Row(work, figure, cpu_us=cpu[1] - cpu[0])


def _measured(bench: Bench, adapter: Adapter, rounds: int) -> tuple[list[Slice], list[Slice]]:
    program, *form = adapter.program.split()
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        shown = subprocess.run(
            [str(PYTHON), "-m", program, folder, str(rounds), *form],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT,
        )  # fmt: skip
    if shown.returncode != 0:
        raise RuntimeError(f"{adapter.program} failed:\n{shown.stderr[-2000:]}")
    taken = json.loads(shown.stdout.splitlines()[-1])
    bare, durable = ([Slice(**one) for one in taken[name]] for name in ("bare", "durable"))
    return bare, durable


def _installed(module: str) -> bool:
    """Whether a framework is in that environment. Nothing of it is imported."""
    if not PYTHON.exists():
        return False
    asks = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([str(PYTHON), "-c", asks], cwd=ROOT, check=False).returncode == 0
