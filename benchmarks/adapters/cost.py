"""What an adapter costs a tool call: the framework with it and without it, in turn in one process.

The frameworks are in the environment of the tests, and in that of the hosts that cannot be installed beside them; so
each is measured by a program in a process of its environment. The tool does nothing, and is `keyed`: what is paid for
is the record on disk. What a call takes longer is said in milliseconds and in bare commits, which are made in turn
with the conversations.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.child import HOSTS, MAIN, ROOT, TIMEOUT
from benchmarks.comparing import Bench, Row
from benchmarks.timing import Slice

MOST_ROUNDS = 20


@dataclass(frozen=True)
class Adapter:
    """An adapter, our program, the environment that it is started in, and the module that must be installed there."""

    name: str
    program: str
    needs: str
    environment: str = MAIN

    @property
    def python(self) -> str:
        """The interpreter of its environment."""
        return str(ROOT / self.environment / "bin" / "python")


ADAPTERS = (
    Adapter("LangGraph", "benchmarks.adapters.calls_langgraph", "langchain"),
    Adapter("Pydantic AI", "benchmarks.adapters.calls_pydantic_ai", "pydantic_ai"),
    Adapter("OpenAI Agents SDK", "benchmarks.adapters.calls_openai_agents", "agents"),
    Adapter("MCP client, stdio", "benchmarks.adapters.calls_mcp client", "mcp"),
    Adapter("MCP gateway, stdio", "benchmarks.adapters.calls_mcp gateway", "mcp"),
    Adapter("Claude Agent SDK, server", "benchmarks.adapters.calls_claude server", "claude_agent_sdk", HOSTS),
    Adapter("Claude Agent SDK, hooks", "benchmarks.adapters.calls_claude built_in", "claude_agent_sdk", HOSTS),
    Adapter("Google ADK, recipe", "benchmarks.adapters.calls_adk", "google.adk", HOSTS),
    Adapter("Strands Agents, recipe", "benchmarks.adapters.calls_strands", "strands", HOSTS),
    Adapter(
        "Microsoft Agent Framework, recipe", "benchmarks.adapters.calls_agent_framework", "agent_framework", HOSTS
    ),
    Adapter("milepost.agents, beside a bare loop", "benchmarks.adapters.calls_loop", "milepost"),
)  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """What the rounds took: conversations without and with Milepost, and bare commits on either log."""

    bare: list[Slice]
    durable: list[Slice]
    fresh: list[Slice]
    extended: list[Slice]


def rows(bench: Bench) -> Iterator[Row]:
    """One row an adapter: calls a second with it and without it, and what a call takes longer."""
    rounds = min(MOST_ROUNDS, max(1, round(bench.rounds * bench.scale)))
    for adapter in ADAPTERS:
        work = f"{adapter.name}: a turn with one tool call"
        if not _installed(adapter):
            yield Row(work, f"not installed in {adapter.environment}: `make bench ARGS=adapters` sets it up")
            continue
        yield _row(work, _measured(bench, adapter, rounds))


def _row(work: str, taken: Taken) -> Row:
    """Differences are taken in each round, where both met the same machine; shown are medians of the rounds."""
    without, kept = (statistics.median(one.rate for one in slices) for slices in (taken.bare, taken.durable))
    pairs = list(zip(taken.bare, taken.durable, strict=True))
    longer = [durable.seconds / durable.count - bare.seconds / bare.count for bare, durable in pairs]
    cpu = [durable.cpu / durable.count - bare.cpu / bare.count for bare, durable in pairs]
    fresh, extended = (
        statistics.median(more * commits.rate for more, commits in zip(longer, slices, strict=True))
        for slices in (taken.fresh, taken.extended)
    )
    figure = f"{kept:,.0f} calls/s, {without:,.0f} without: {statistics.median(longer) * 1e3:+.2f} ms"
    return Row(work, figure, fresh=fresh, extended=extended, cpu_us=statistics.median(cpu) * 1e6)


def _measured(bench: Bench, adapter: Adapter, rounds: int) -> Taken:
    program, *form = adapter.program.split()
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        shown = subprocess.run(
            [adapter.python, "-m", program, folder, str(rounds), *form],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT,
        )  # fmt: skip
    if shown.returncode != 0:
        raise RuntimeError(f"{adapter.program} failed:\n{shown.stderr[-2000:]}")
    taken = json.loads(shown.stdout.splitlines()[-1])
    return Taken(**{name: [Slice(**one) for one in slices] for name, slices in taken.items()})


def _installed(adapter: Adapter) -> bool:
    """Whether a framework is in its environment. Of it at most a package around it is imported."""
    asks = (
        "import importlib.util, sys\n"
        "try: sys.exit(importlib.util.find_spec(sys.argv[1]) is None)\n"
        "except ModuleNotFoundError: sys.exit(1)"
    )
    try:
        return subprocess.run([adapter.python, "-c", asks, adapter.needs], cwd=ROOT, check=False).returncode == 0
    except FileNotFoundError:
        return False
