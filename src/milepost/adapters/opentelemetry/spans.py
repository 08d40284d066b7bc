"""From a run's entries to the spans of its trace: pure, the same in every process.

  run            from its creation to its end; all else hangs below it.
  segment        one stay in a segment by one process: from the claim, or the boundary before, to the boundary, the park
                 or the process's end. A stay that goes on with an earlier one is linked to it.
  step           one attempt of an effect, or of a read that costs: from `started` to its outcome. A second attempt is
                 linked to the first. An attempt whose outcome is unknown ends there, and says so; it is no error.
  reconcile      from that moment, or from the last look, to what the reconciler found; linked to the attempt.
  approval, sleep, signal, child      from the asking to the answer.

A process may live for months, and so may a run. What is kept of one is bounded: a link only as long as another attempt
may follow, what a segment left open ends with it, and of events of one span, and of what is open, the oldest give way
beyond a bound; how many did is told on the run's own span (`milepost.dropped`).

Free reads are recorded when they answer and not when they begin, so their spans have no length. Everything else that is
written of a run, a kill, a grant, a rewind, is an event of the run's own span, or of the segment's.

The attributes `gen_ai.*` are those of the OpenTelemetry semantic conventions for generative AI as of the version that
`CONVENTIONS` names. They are marked *in development* there, so they are kept here and not taken from a library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from milepost.core import entries as e
from milepost.core.state import RunState
from milepost.core.steps import Effect
from milepost.core.tracing import attempt_span, span_of

CONVENTIONS = "0.66"
EVENTS_MOST = 128  # of one span: as many as OpenTelemetry's own spans have
OPEN_MOST = 10_000
LINKS_MOST = 10_000
ENDED = {"failed": "error", "killed": "error"}
Value = str | int | float | bool


@dataclass(slots=True)
class Span:
    """A part of a trace; moments are milliseconds since 1970 UTC, ids hexadecimal digits.

    `problem` is why it is an error, empty where it is none. `links` are ids of earlier spans of the same trace.
    """

    id: str
    parent: str
    name: str
    began: int
    ended: int = 0
    client: bool = False
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[tuple[int, str, dict[str, Value]]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    problem: str = ""


class Spans:
    """Folds one run's entries, in order, into spans. `models` says which tools ask a model, and which one."""

    def __init__(self, run_id: str, about: e.About, models: Mapping[str, str]) -> None:
        self._state = RunState(run_id)
        self._models = models
        named = {
            "milepost.run": run_id, "milepost.workflow": about.workflow, "milepost.version": about.version,
            "milepost.key": about.key, "milepost.tenant": about.authority.tenant, "milepost.parent": about.parent,
            "milepost.forked_from": about.forked_from,
        }  # fmt: skip
        root = span_of(run_id, "run")
        self.run = Span(root, "", f"run {about.workflow or 'attached'}", about.created_at)
        self.run.attributes = {name: value for name, value in named.items() if value}
        self._stay: Span | None = None
        self._open: dict[tuple[str, ...], Span] = {}
        self._last: dict[tuple[str, ...], str] = {}  # of what came before: the span that the next one is linked to
        self.dropped = 0

    def take(self, entry: e.Entry) -> list[Span]:
        """Take the next entry; return the spans that it ends."""
        ended = list(self._about(entry))
        self._state.apply(entry)
        ended.extend(self._after(entry))
        self._bound()
        return ended

    @property
    def kept(self) -> int:
        """How much is kept of the run: spans that are open, their events, and what later ones are linked to."""
        return len(self._open) + len(self._last) + len(self.run.events) + len(self._stay.events if self._stay else ())

    @property
    def owner(self) -> str:
        """The worker that holds the run, or held it last."""
        return self._state.owner

    # ---------------------------------------------------------------- what begins and ends

    def _about(self, entry: e.Entry) -> Iterator[Span]:
        """What an entry means, seen from the state before it."""
        match entry:
            case e.Claimed():
                yield from self._leave(entry.at, interrupted=True)
                self._enter(entry.at, entry.epoch, entry.owner)
            case e.EffectConfirmed() | e.EffectFailed() | e.EffectUnknown() | e.AttemptSettled():
                yield from self._settled(entry)
            case e.FindingRecorded():
                yield self._looked(entry)
            case e.ReadReturned() | e.ReadFailed() | e.ReadCancelled():
                yield self._read(entry)
            case e.ApprovalAnswered():
                yield from self._close(
                    ("approval", entry.id), entry.at, approved=entry.approved, by=entry.by, why=entry.why
                )
            case e.SleepEnded():
                yield from self._close(("sleep", entry.step), entry.at)
            case e.SignalReceived():
                yield from self._close(("signal", entry.step), entry.at, timed_out=entry.id is None)
            case e.ChildEnded():
                yield from self._close(("child", entry.child), entry.at, status=entry.status, why=entry.why)
            case e.RunParked():
                if self._stay is not None:
                    self._stay.attributes["milepost.waits_for"] = entry.reason
                yield from self._leave(entry.at)
            case e.Checkpointed() | e.Rewound():
                yield from self._leave(entry.at)
                yield from self._interrupt(entry.at, "child")
                self._last.clear()
            case e.RunStopped():
                yield from self._stopped(entry)
            case e.RunDone():
                yield from self._leave(entry.at)
                yield self._end("done", entry.at)
            case _:
                pass

    def _after(self, entry: e.Entry) -> Iterator[Span]:
        """What an entry means, seen from the state behind it."""
        match entry:
            case e.EffectStarted():
                self._attempt(entry)
            case e.ApprovalAsked():
                self._begin(("approval", entry.id), f"approval {entry.tool}", entry.at, **{"milepost.rule": entry.rule})
            case e.SleepStarted():
                self._begin(("sleep", entry.step), "sleep", entry.at)
            case e.SignalAwaited():
                self._begin(("signal", entry.step), f"receive {entry.name}", entry.at)
            case e.ChildStarted():
                self._begin(
                    ("child", entry.child), f"child {entry.workflow}", entry.at, **{"milepost.child": entry.child}
                )
            case e.Checkpointed() | e.Rewound() if not self._state.ended:
                self._enter(entry.at, self._state.epoch, "")
            case e.Claimed() | e.RunCreated() | e.EffectPlanned():
                pass
            case _:
                self._note(entry)
        return iter(())

    def _note(self, entry: e.Entry) -> None:
        """Keep what is no span of its own as an event."""
        tag = str(type(entry).__struct_config__.tag).partition(".")[0]
        if tag in _SPANS:
            return
        said = {
            f"milepost.{name}": value for name in ("by", "why", "code", "tool") if (value := getattr(entry, name, ""))
        }
        events = (self._stay or self.run).events
        events.append((entry.at, tag, said))
        if len(events) > EVENTS_MOST:
            del events[0]
            self.dropped += 1

    # ---------------------------------------------------------------- stays in segments

    def _enter(self, at: int, epoch: int, owner: str) -> None:
        visit, name = self._state.visit, self._state.segment or "attached"
        key = ("stay", str(visit), str(self._state.generation))
        self._stay = stay = Span(span_of(self._state.run, *key, epoch), self.run.id, f"segment {name}", at)
        stay.attributes = {"milepost.segment": name, "milepost.visit": visit, "milepost.epoch": epoch}
        if owner:
            stay.attributes["milepost.worker"] = owner
        self._link(key, stay)

    def _leave(self, at: int, *, interrupted: bool = False) -> Iterator[Span]:
        stay, self._stay = self._stay, None
        if stay is not None:
            stay.ended = at
            if interrupted:
                stay.attributes["milepost.interrupted"] = True
            yield stay

    # ---------------------------------------------------------------- steps

    def _attempt(self, entry: e.EffectStarted) -> None:
        state = self._state
        effect = state.steps[entry.step]
        assert type(effect) is Effect
        key = ("step", str(state.visit), entry.step)
        span = self._begin((*key, str(entry.attempt)), f"execute_tool {effect.tool}", entry.at)
        span.id, span.client = attempt_span(state.run, state.visit, entry.step, entry.attempt), True
        span.attributes |= {
            "milepost.step": effect.path, "milepost.effect": effect.effect, "milepost.attempt": entry.attempt,
            "milepost.idempotency_key": effect.key, **self._asked(effect.tool, entry.step),
        }  # fmt: skip
        if effect.tool in self._models:
            span.name = f"chat {self._models[effect.tool]}"
        self._link(key, span)

    def _asked(self, tool: str, step: str) -> dict[str, Value]:
        if tool in self._models:
            return {"gen_ai.operation.name": "chat", "gen_ai.request.model": self._models[tool]}
        return {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": step.removeprefix("@"),
        }  # fmt: skip

    def _settled(
        self, entry: e.EffectConfirmed | e.EffectFailed | e.EffectUnknown | e.AttemptSettled
    ) -> Iterator[Span]:
        visit = str(self._state.visit)
        outcome = {e.EffectConfirmed: "confirmed", e.EffectUnknown: "unknown"}.get(type(entry), "failed")
        span = self._open.pop(("step", visit, entry.step, str(entry.attempt)), None)
        if span is None:  # settled after it had been unknown: its own span has ended
            self._open.pop(("reconcile", visit, entry.step), None)  # what was found has been told
            self._note(entry)
            return
        span.ended = entry.at
        span.attributes["milepost.outcome"] = outcome
        if type(entry) is e.EffectConfirmed or (type(entry) is e.EffectFailed and entry.final):
            self._last.pop(("step", visit, entry.step), None)  # no other attempt follows
        if type(entry) is e.EffectUnknown:
            looking = self._begin(
                ("reconcile", visit, entry.step), f"reconcile {span.name.partition(' ')[2]}", entry.at
            )
            looking.links.append(span.id)
        if outcome == "failed":
            span.problem = entry.why or "failed"
        elif entry.why:
            span.attributes["milepost.why"] = entry.why
        for unit, amount in (getattr(entry, "spent", None) or {}).items():
            span.attributes[_UNITS.get(unit, f"milepost.spent.{unit}")] = float(amount)
        if type(entry) is e.EffectConfirmed and "gen_ai.request.model" in span.attributes:
            span.attributes |= _counted(entry.result)
        yield span

    def _looked(self, entry: e.FindingRecorded) -> Span:
        key = ("reconcile", str(self._state.visit), entry.step)
        span = self._open.pop(key, None) or self._begin(key, "reconcile", entry.at)
        self._open.pop(key, None)
        span.ended = entry.at
        span.attributes |= {"milepost.finding": entry.answer, "milepost.by": entry.by}
        if entry.answer in {"still_unknown", "did_not_happen"}:  # somebody may look once more
            again = self._begin(key, span.name, entry.at)
            again.links.append(span.id)
            again.id = span_of(self._state.run, *key, entry.at)
        return span

    def _read(self, entry: e.ReadReturned | e.ReadFailed | e.ReadCancelled) -> Span:
        number = str(getattr(entry, "attempt", ""))
        key = ("read", str(self._state.visit), entry.step, number, type(entry).__name__)
        span = self._begin(key, f"execute_tool {entry.tool}", entry.at)
        del self._open[key]
        span.ended = entry.at
        span.attributes |= {
            "milepost.step": entry.path,
            "milepost.effect": "read",
            **self._asked(entry.tool, entry.step),
        }
        span.problem = entry.why if type(entry) is e.ReadFailed else ""
        return span

    # ---------------------------------------------------------------- all of them

    def _begin(self, key: tuple[str, ...], name: str, at: int, **attributes: Value) -> Span:
        above = (self._stay or self.run).id
        span = Span(span_of(self._state.run, *key), above, name, at)
        span.attributes = {name: value for name, value in attributes.items() if value != ""}
        self._open[key] = span
        return span

    def _link(self, key: tuple[str, ...], span: Span) -> None:
        """Link a span to the one before it, and let the next one be linked to this."""
        earlier = self._last.pop(key, None)
        if earlier is not None:
            span.links.append(earlier)
        self._last[key] = span.id

    def _bound(self) -> None:
        """Let the oldest give way."""
        for kept, most in ((self._open, OPEN_MOST), (self._last, LINKS_MOST)):
            while len(kept) > most:
                del kept[next(iter(kept))]
                self.dropped += 1

    def _close(self, key: tuple[str, ...], at: int, **attributes: Value) -> Iterator[Span]:
        span = self._open.pop(key, None)
        if span is not None:
            span.ended = at
            span.attributes |= {f"milepost.{name}": value for name, value in attributes.items() if value != ""}
            yield span

    def _stopped(self, entry: e.RunStopped) -> Iterator[Span]:
        yield from self._leave(entry.at)
        if entry.status == "blocked":
            self.run.events.append((entry.at, "blocked", {"milepost.code": entry.code, "milepost.why": entry.why}))
            return
        if entry.status in ENDED:
            self.run.problem = f"{entry.code}: {entry.why}" if entry.why else entry.code
        yield from self._interrupt(entry.at)
        yield self._end(entry.status, entry.at)

    def _interrupt(self, at: int, but: str = "") -> Iterator[Span]:
        """End what is open: nobody answers it any more, or what came of it is not told here."""
        for key in [key for key in self._open if key[0] != but]:
            span = self._open.pop(key)
            span.ended = at
            span.attributes["milepost.interrupted"] = True
            yield span

    def _end(self, status: str, at: int) -> Span:
        self.run.ended = at
        self.run.attributes["milepost.status"] = status
        if self.dropped:
            self.run.attributes["milepost.dropped"] = self.dropped
        self._last.clear()
        return self.run


class _Usage(msgspec.Struct):
    input: int = 0
    output: int = 0


class _Reply(msgspec.Struct):
    model: str = ""
    usage: _Usage | None = None


def _counted(result: msgspec.Raw) -> dict[str, Value]:
    """Return what a model's recorded answer says of itself, in the form of `milepost.agents`; {} in any other form."""
    try:
        reply = msgspec.json.decode(result, type=_Reply)
    except msgspec.MsgspecError:
        return {}
    said: dict[str, Value] = {"gen_ai.response.model": reply.model} if reply.model else {}
    if reply.usage is not None:
        said["gen_ai.usage.input_tokens"] = reply.usage.input
        said["gen_ai.usage.output_tokens"] = reply.usage.output
    return said


_UNITS = {"input_tokens": "gen_ai.usage.input_tokens", "output_tokens": "gen_ai.usage.output_tokens"}
_SPANS = {
    "approval_answered", "sleep_ended", "signal_received", "child_ended", "run_parked", "run_done", "run_stopped",
    "read_returned", "read_failed", "read_cancelled", "finding_recorded", "value_recorded", "child_awaited",
    "effect_confirmed", "effect_failed", "effect_unknown",
}  # fmt: skip
