"""The whole: two workers, one operator, one outside world, one store, and every order in which they may move.

A worker claims, decides, queues, commits, lets bytes leave, learns what came of them or does not, dies, or is frozen
past its lease and thaws. The outside applies a request at any moment at which its author's declaration allows it, told
or not; a *lie* lands later than that. The operator kills, cancels, resolves, answers, holds and lifts. Time is counted
in ticks; that a worker lets time pass though it could go on is counted too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from milepost.core import codec, lease, messages
from milepost.core import entries as e
from milepost.core.state import RunState
from tests.model.desk import MANIFEST, Seat, Steps, Thought
from tests.model.explorer import Violation
from tests.model.outside import Outside
from tests.model.places import TICK, Flight, Held, Request, Row, State, Worker
from tests.model.records import Record, Records
from tests.model.rules import Rules, rests
from tests.model.scenario import Scenario
from tests.model.store import Store, woken

Step = tuple[str, State]


class Protocol:
    """One scenario, to be explored."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.records = Records()
        self.actors = Steps(self.records, scenario.lease_ms, reconciles=scenario.reconciles, **scenario.tool)
        self.facts = self.actors.tool.facts
        self.outside = Outside(self.facts)
        self.rules = Rules(
            self.facts,
            once="once" in scenario.tool,
            approval="approval" in scenario.tool,
        )
        self.store = Store(self.records, self.rules.watch)
        self.operator = Operator(self)
        self._own: tuple[State | None, list[list[Step]]] = (None, [])

    # ------------------------------------------------------------ where it starts

    def start(self) -> State:
        """Every run is new; the first worker has claimed the first run, since which worker does so is all the same."""
        rows = tuple(Row(self._created(f"run-{number + 1}")) for number in range(self.scenario.runs))
        until = self.scenario.lease_ms
        workers = tuple(Worker(name, lease=until, row=until) for name in ("A", "B"))
        left = tuple(sorted(self.scenario.faults.items()))
        state = State(0, rows, workers, left)
        return self._claimed(state, 0, 0, None)

    def _created(self, run: str) -> Record:
        boundary = e.Boundary(about="about", manifest=MANIFEST, visit=1, segment="s")
        entry = codec.encode(e.RunCreated(at=0, boundary=boundary, run=run))
        return self.records.after(self.records.of(RunState(run)), entry)

    def check(self, state: State, following: list[Step]) -> None:
        """Say what is broken in a state, and what it can never get out of again.

        Where the next state of the way on which nothing more goes wrong is visited anyway, the rest is looked at there.
        """
        self.rules.check(state)
        fair = self.fair(state)
        if fair is None or all(fair != after for _, after in following):
            self.rules.ends(state, self.fair)

    # ------------------------------------------------------------ what may happen

    def steps(self, state: State) -> Iterator[Step]:
        """Yield everything that may happen next."""
        if all(worker.mode == "dead" for worker in state.workers):
            return  # what follows is the way on which nothing more goes wrong
        own = self._own_steps(state)
        for at, acts in enumerate(own):
            yield from acts
            yield from self._harm(state, at)
        yield from self.outside.steps(state)
        yield from self.operator.steps(state)
        if state.now < self.scenario.ticks * TICK and self._time_matters(state):
            if not any(self._could_act(state, own[at], at) for at in range(len(state.workers))):
                yield "a tick", self.tick(state)
            elif state.may("slow"):
                yield "a tick, and somebody is slow", self.tick(state.spend("slow"))

    @staticmethod
    def _could_act(state: State, own: list[Step], at: int) -> bool:
        """Say whether a worker lets time pass though it could go on; to wait for an answer is not slow."""
        held = state.workers[at].held
        return bool(own) and not (held is not None and held.flight is not None and held.flight.sent)

    def _time_matters(self, state: State) -> bool:
        """Say whether it makes a difference that time passes: not before the first attempt, nor after the last word."""
        if any(worker.mode == "frozen" for worker in state.workers):
            return True
        if all(rests(row, state) for row in state.rows) and all(worker.held is None for worker in state.workers):
            return any(request.fate == "out" for request in state.requests) or bool(state.switches)
        return any(effect.attempt for row in state.rows for effect in row.record.state.effects())

    def _own_steps(self, state: State) -> list[list[Step]]:
        """Return what each worker may do by itself."""
        if self._own[0] is not state:
            ups = [worker.mode == "up" for worker in state.workers]
            self._own = state, [list(self._work(state, at)) if up else [] for at, up in enumerate(ups)]
        return self._own[1]

    def _work(self, state: State, at: int) -> Iterator[Step]:
        name = state.workers[at].name
        try:
            for label, following in self._acts(state, at):
                yield f"{name} {label}", following
        except Violation as violation:
            violation.during = f"{name} {violation.during or 'goes on'}"
            raise

    def tick(self, state: State) -> State:
        """Let time pass. Whoever is up renews its lease from a thread, whatever else keeps it busy."""
        now = state.now + TICK
        workers = tuple(self._renewed(w, now) if w.mode == "up" else w for w in state.workers)
        return state._replace(now=now, workers=workers)

    def _renewed(self, worker: Worker, now: int) -> Worker:
        """The thread that renews the lease finds out whether it had lapsed before."""
        until, held = now + self.scenario.lease_ms, worker.held
        if held is not None and lease.lapsed(worker.lease, now):
            flight = None if held.flight is None else held.flight._replace(lapsed=True)
            held = held._replace(lapsed=True, flight=flight)
        return worker._replace(lease=max(worker.lease, until), row=max(worker.row, until), held=held)

    def _harm(self, state: State, at: int) -> Iterator[Step]:
        worker = state.workers[at]
        if worker.mode == "frozen" and lease.lapsed(worker.row, state.now):  # a shorter freeze is a worker that is slow
            yield f"{worker.name} thaws", state.with_worker(at, worker._replace(mode="up"))
        if worker.mode == "dead" or worker.held is None:
            return
        if worker.mode == "up" and lease.lapsed(worker.lease, state.now):
            yield f"{worker.name} renews its lease", state.with_worker(at, self._renewed(worker, state.now))
        if state.may(f"crash {worker.name}"):
            gone = state.spend(f"crash {worker.name}").with_worker(
                at, worker._replace(mode="dead", held=None, lease=0, row=0)
            )
            yield f"{worker.name} dies", self.outside.silenced(gone, worker.name)
        if worker.mode == "up" and state.may("freeze"):
            yield f"{worker.name} is frozen", state.spend("freeze").with_worker(at, worker._replace(mode="frozen"))

    # ------------------------------------------------------------ a worker

    def _acts(self, state: State, at: int) -> Iterator[Step]:
        held = state.workers[at].held
        if held is None:
            yield from self._claims(state, at)
        elif held.queue:
            yield "commits", self.commit(state, at, held)
        elif held.flight is not None:
            yield from self._fly(state, at, held, held.flight)
            if not held.dropped:
                yield from self._mail(state, at, held)
                if state.rows[held.run].record.state.epoch != held.epoch:
                    yield "sees that it lost the run", self._hold(state, at, held._replace(dropped=True))
        else:
            mail = list(self._mail(state, at, held))
            yield from mail or self._think(state, at, held)

    def _seat(self, state: State, at: int, held: Held) -> Seat:
        worker, run = state.workers[at], state.rows[held.run].record.state.run
        return Seat(worker.name, run, held.epoch, state.now, worker.lease, held.dead, held.dropped)

    def _hold(self, state: State, at: int, held: Held | None) -> State:
        worker = state.workers[at]
        if (
            held is None
        ):  # of a worker that holds nothing the lease does not matter: it is renewed before it takes a run
            until = state.now + self.scenario.lease_ms
            return state.with_worker(at, worker._replace(held=None, lease=until, row=until))
        return state.with_worker(at, worker._replace(held=held))

    def _claims(self, state: State, at: int) -> Iterator[Step]:
        me = state.workers[at].name
        for run, row in enumerate(state.rows):
            due = row.due is not None and row.due <= state.now
            if (row.owner is None and due) or (row.owner not in {None, me} and self._gone(state, row.owner)):
                was = "" if row.owner is None else f" from {row.owner}"
                yield f"claims run {run + 1}{was}", self._claimed(state, at, run, row.owner)

    @staticmethod
    def _gone(state: State, name: str | None) -> bool:
        owner = next((worker for worker in state.workers if worker.name == name), None)
        return owner is None or owner.mode == "dead" or lease.lapsed(owner.row, state.now)

    def _claimed(self, state: State, at: int, run: int, owner_was: str | None) -> State:
        claimed = self.store.claim(state, run, state.workers[at].name, owner_was)
        assert claimed is not None, "it was looked at and taken in one step"
        record = claimed.rows[run].record
        owners = {a.owner for effect in record.state.unsettled() for a in effect.doubt.attempts}
        alive = {worker.name for worker in state.workers if worker.mode != "dead"}
        held = Held(run, record.state.epoch, record, record, frozenset(owners - alive))
        thought = self.actors.take("load", self._seat(claimed, at, held), record)
        return self._hold(claimed, at, held._replace(view=thought.view, base=thought.view, queue=thought.puts))

    def commit(self, state: State, at: int, held: Held) -> State:
        """Write the queue, first in, first out; each refusal concerns its own append."""
        for position, put in enumerate(held.queue):
            before = held.base
            state, refused = self.store.append(state, held.run, held.epoch, at, put)
            if refused is not None and refused[0] == "epoch":
                lost = [saw for one in held.queue[position:] for saw in one.lost]
                for name, body in lost:
                    state = self.store.deliver(state, held.run, name, body)
                return self._hold(state, at, None)
            if refused is not None:
                seat = self._seat(state, at, held._replace(queue=()))
                thought = self.actors.take("think", seat, before, refused)
                return self._took(state, at, held._replace(queue=()), thought)
            for body in put.entries:
                held = held._replace(base=self.records.after(held.base, body))
        return self._durable(state, at, held)

    def _durable(self, state: State, at: int, held: Held) -> State:
        last = held.queue[-1]
        held = held._replace(queue=(), base=held.view)
        if last.release is not None:
            return self._hold(state, at, None)
        started = [entry for entry in map(codec.decode, last.entries) if isinstance(entry, e.EffectStarted)]
        if started:
            effect = held.view.effect
            assert effect is not None
            held = held._replace(flight=Flight(started[0].attempt, effect.key, lapsed=held.lapsed))
        return self._hold(state, at, held)

    def _took(self, state: State, at: int, held: Held, thought: Thought, **changes: Any) -> State:
        """Go on from what a step came to: its appends are queued, its evidence is on its way."""
        for name, body in thought.posts:
            state = self.store.deliver(state, held.run, name, body)
        if held.dropped or thought.tag == "dropped":
            return self._hold(state, at, None)
        queue = (*held.queue, *thought.puts)
        return self._hold(state, at, held._replace(view=thought.view, queue=queue, **changes))

    def _mail(self, state: State, at: int, held: Held) -> Iterator[Step]:
        for id_, body in state.rows[held.run].inbox[:1]:
            if id_ not in held.mailed:
                thought = self.actors.take("mail", self._seat(state, at, held), held.view, id_, body)
                yield "takes a message", self._took(state, at, held, thought, mailed=held.mailed | {id_})

    def _think(self, state: State, at: int, held: Held) -> Iterator[Step]:
        seat = self._seat(state, at, held)
        thought = self.actors.take("think", seat, held.view)
        held = held._replace(lapsed=False)
        if thought.tag == "left":
            self.rules.bytes_leave(state, held, Flight(1, ""), state.workers[at])
        if thought.tag != "ask":
            yield "decides", self._took(state, at, held, thought)
            return
        effect = held.view.effect
        assert effect is not None
        for finding in self.outside.findings(state, effect.key):
            answered = self.actors.take("answer", seat, held.view, finding)
            costs = {"still unknown": "still unknown", "did not happen, from a stale copy": "stale read"}
            asked = state.spend(costs[finding]) if finding in costs else state
            yield f"asks and hears: {finding}", self._took(asked, at, held, answered)

    def _fly(self, state: State, at: int, held: Held, flight: Flight) -> Iterator[Step]:
        seat = self._seat(state, at, held)
        if not flight.sent:
            yield from self._send(state, at, held, flight)
            return
        request = next(r for r in state.requests if (r.run, r.key, r.number) == (held.run, flight.key, flight.number))
        ends = {"landed": "returned", "refused": "rejected"}.get(request.fate)
        if ends is not None:
            thought = self.actors.take("end", seat, held.view, flight.number, request.sent, ends)
            yield f"learns: {ends}", self._ended(state, at, held, request, thought)
        if state.may("lost answer"):
            thought = self.actors.take("end", seat, held.view, flight.number, request.sent, "lost")
            yield "gets no answer", self._ended(state.spend("lost answer"), at, held, request, thought)

    def _ended(self, state: State, at: int, held: Held, request: Request, thought: Thought) -> State:
        quiet = tuple(r._replace(quiet=state.now) if r == request else r for r in state.requests)
        return self._took(state._replace(requests=quiet), at, held, thought, flight=None)

    def _send(self, state: State, at: int, held: Held, flight: Flight) -> Iterator[Step]:
        seat = self._seat(state, at, held)
        thought = self.actors.take("send", seat, held.view, flight.number, "leave", flight.lapsed)
        if thought.tag != "left":
            yield "does not send", self._took(state, at, held, thought, flight=None)
            return
        worker = state.workers[at]
        self.rules.bytes_leave(state, held, flight, worker)
        request = Request(held.run, flight.key, flight.number, worker.name, state.now)
        sent = state._replace(requests=(*state.requests, request))
        yield "sends", self._hold(sent, at, held._replace(flight=flight._replace(sent=True)))
        if state.may("not sent"):
            thought = self.actors.take("send", seat, held.view, flight.number, "unsent", flight.lapsed)
            yield "cannot connect", self._took(state.spend("not sent"), at, held, thought, flight=None)

    # ------------------------------------------------------------ when nothing goes wrong any more

    def fair(self, state: State) -> State | None:
        """Return the next state where nothing goes wrong any more and all do what they can; None at rest."""
        moved = self._somebody_moves(state)
        if moved is not None or all(rests(row, state) for row in state.rows):
            return moved
        if state.switches:
            return woken(state, set(state.switches), state.now)._replace(switches=frozenset())
        moving = any(row.owner is not None or row.due is not None for row in state.rows)
        return self.tick(state) if moving else None

    def _somebody_moves(self, state: State) -> State | None:
        for at, worker in enumerate(state.workers):
            if worker.mode == "frozen":
                return state.with_worker(at, worker._replace(mode="up"))
            if worker.mode == "up" and worker.held is not None:
                return self._goes_on(state, at, worker.held)
        for claims in self._own_steps(state):
            for _, following in claims:
                return following
        if all(worker.mode == "dead" for worker in state.workers):
            until = state.now + self.scenario.lease_ms
            return state._replace(workers=(*state.workers, Worker("C", lease=until, row=until)))
        return None

    def _goes_on(self, state: State, at: int, held: Held) -> State:
        steps = self._own_steps(state)[at]
        if steps:
            # Where an answer may be one or another, the last is the one that shows the most.
            return steps[0][1] if held.flight is not None else steps[-1][1]
        for _, following in self.outside.steps(state):
            if following.left == state.left:
                return following
        restored = tuple(
            (name, n + (name == "lost answer")) for name, n in {"lost answer": 0, **dict(state.left)}.items()
        )
        return state._replace(left=restored)


class Operator:
    """The person, who says only what is true as far as anybody can know."""

    def __init__(self, protocol: Protocol) -> None:
        self._store = protocol.store

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what the operator may do."""
        for run, row in enumerate(state.rows):
            if state.may("kill"):
                killed = self._store.kill(state, run)
                if killed is not None:
                    yield f"the operator kills run {run + 1}", killed.spend("kill")
            if state.may("cancel") and not row.record.state.ended:
                yield self._tell(state, run, "cancel", messages.Cancel(at=state.now, by="op", why=""))
            if state.may("retry") and row.record.state.status == "failed":
                yield self._tell(state, run, "retry", messages.Retry(at=state.now, by="op"))
            if state.may("retry") and row.record.state.status == "blocked":
                yield self._tell(state.spend("retry"), run, "resume", messages.Resume(at=state.now, by="op"))
            yield from self._resolves(state, run, row)
            yield from self._approves(state, run, row)
        if state.may("hold"):
            yield "the operator holds the tool", state.spend("hold")._replace(switches=frozenset({"tool:pay"}))
        if state.may("lift") and state.switches:
            lifted = woken(state.spend("lift"), set(state.switches), state.now)
            yield "the operator lifts the hold", lifted._replace(switches=frozenset())

    def _tell(self, state: State, run: int, verb: str, message: messages.Message) -> Step:
        body = messages.encode(message)
        name = f"{verb}:{len(state.rows[run].known)}"
        return f"the operator says to run {run + 1}: {verb}", self._store.deliver(state.spend(verb), run, name, body)

    def _resolves(self, state: State, run: int, row: Row) -> Iterator[Step]:
        effect = row.record.effect
        if effect is None or not state.may("resolve"):
            return
        if effect.outcome == "unknown" or effect.contradicted or effect.verify_from is not None:
            answer = "happened" if any(a.key == effect.key for a in state.ledger) else "did_not_happen"
            value = msgspec.Raw(b'"receipt"' if answer == "happened" else b"null")
            said = messages.Resolve(at=state.now, by="op", path=effect.path, answer=answer, why="looked", value=value)
            yield self._tell(state._replace(said=state.said | {effect.key}), run, "resolve", said)

    def _approves(self, state: State, run: int, row: Row) -> Iterator[Step]:
        for approval in row.record.state.approvals.values():
            if approval.verdict == "asked":
                for verb, yes in (("approve", True), ("deny", False)):
                    if state.may(verb):
                        said = messages.Answer(at=state.now, by="op", approval=approval.id, approved=yes)
                        yield self._tell(state, run, verb, said)
