"""Faults 12 to 15 and 20 on PostgreSQL: what a fleet has to survive when the store is a server that may be elsewhere.

The version takes turns with the seed. Leases are the server's time here, so where a lease has to lapse it truly does.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import closing
from functools import partial

from faults.commits import PLACES, CommitProxy
from faults.databases import Wire
from faults.lives import Life
from faults.scenarios import baseline, clocks, workers
from faults.scenarios.killing import TWENTY
from faults.scenarios.workers import begin, rests, stop
from faults.scoreboard import POSTGRES, Fault
from faults.stage import Stage, how
from faults.strace import TALKS, Point
from faults.tools import PATIENT
from milepost.core import entries as e
from milepost.errors import StoreError
from milepost.stores.api import RunRow

ONE_CALL = ("charge", "ship", "press")
RACERS = 2
ROUNDS = 63  # times 8 runs: a thousand claims by two workers
COMMITS = 44  # so many has the run of twenty steps, about
REQUESTS = 16
UNDER_LOAD = 12
CRASHES = 3
LEASE_S = 2.0
SILENCE_S = (0.3, 4.0, 18.0)  # shorter than a lease, longer, and longer than a silent connection is kept
HANGS_S = 90.0


def on_shared(stage: Stage) -> None:
    """Keep the store on a server that no try harms."""
    stage.keep_in(stage.databases.shared(stage.seed))


# ---------------------------------------------------------------- 12, 13: workers


def frozen_past_its_lease(stage: Stage) -> None:
    """Stop a worker anywhere in one call, let its lease lapse and another one take the run, and wake it."""
    on_shared(stage)
    tool = baseline.chosen(stage, list(ONE_CALL))
    among = talk(stage, tool)
    frozen = stage.frozen(stage.chance.choice(among), "one", tool)
    if frozen is None:
        stage.done("one", tool)
        return
    # It holds the run and has started nothing: it has still to look at its lease, or is refused its `started`.
    unsent = stage.count(e.Claimed) == 1 and stage.count(e.EffectStarted) == 0
    stage.outside.advance("1h")
    taker = stage.start("run", "one", tool, "x")
    # A process that stands still inside a transaction holds its run until others, or the server, end that.
    stage.until(lambda: stage.count(e.Claimed) > 1 or taker.code is not None, "another takes the run", within_s=HANGS_S)
    if stage.result.met(stage.count(e.Claimed) > 1):
        taker.wait(1.0)
    stage.until(partial(awake, frozen), "the frozen worker ends when it wakes", within_s=HANGS_S)
    stage.until(lambda: taker.code is not None, "the other worker ends", within_s=HANGS_S)
    stage.done("one", tool)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    if unsent and stage.count(e.Claimed) > 1:
        under = {entry.attempt: entry.epoch for entry in stage.all_entries() if isinstance(entry, e.EffectStarted)}
        sent = [under[line.attempt] for line in stage.outside.lines()]
        stage.result.must(1 not in sent, "the frozen worker sent under the epoch that it had lost")


def awake(life: Life) -> bool:
    """Wake a worker, and again where another of its threads came to the same number of calls; whether it has ended."""
    if life.stopped:
        life.send(signal.SIGCONT)
    return life.code is not None


def talk(stage: Stage, tool: str) -> list[Point]:
    """Return the talk of an undisturbed run with its store and the outside, from its first claim on.

    Several threads talk, and a point is the N-th call of any of them: what one of them has reached before the claim
    would stop a worker that holds nothing.
    """
    among = baseline.points(stage, "one", tool, TALKS)
    claim = baseline.first(among, lambda point: "claimed.1" in point.said)
    before = among[: claim if claim < len(among) else len(among) // 2]
    reached: dict[str, int] = {}
    for point in before:
        reached[point.call] = max(point.number, reached.get(point.call, 0))
    return [point for point in among[len(before) :] if point.number > reached.get(point.call, 0)]


def many_claims(stage: Stage) -> None:
    """Let two processes claim the same runs, bare, a thousand times; then let workers share runs."""
    on_shared(stage)
    workers.race(stage, RACERS, ROUNDS)
    workers.share(stage)


# ---------------------------------------------------------------- 14: cut off


def cut_off(stage: Stage) -> None:
    """Cut the wire to the database: inside a commit, or for one direction, or for both."""
    if stage.seed % 3 == 2:
        partitioned(stage)
    else:
        in_commit(stage)


def in_commit(stage: Stage) -> None:
    """Cut the connection at a message of one commit; the same process has to find out what became of it."""
    place = baseline.chosen(stage, list(PLACES))
    server = stage.databases.shared(stage.seed)
    proxy = CommitProxy("127.0.0.1", server.port, commit=stage.chance.randrange(1, COMMITS), place=place)
    with closing(proxy):
        stage.keep_in(server, f"postgresql://owner@127.0.0.1:{proxy.port}/{{}}")
        ended = stage.work("twenty")
        stage.result.met(proxy.cut.is_set())
        if how(ended) not in {"done", "person"}:
            stage.result.problems.append(f"{place} of a commit was cut, and the worker ended: {how(ended)}")
        stage.judge(f"{place} of a commit had passed")
        stage.done("twenty", result=TWENTY)
    died = sum(isinstance(entry, e.Claimed) for entry in stage.all_entries())
    stage.result.must(died <= 1 + stage.result.cut + stage.result.asked, f"the run was claimed {died} times")


def partitioned(stage: Stage) -> None:
    """Take away what passes in one direction, or both, for as long as the seed means, while workers are at work."""
    way = ("answers", "requests", "both")[stage.seed // 3 % 3]
    silence = SILENCE_S[stage.seed // 9 % 3]
    with closing(Wire()) as wire:
        server = stage.databases.own(stage.seed, wire)
        try:
            stage.keep_in(server, server.url("{}", host=wire.theirs))
            stage.declare(lease=f"{LEASE_S:.0f}s", **PATIENT)
            load(stage)
            at_work = two_workers(stage)
            stage.until(partial(applied, stage, stage.chance.randrange(1, UNDER_LOAD // 2)), "work goes on")
            wire.cut(way)
            stage.result.met(at_work)
            time.sleep(silence)
            wire.mend()
            come_to_rest(stage, at_work, f"{way} were lost for {silence} s")
        finally:
            end(stage)
            server.close()


# ---------------------------------------------------------------- 15: the server dies


def server_dies(stage: Stage) -> None:
    """Kill the server, or stop it at once, under load, and start it again: up to three times in one try."""
    server = stage.databases.own(stage.seed)
    try:
        stage.keep_in(server)
        stage.declare(lease=f"{LEASE_S:.0f}s", **PATIENT)
        load(stage)
        at_work = two_workers(stage)
        for crash in range(stage.chance.randrange(1, CRASHES + 1)):
            wanted = crash * UNDER_LOAD // CRASHES + stage.chance.randrange(1, UNDER_LOAD // CRASHES)
            stage.until(partial(applied, stage, wanted), "work goes on")
            (server.kill if stage.chance.random() < 0.5 else server.stop_immediately)()
            stage.result.met(at_work)
            time.sleep(stage.chance.choice([0.0, 0.5, 3.0]))
            server.start()
        come_to_rest(stage, at_work, "the server died")
    finally:
        end(stage)
        server.close()


def load(stage: Stage) -> None:
    """Start runs of each kind of call that a person need not settle, and one that may."""
    for tool in ONE_CALL:
        begin(stage, tool, UNDER_LOAD // len(ONE_CALL))


def two_workers(stage: Stage) -> list[Life]:
    """Start two workers, and wait until both have opened the store: one that cannot ends, and says why."""
    started = [stage.start("serve") for _ in range(2)]
    stage.until(lambda: len(stage.ask(lambda store: store.workers())) == len(started), "both workers are enlisted")
    return started


def applied(stage: Stage, count: int) -> bool:
    """Whether so much was done outside."""
    return len(stage.outside.lines()) >= count


def come_to_rest(stage: Stage, at_work: list[Life], when: str) -> None:
    """Wait until all runs have ended, with the workers that are there, and compare the books."""
    gone = [life.code for life in at_work if life.code is not None]
    stage.result.must(not gone, f"{when}, and workers ended with {gone}: {[life.where() for life in at_work]}")
    if gone:
        at_work = [*(life for life in at_work if life.code is None), stage.start("serve")]
    stage.until(lambda: all(map(rests, seen(stage))), f"{when}: all runs are done", within_s=HANGS_S)
    if any(run.status != "done" for run in stage.runs()):
        stage.settle()
        stage.until(lambda: all(run.status == "done" for run in stage.runs()), "all runs are done", within_s=HANGS_S)
    stop(stage, at_work)
    stage.judge(when)
    names = Counter(line.name for line in stage.outside.lines())
    stage.result.must(set(names.values()) == {1} and len(names) == UNDER_LOAD, f"{when}: applied {names}")


def seen(stage: Stage) -> list[RunRow]:
    """Return the runs, as soon as the store can be read."""
    try:
        return stage.runs()
    except StoreError:
        return []


def end(stage: Stage) -> None:
    """End every worker before its server goes."""
    for life in stage.lives:
        life.end()


# ---------------------------------------------------------------- 20: clocks


def wrong_clocks(stage: Stage) -> None:
    """Let a machine's clock go wrong: the server's is the one that counts."""
    on_shared(stage)
    stage.declare(machine_clock=True)
    (clocks.jumps, stands_still, clocks.apart, clocks.starts_elsewhere)[stage.seed % 4](stage)


def stands_still(stage: Stage) -> None:
    """A worker stands still for longer than its lease lasts, with another one at work: that one takes its runs."""
    stage.declare(lease=f"{LEASE_S:.0f}s", **PATIENT)
    load(stage)
    at_work = two_workers(stage)
    stage.until(partial(applied, stage, stage.chance.randrange(1, UNDER_LOAD // 2)), "work goes on")
    at_work[0].send(signal.SIGSTOP)
    stage.until(lambda: at_work[0].stopped, "it stands still")
    stage.result.met(at_work)
    time.sleep(LEASE_S * 2)
    at_work[0].send(signal.SIGCONT)
    come_to_rest(stage, at_work, "a worker stood still")


FAULTS = (
    Fault(
        12,
        "a worker frozen past its lease, taken over, and woken",
        "strace: SIGSTOP at any of its talk with the server and the outside, also inside a transaction",
        "applied once; what was not sent yet is refused by lease and epoch; what was sent is settled when known",
        frozen_past_its_lease,
        tries=16,
        smoke=6,
        least=0.3,
        store=POSTGRES,
    ),
    Fault(
        13,
        "3 processes claim at once",
        f"{RACERS} processes claim 8 runs {ROUNDS} times each; then 3 workers share 12 runs while their leases lapse",
        "one winner for each epoch, in the store and by their own count; nothing sent twice",
        many_claims,
        tries=3,
        smoke=1,
        store=POSTGRES,
    ),
    Fault(
        14,
        "cut off from the database, also inside a commit",
        "a proxy that cuts before, within and behind each message of any commit of a run of 20 steps; in a network "
        "namespace: no answers, no requests, or neither, for less than a lease, longer, and longer than a connection "
        "is kept",
        "what became of the commit is found out before anything else is done: same result, nothing repeated, the "
        "worker goes on",
        cut_off,
        tries=27,
        smoke=3,
        store=POSTGRES,
    ),
    Fault(
        15,
        "the database killed or stopped at once, under load",
        f"SIGKILL of the postmaster, or immediate stop, up to {CRASHES} times, with 2 workers and {UNDER_LOAD} runs",
        "no worker ends; nothing acknowledged is lost, nothing repeated; all runs end without help",
        server_dies,
        tries=9,
        smoke=1,
        store=POSTGRES,
    ),
    Fault(
        20,
        "clocks jump, go apart, start elsewhere, or stand still",
        "the wall clock of a worker's machine a day ahead or back; SIGSTOP past the lease; two machines a day apart; a "
        "time namespace with another monotonic clock",
        "the server's clock counts: nothing released early, no hang, same result, the budget spent exactly",
        wrong_clocks,
        tries=12,
        smoke=4,
        store=POSTGRES,
    ),
)
