"""What a soak came to: the record against the outside world, and what is left where nothing should be."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from milepost.app import open_store
from milepost.testing.check import Applied, Violation, check
from soak.processes import Life
from soak.report import Report
from soak.running import Soak
from soak.scene import NEW, SLOW_PER_GROUP, SLOW_TOGETHER
from soak.watching import PER_PROCESS, Quarter

TOOLS = 9  # a breaker remembers the last failure of each
HOT = {"mp_effects": 0, "mp_waits": 0, "mp_reserved": 0, "mp_switches": 0, "mp_breakers": TOOLS}  # rows at the end
ENOUGH = 100  # runs
SHOWN = 5  # of runs that are stuck, each with its record
HOT_KB = 4_096  # a table that holds what is live alone stays so small, whatever went through it
NARROW_KB = 2.0  # and one with a narrow row for each run stays below this for each
LEASE_S = 12.0
LONG_S = 90.0  # a life in which a trend shows
WARM_S = 30.0
GROWTH, GROWTH_KB = 1.15, 8_192
LEFT_OVER = {
    "runs that a worker holds": "held_runs",
    "leases that still run": "leases",
    "messages of ended runs, not taken": "live_inbox",
    "waits of ended runs": "live_waits",
    "open effects of ended runs": "live_effects",
    "reservations without an open effect": "live_reserved",
    "approvals that wait in ended runs": "live_approvals",
    "connections of Milepost": "connections",
    "transactions that are open": "open_transactions",
    "advisory locks": "advisory_locks",
    "prepared transactions": "prepared_transactions",
    "replication slots": "replication_slots",
}


def judge(soak: Soak) -> Report:
    """Look at all that a soak left behind."""
    began = soak.watch.began
    report = Report(
        f"Seed {soak.scene.seed}, {time.monotonic() - began:.0f} s on PostgreSQL {soak.server.version}: {soak.kills} "
        f"workers killed, {soak.drains} drained, {len(soak.restarts)} restarts of the database, one deploy."
    )
    runs(soak, report)
    record(soak, report)
    fleet(soak, report)
    memory(soak, report)
    leaks(soak, report)
    tables(soak, report)
    return report


# ---------------------------------------------------------------- runs and their record


def runs(soak: Soak, report: Report) -> None:
    """Say how the runs ended, and which of them did not."""
    statuses = {str(status): int(count) for status, count in soak.watch.ask("statuses")}
    told = [line.split()[0] for line in soak.scene.told.read_text().splitlines()]
    there = {str(row[0]) for row in soak.watch.ask("ids")}
    gone = sorted(set(told) - there)
    report.add("runs", len(there))
    report.add("of these acknowledged to a client", len(told), must="all there", problems=gone)
    for status, count in statuses.items():
        report.add(f"runs that are {status}", count)
    unended = soak.watch.ask("unended")
    named = [row for row in unended if row[2] == "parked" and row[3] and (row[4] or row[5])]
    stuck = [row for row in unended if row not in named]
    told_of = [stood(soak, row) for row in stuck[:SHOWN]]
    report.add("runs that wait for something named", len(named))
    report.add("runs that are stuck", len(stuck), must="none", problems=told_of)
    report.add("runs that the migration led over", soak.watch.one("migrated"))
    report.add("runs that the deploy would have stranded", "none" if not soak.stranded else "some", must="none",
               problems=[soak.stranded] if soak.stranded else [])  # fmt: skip
    keys = [str(row[0]) for row in soak.watch.ask("ticks")]
    report.add("ticks of the schedule", len(keys), must="each minute once", problems=missed(keys))


def stood(soak: Soak, row: tuple[object, ...]) -> str:
    """Return how a run that nothing moves stands: its row, and what its record says last."""
    last = soak.watch.ask("last_entries", [row[0]])
    return "\n    ".join([" ".join(map(str, row)), *(f"{seq} {body}" for seq, body in reversed(last))])


def missed(keys: list[str]) -> Iterator[str]:
    """Name the minutes that have no tick, or two, from the first to the last."""
    moments = [datetime.strptime(key.partition("@")[2], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) for key in keys]
    for before, after in pairwise(moments):
        if after - before != timedelta(minutes=1):
            yield f"{after} came after {before}"


def record(soak: Soak, report: Report) -> None:
    """Compare the record with the outside world, and with itself."""
    lines = soak.outside.applied()
    noted = [Applied("note", args={"name": name}) for (name,) in soak.watch.ask("notes")]
    violations = asyncio.run(checked(soak.scene.store, [*lines, *noted]))
    report.add("effects in the outside ledgers", len(lines) + len(noted))
    met = Counter(soak.outside.met())
    report.add("answers lost, late, broken or invented", sum(met.values()) - met["none"])
    report.add("violations that the checker finds", len(violations), must="none", problems=map(str, violations))
    verified = soak.processes.run(NEW, "milepost", "verify", "--all", "--store", soak.scene.store, "--json")
    wrong = [] if verified.returncode == 0 else [(verified.stdout + verified.stderr)[-3_000:]]
    entries = 0 if wrong else sum(run["entries"] for run in json.loads(verified.stdout)["runs"])
    report.add("entries that milepost verify reads", entries, must="sound", problems=wrong)
    idle = soak.idle_entries
    report.add("entries written while nothing was to do", idle, must="none", problems=[str(idle)] if idle else [])


async def checked(url: str, lines: list[Applied]) -> list[Violation]:
    """Return what the checker finds."""
    store = open_store(url)
    try:
        return await check(store, lines)
    finally:
        store.close()


# ---------------------------------------------------------------- the fleet


def fleet(soak: Soak, report: Report) -> None:
    """Say how the processes went, and whether limits held."""
    watch = soak.watch
    report.add("workers that left by themselves as the database went", soak.left_near)
    report.add("processes that left without a reason", len(soak.left), must="none", problems=soak.left)
    cells = [quarter.connections for quarter in watch.quarters]
    report.add("connections, most at once", *cells, must=f"{PER_PROCESS} a process", problems=watch.above)
    for what, most, limit in (
        ("runs at once in the limited queue, most", watch.together, SLOW_TOGETHER),
        ("of one group of it", watch.of_a_group, SLOW_PER_GROUP),
    ):
        report.add(what, most, must=f"at most {limit}", problems=[f"{most}"] if most > limit else [])


def memory(soak: Soak, report: Report) -> None:
    """Look at the memory of workers over their lives: a long life must not need more and more."""
    lives = [life for life in soak.processes.all if life.name.startswith("worker") and warm(life)]
    first = [warm(life)[0] for life in lives]
    last = [warm(life)[-1] for life in lives]
    if lives:
        report.add("memory of a worker at its start, median MB", mb(statistics.median(first)))
        report.add("memory of a worker at its end, median MB", mb(statistics.median(last)))
        report.add("memory of a worker, most MB", mb(max(max(warm(life)) for life in lives)))
    for life in lives:
        seen = [kb for age, kb in life.memory if age > WARM_S]
        if not seen or life.memory[-1][0] < LONG_S:
            continue
        places = [round(part * (len(seen) - 1)) for part in (0, 0.25, 0.5, 0.75, 1)]
        report.add(
            f"memory of {life.name} in {life.memory[-1][0]:.0f} s of life, MB", *(mb(seen[place]) for place in places),
            must="no growth", problems=trend(seen),
        )  # fmt: skip


def warm(life: Life) -> list[int]:
    """Return the memory of a worker from when it works."""
    return [kb for age, kb in life.memory if age > 3.0]


def trend(seen: list[int]) -> list[str]:
    """Return a complaint where the second half of a life needs more than the first."""
    third = max(1, len(seen) // 3)
    early, late = statistics.median(seen[:third]), statistics.median(seen[-third:])
    return [f"from {mb(early)} to {mb(late)} MB"] if late > early * GROWTH + GROWTH_KB else []


def mb(kb: float) -> str:
    """Return an amount of memory."""
    return f"{kb / 1024:.0f}"


def leaks(soak: Soak, report: Report) -> None:
    """Count what nobody holds any more, once everybody is gone and the last lease has run out."""
    deadline = time.monotonic() + LEASE_S
    while soak.watch.one("leases") and time.monotonic() < deadline:
        time.sleep(0.2)
    for what, name in LEFT_OVER.items():
        found = soak.watch.one(name)
        report.add(f"left over: {what}", found, must="none", problems=[str(found)] if found else [])
    files = sorted(path.name for path in soak.local.rglob("*.lock"))
    stale = files[len(soak.workers) :]
    report.add("left over: lock files of this machine", len(files), must="bounded", problems=stale)


# ---------------------------------------------------------------- tables


def tables(soak: Soak, report: Report) -> None:
    """Say how every table grew, and what must have come back."""
    quarters = soak.watch.quarters
    final = quarters[-1].tables
    for name in sorted(final):
        rows = [quarter.tables[name].rows for quarter in quarters if name in quarter.tables]
        sizes = [quarter.tables[name].kb for quarter in quarters if name in quarter.tables]
        if not any(rows):
            continue
        must, problems = "", []
        if name in HOT:
            must = f"at most {HOT[name]}" if HOT[name] else "none"
            problems = [f"{rows[-1]} rows"] if rows[-1] > HOT[name] else []
        report.add(f"{name}, rows", *rows, must=must, problems=problems)
        must, problems = bytes_of(name, quarters)
        report.add(f"{name}, kB", *sizes, must=must, problems=problems)
    runs = [one.tables["mp_runs"].rows for one in quarters]
    a_run = [round(one.tables["mp_journal"].rows / max(1, rows), 1) for one, rows in zip(quarters, runs, strict=True)]
    seen = [each for each, rows in zip(a_run, runs, strict=True) if rows > ENOUGH]
    grew = [f"{seen}"] if seen and max(seen) > 2 * min(seen) else []
    report.add("entries a run", *a_run, must="steady", problems=grew)


def bytes_of(name: str, quarters: list[Quarter]) -> tuple[str, list[str]]:
    """Return how large a table may be at the end, and what is wrong with how large it is."""
    last = quarters[-1].tables[name]
    if name in HOT:
        return f"at most {HOT_KB:,}", [f"{last.kb} kB"] if last.kb > HOT_KB else []
    if name in {"mp_heads", "mp_runs"}:
        most = NARROW_KB * last.rows + HOT_KB
        return f"at most {NARROW_KB:.0f} a run, and {HOT_KB:,}", [f"{last.kb} kB"] if last.kb > most else []
    return "", []
