"""Faults 12 and 13: a worker that is frozen past its lease, and workers that want the same runs."""

from __future__ import annotations

import json
import signal
from collections import Counter
from functools import partial
from typing import Any

import milepost as mp
from faults.lives import Life
from faults.scenarios import baseline
from faults.scoreboard import Fault
from faults.stage import Stage, how
from faults.strace import Point
from faults.tools import Order
from faults.worker import AUTHORITY, BUDGET
from milepost.core import entries as e
from milepost.stores.api import RunRow

AROUND_SENDS = ("fdatasync", "fcntl", "epoll_wait", "connect", "sendto", "recvfrom", "rename")
ONE_CALL = ("charge", "ship", "press", "deliver")
RACERS = 3
RACED_RUNS = 8
ROUNDS = 40
SHARED_RUNS = 12
LAPSES = 3


def frozen_past_its_lease(stage: Stage) -> None:
    """Stop a worker around its send, let another one take the run, and wake it."""
    tool = baseline.chosen(stage, list(ONE_CALL))
    among = baseline.points(stage, "one", tool, AROUND_SENDS)
    point = stage.chance.choice(before_the_send(among) if stage.chance.random() < 0.5 else around(among))
    frozen = stage.frozen(point, "one", tool)
    if frozen is None:
        stage.done("one", tool)
        return
    # A point is the N-th call of any thread, and threads take turns as they like: it may lie behind the send as well.
    early = point in before_the_send(among) and not frozen.left
    stage.outside.advance("1h")
    taker = stage.start("run", "one", tool, "x")
    stage.until(lambda: stage.count(e.Claimed) > 1 or taker.code is not None, "another worker takes the run")
    if stage.result.met(stage.count(e.Claimed) > 1):
        taker.wait(1.0)
    frozen.send(signal.SIGCONT)
    stage.until(lambda: frozen.code is not None, "the frozen worker ends when it wakes")
    stage.until(lambda: taker.code is not None, "the other worker ends")
    if early:
        settled_by_evidence(stage, tool)
    stage.done("one", tool)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    if early and stage.count(e.Claimed) > 1:
        under = {entry.attempt: entry.epoch for entry in stage.all_entries() if isinstance(entry, e.EffectStarted)}
        sent = [under[line.attempt] for line in stage.outside.lines()]
        stage.result.must(1 not in sent, "the frozen worker sent under the epoch that it had lost")


def settled_by_evidence(stage: Stage, tool: str) -> None:
    """Check that what a person was asked about is settled by what the frozen worker says."""
    ended = stage.work("one", tool)
    stage.result.must(how(ended) != "person", "a person is still asked, although the frozen worker knows what it did")


def before_the_send(among: list[Point]) -> list[Point]:
    """Return the points from which a woken worker still looks at its lease: `started` is durable, the look is to come.

    They are the release of the writer's lock after the last commit, and what follows up to the connection.
    """
    sends = baseline.sending(among)
    connects = baseline.first(among[:sends], lambda point: point.call in {"connect", "rename"})
    commit = max(place for place in range(connects) if among[place].call == "fdatasync")
    return [point for point in among[commit:connects] if "F_UNLCK" in point.said]


def around(among: list[Point]) -> list[Point]:
    """Return every point outside a transaction, from the first claim on."""
    claim = [place for place, point in enumerate(among) if point.call == "fdatasync"][-7]
    return [point for point in among[claim:] if point.call not in {"fdatasync", "fcntl"} or ("l_start=120" in point.said
            and "F_UNLCK" in point.said)]  # fmt: skip


def many_claims(stage: Stage) -> None:
    """Let several processes claim the same runs, bare; then several workers share runs while their leases lapse."""
    race(stage, RACERS, ROUNDS)
    share(stage)


def race(stage: Stage, processes: int, rounds: int) -> None:
    """Let several processes claim the same runs, over and over."""
    begin(stage, "press", RACED_RUNS)
    racers = [stage.start("claim", f"racer-{number}", str(rounds)) for number in range(processes)]
    won = [tuple(claim) for racer in racers for claim in json.loads(stage.ended(racer).out or "[]")]
    stage.result.points += len(won)
    twice = [claim for claim, times in Counter(won).items() if times > 1]
    stage.result.must(not twice, f"won by two: {twice[:3]}")
    epochs = {run.id: run.epoch for run in stage.runs()}
    stage.result.must(
        Counter(run for run, _ in won) == epochs, "a claim was won that the store does not know, or the reverse"
    )
    stage.judge("after the race")


def share(stage: Stage, **changes: Any) -> None:
    """Let workers share runs, while each of their leases lapses again and again."""
    beside = stage.beside("shared")
    beside.declare(**{"lease": "2s", "timeout": "1s", **changes})
    for tool in ("press", "ship"):
        begin(beside, tool, SHARED_RUNS // 2)
    workers = [beside.start("serve") for _ in range(RACERS)]
    for number in range(LAPSES):
        wanted = (number + 1) * SHARED_RUNS // (LAPSES + 1)
        beside.until(partial(_applied, beside, wanted), "work goes on")
        beside.outside.advance("1h")
    beside.until(
        lambda: all(rests(run) for run in beside.runs()), "all runs are done, or left to a person", within_s=40
    )
    if any(run.status != "done" for run in beside.runs()):
        beside.settle()  # a call that is cut off by the loss of its run may leave no evidence
        beside.until(lambda: all(run.status == "done" for run in beside.runs()), "all runs are done", within_s=40)
    stop(beside, workers)
    beside.judge("after they shared runs")
    names = Counter(line.name for line in beside.outside.lines())
    beside.result.must(set(names.values()) == {1} and len(names) == SHARED_RUNS, f"applied {names}")
    stage.result.points += sum(isinstance(entry, e.Claimed) for entry in beside.all_entries())
    stage.result.take(beside.result)
    beside.close()


def rests(run: RunRow) -> bool:
    """Whether nothing more can happen to a run by itself."""
    return run.status == "done" or (run.status == "parked" and run.owner is None and run.due is None)


def stop(stage: Stage, workers: list[Life]) -> None:
    """Let workers drain."""
    for worker in workers:
        worker.send(signal.SIGTERM)
    for worker in workers:
        stage.result.must(stage.ended(worker).code == 0, "a worker did not drain")


def begin(stage: Stage, tool: str, count: int) -> None:
    """Start runs of one call each."""

    async def start(app: mp.App) -> None:
        for number in range(count):
            order = Order(tool, f"{tool}-{number}")
            flow = app.workflows["one"]
            await app.start(flow, order, key=order.name, authority=AUTHORITY, budget=BUDGET)

    stage.client(start)


FAULTS = (
    Fault(
        12,
        "a worker frozen past its lease, taken over, and woken",
        "strace: SIGSTOP around the send; the clock an hour ahead; another worker; SIGCONT",
        "applied once; what was not sent yet is refused by lease and epoch, and said so; what was sent is settled when "
        "known",
        frozen_past_its_lease,
        tries=40,
        smoke=3,
        least=0.35,
    ),
    Fault(
        13,
        f"{RACERS} processes claim at once",
        f"{RACERS} processes claim {RACED_RUNS} runs {ROUNDS} times each, all at once; then {RACERS} workers share "
        f"{SHARED_RUNS} runs while all their leases lapse {LAPSES} times",
        "one winner for each epoch, in the store and by their own count; nothing sent twice",
        many_claims,
        tries=8,
        smoke=1,
        least=400,
    ),
)


def _applied(stage: Stage, count: int) -> bool:
    return len(stage.outside.lines()) >= count
