"""Faults 2, 3, 6, 12, 13 and 15 under Temporal: it schedules, and everything else is as it is without it.

The store takes turns with the seed, a file and a database. Runs are started as a program starts them, through Temporal
or without, and each of their workflows has to end with them.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from functools import partial

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

import milepost as mp
from faults.lives import Life
from faults.scenarios import baseline, workers
from faults.scenarios.answers import LOST_ANSWERS, die
from faults.scenarios.killing import was_unknown
from faults.scenarios.postgres import UNDER_LOAD, applied, end, load, seen, two_workers
from faults.scenarios.workers import rests, stop
from faults.scoreboard import TEMPORAL, Fault
from faults.stage import Stage
from faults.tools import HEARS_S, PATIENT, UNHEARD_S, Order
from faults.worker import AUTHORITY, BUDGET
from milepost.core import entries as e
from milepost.drivers.temporal import start, workflow_id
from milepost.testing.world import Rules, Toxic
from tests.servers.temporal import TemporalServer

ONE_CALL = ("charge", "ship", "publish", "press", "refund", "mail")
FROZEN = ("charge", "ship", "press")
IRREVERSIBLE = frozenset({"press", "mail"})
SENT_AGAIN = frozenset({"charge", "refund", "publish"})  # under the same key, or the same precondition
LONG_S = 30.0
HANGS_S = 60.0
CRASHES = 2


def on_temporal(stage: Stage, server: TemporalServer | None = None) -> None:
    """Let Temporal drive, over the kind of store that the seed means."""
    if stage.seed % 2:
        stage.keep_in(stage.databases.shared(stage.seed // 2))
    stage.drive_by(server or stage.databases.temporal())


def begin(stage: Stage, tool: str) -> None:
    """Start one run of one call: through Temporal, or without it, so that a worker has to find it."""

    async def begun(app: mp.App) -> None:
        order, flow = Order(tool, "x"), app.workflows["one"]
        if stage.chance.random() < 0.5:
            await app.start(flow, order, key="run", authority=AUTHORITY, budget=BUDGET)
            return
        client = await Client.connect(stage.setup.temporal)
        await start(
            client, app, flow, order, task_queue=stage.setup.account, key="run", authority=AUTHORITY, budget=BUDGET
        )

    stage.client(begun)


def finish(stage: Stage, at_work: list[Life], when: str) -> None:
    """Wait until every run and its workflow have ended, with the workers that are there; compare the books."""
    gone = [(life.code, life.where()) for life in at_work if life.code is not None]
    stage.result.must(not gone, f"{when}, and workers ended: {gone}")
    stage.until(lambda: all(map(rests, seen(stage))), f"{when}: all runs rest", within_s=HANGS_S)
    if any(run.status != "done" for run in stage.runs()):
        stage.settle()
        stage.until(lambda: all(run.status == "done" for run in stage.runs()), "all runs are done", within_s=HANGS_S)
    stage.until(partial(completed, stage), "every workflow has ended with its run", within_s=HANGS_S)
    stop(stage, at_work)
    stage.judge(when)


def completed(stage: Stage) -> bool:
    """Whether Temporal knows that all runs are done."""
    return set(workflows(stage)) == {WorkflowExecutionStatus.COMPLETED}


def workflows(stage: Stage) -> list[WorkflowExecutionStatus | None]:
    """Return how the workflow of each run stands in Temporal; None for one that it does not know."""
    runs = stage.runs()

    async def ask() -> list[WorkflowExecutionStatus | None]:
        client = await Client.connect(stage.setup.temporal)
        found: list[WorkflowExecutionStatus | None] = []
        for run in runs:
            try:
                found.append((await client.get_workflow_handle(workflow_id(run.id)).describe()).status)
            except RPCError:
                found.append(None)
        return found

    return asyncio.run(ask())


# ---------------------------------------------------------------- 2, 3: killed around the send


def before_the_first_byte(stage: Stage) -> None:
    """Kill a worker between a durable `started` and its first byte."""
    on_temporal(stage)
    tool = baseline.chosen(stage, list(ONE_CALL))
    stage.declare(dawdles_s=LONG_S, timeout=f"{LONG_S:.0f}s")
    killed(stage, tool, lambda: stage.count(e.EffectStarted) == 1, "it is started")
    stage.result.must(not stage.outside.requests(), "it was sent before it was killed")
    stage.declare(dawdles_s=0.0)
    finish(stage, [stage.start("serve")], "killed before the first byte")
    was_unknown(stage)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    if tool in IRREVERSIBLE:
        stage.result.must(stage.result.cut == 1, "the irreversible call was not left to a person")
        stage.result.must(len(stage.outside.requests()) == 1, "it was sent more than once")


def after_it_was_applied(stage: Stage) -> None:
    """Kill a worker that waits for the answer to what was applied."""
    on_temporal(stage)
    tool = baseline.chosen(stage, list(ONE_CALL))
    stage.declare(hears_s=LONG_S, timeout=f"{LONG_S:.0f}s")
    stage.outside.obey(Rules(script=(Toxic("drop"),)))
    killed(stage, tool, lambda: bool(stage.outside.lines()), "it is applied")
    stage.declare(hears_s=HEARS_S)
    finish(stage, [stage.start("serve")], "killed when it was applied")
    was_unknown(stage)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    if tool not in SENT_AGAIN:
        stage.result.must(len(stage.outside.requests()) == 1, "it was sent a second time")


def killed(stage: Stage, tool: str, when: object, saying: str) -> None:
    """Start one run and a worker that is killed as soon as something holds, with its effect in flight."""
    begin(stage, tool)
    life = stage.start("serve")
    assert callable(when)
    stage.until(when, saying, within_s=HANGS_S)
    die(stage, life)
    stage.judge(f"killed when {saying}")
    stage.result.met(stage.count(e.EffectStarted) == 1 and stage.count(e.EffectConfirmed) == 0)


# ---------------------------------------------------------------- 6: the answer is lost


def answer_lost(stage: Stage) -> None:
    """Lose the answer to an irreversible call: its workflow waits for a person, and goes on when one has looked."""
    on_temporal(stage)
    tool = baseline.chosen(stage, sorted(IRREVERSIBLE))
    toxic = stage.chance.choice([*LOST_ANSWERS, Toxic("reset", forward=False)])
    stage.declare(hears_s=UNHEARD_S)
    stage.outside.obey(Rules(script=(toxic,)))
    begin(stage, tool)
    worker = stage.start("serve")
    stage.until(lambda: stage.open_effects() and all(map(rests, stage.runs())), "a person is asked", within_s=HANGS_S)
    stage.result.met(stage.outside.met()[:1] == [toxic.name])
    effects = [(effect.outcome, effect.person) for effect in stage.open_effects()]
    stage.result.must(len(effects) == 1 and effects[0][0] == "unknown" and effects[0][1], f"it is {effects}")
    stage.result.must(workflows(stage) == [WorkflowExecutionStatus.RUNNING], "its workflow does not wait")
    stage.result.must(len(stage.outside.requests()) <= 1, "it was sent again unasked")
    stage.judge("while a person is asked")
    finish(stage, [worker], "a person has looked")
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")


# ---------------------------------------------------------------- 12, 13: workers


def frozen_past_its_lease(stage: Stage) -> None:
    """Stop a worker in its call, before it sends or when it waits for the answer, until another has the run."""
    on_temporal(stage)
    tool = baseline.chosen(stage, list(FROZEN))
    early = stage.chance.random() < 0.5
    stage.declare(lease="2s", timeout="3s")
    if early:
        stage.declare(dawdles_s=0.5)
    else:
        stage.declare(hears_s=LONG_S)
        stage.outside.obey(Rules(script=(Toxic("drop"),)))
    begin(stage, tool)
    frozen = stage.start("serve")
    begun = (lambda: stage.count(e.EffectStarted) == 1) if early else (lambda: bool(stage.outside.lines()))
    stage.until(begun, "it is in its call", within_s=HANGS_S)
    frozen.send(signal.SIGSTOP)
    stage.until(lambda: frozen.stopped, "it stands still")
    sent = len(stage.outside.requests())
    stage.declare(dawdles_s=0.0)
    taker = stage.start("serve")
    stage.until(lambda: stage.count(e.Claimed) > 1, "another takes the run", within_s=HANGS_S)
    stage.result.met(stage.count(e.Claimed) > 1 and sent == (not early))
    frozen.send(signal.SIGCONT)
    finish(stage, [frozen, taker], "the frozen worker woke")
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")
    if early and not sent:
        under = {entry.attempt: entry.epoch for entry in stage.all_entries() if isinstance(entry, e.EffectStarted)}
        late = [under[line.attempt] for line in stage.outside.lines()]
        stage.result.must(1 not in late or tool == "press", "the frozen worker sent under the epoch that it had lost")


def many_workers(stage: Stage) -> None:
    """Let workers that Temporal asks share runs, while their leases lapse."""
    on_temporal(stage)
    workers.share(stage, **PATIENT)


# ---------------------------------------------------------------- 15: Temporal's server dies


def server_dies(stage: Stage) -> None:
    """Kill Temporal's server under load, in every other try a worker with it, and start it again."""
    server = stage.databases.own_temporal()
    try:
        on_temporal(stage, server)
        stage.declare(lease="2s", **PATIENT)
        load(stage)
        at_work = two_workers(stage)
        both = bool(stage.seed // 2 % 2)
        for crash in range(stage.chance.randrange(1, CRASHES + 1)):
            wanted = crash * UNDER_LOAD // CRASHES + stage.chance.randrange(1, UNDER_LOAD // CRASHES)
            stage.until(partial(applied, stage, wanted), "work goes on", within_s=HANGS_S)
            server.kill()
            stage.result.met(at_work)
            if both:
                die(stage, at_work.pop())
            time.sleep(stage.chance.choice([0.0, 0.5, 2.0]))
            server.start()
            if both:
                at_work.append(stage.start("serve"))
        finish(stage, at_work, "Temporal's server died")
        names = Counter(line.name for line in stage.outside.lines())
        stage.result.must(set(names.values()) == {1} and len(names) == UNDER_LOAD, f"applied {names}")
    finally:
        end(stage)
        server.close()


FAULTS = (
    Fault(
        2,
        "killed between started and the first byte",
        "SIGKILL of a worker whose tool is about to send; another one; in a file and in a database in turn, as in all "
        "of this column",
        "the same, and the workflow ends with its run",
        before_the_first_byte,
        tries=12,
        smoke=1,
        store=TEMPORAL,
    ),
    Fault(
        3,
        "killed after it was applied, before that is recorded",
        "SIGKILL of a worker that waits for the answer to what was applied; another one",
        "the same, and the workflow ends with its run",
        after_it_was_applied,
        tries=12,
        smoke=1,
        store=TEMPORAL,
    ),
    Fault(
        6,
        "answer lost, irreversible",
        "the same",
        "unknown and a person is asked, while the workflow waits; nothing is sent again unasked",
        answer_lost,
        tries=8,
        smoke=1,
        store=TEMPORAL,
    ),
    Fault(
        12,
        "a worker frozen past its lease, taken over, and woken",
        "SIGSTOP in a call, before it sends or when it waits for the answer; another worker; SIGCONT",
        "applied once; the workflow leaves the activity that it waits for, and ends with its run",
        frozen_past_its_lease,
        tries=8,
        smoke=1,
        store=TEMPORAL,
    ),
    Fault(
        13,
        "3 processes claim at once",
        f"3 workers share {workers.SHARED_RUNS} runs while their leases lapse",
        "nothing sent twice",
        many_workers,
        tries=3,
        smoke=1,
        store=TEMPORAL,
    ),
    Fault(
        15,
        "the database killed or stopped at once, under load",
        f"SIGKILL of Temporal's server, up to {CRASHES} times, every other time of a worker too, with 2 workers and "
        f"{UNDER_LOAD} runs",
        "workers go on; nothing is lost or repeated; all runs and their workflows end without help",
        server_dies,
        tries=6,
        smoke=1,
        store=TEMPORAL,
    ),
)
