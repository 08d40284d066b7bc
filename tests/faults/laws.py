"""The eight invariants of the outcome protocol, read off journals as they grow, one entry at a time.

A reading of its own: neither the runtime's fold nor the checker's. What a journal alone cannot tell (what left, how an
attempt ended) it takes from the town's own notes. Each broken law is one line in `broken`.

  1  no byte leaves before `started` is durable under the current epoch
  2  what a new owner finds started is unknown before it is anything else
  3  failed needs evidence: its reason is one that the town bears out
  4  arguments, key and version of an effect never change
  5  what was cancelled, timed out, lost or raised is never failed
  6  only the current epoch writes
  7  what chose the arguments is recorded before the effect is planned
  8  no retry consumes unknown: only resends of what may be sent again
"""

import re
from dataclasses import dataclass, field

import msgspec

from milepost.core import codec
from milepost.core import entries as e
from tests.faults.town import KEY_TTL_MS, Town

SENDS_AGAIN = frozenset({"read", "keyed", "absolute"})
IN_THREADS = frozenset({"stamp"})  # its bytes leave some time after the last look at the lease, as a freeze may cause
ANSWER = re.compile(r", (answer \d+), ")
BEFORE_ANY_ATTEMPT = frozenset({"denied", "deadline", "conflict"})


@dataclass
class Followed:
    """One effect as the journal has told it so far."""

    plan: e.EffectPlanned
    outcome: str = "not_started"
    final: bool = False
    left_started: bool = False  # its owner lost the run while it was started
    attempts: dict[int, e.EffectStarted] = field(default_factory=dict)


@dataclass
class RunLaws:
    """The laws over the journal of one run."""

    name: str
    town: Town
    epoch: int = 0
    killed: bool = False
    effects: dict[str, Followed] = field(default_factory=dict)
    by_key: dict[str, Followed] = field(default_factory=dict)
    answers: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def breaks(self, law: int, what: str) -> None:
        self.broken.append(f"law {law}, {self.name}: {what}")

    def read(self, body: bytes) -> None:  # noqa: C901  one case an entry
        entry = codec.decode(body)
        match entry:
            case e.Claimed(epoch=epoch):
                self._rise(epoch)
            case e.RunStopped(status="killed", epoch=epoch):
                self.killed = True
                self._rise(epoch)
                for effect in self.effects.values():
                    effect.outcome = "unknown" if effect.outcome == "started" else effect.outcome
                    effect.left_started = False
            case e.EffectPlanned():
                self._plan(entry)
            case e.EffectStarted():
                self._start(entry)
            case e.EffectUnknown(step=step):
                self._unknown(step)
            case e.AttemptSettled(step=step) if self.effects[step].outcome == "started":
                self._unknown(step)  # an earlier attempt may still have happened
            case e.EffectConfirmed():
                self._confirm(entry)
            case e.EffectFailed():
                self._fail(entry)
            case e.Checkpointed() | e.RewindAsked() | e.Rewound() | e.RunDone():
                self._leave()
            case e.SegmentFailed() | e.Retried():
                self.effects = {step: one for step, one in self.effects.items() if one.outcome != "failed"}
            case _:
                pass

    def _rise(self, epoch: int) -> None:
        if epoch <= self.epoch:
            self.breaks(6, f"epoch {epoch} after {self.epoch}")
        self.epoch = epoch
        for effect in self.effects.values():
            effect.left_started = effect.outcome == "started"

    def _plan(self, plan: e.EffectPlanned) -> Followed:
        known = self.effects.get(plan.step)
        if known is not None:
            self.breaks(4, f"{plan.path} was planned twice in one place")
        if plan.key in self.by_key:
            self.breaks(4, f"{plan.path} has the key of another effect")
        text = bytes(plan.args).decode()
        chosen_by = ANSWER.search(text)
        if chosen_by is not None and chosen_by[1] not in self.answers:
            self.breaks(7, f"{plan.path} was planned with {text}, before the answer it came from was recorded")
        followed = self.effects[plan.step] = self.by_key[plan.key] = Followed(plan)
        return followed

    def _start(self, entry: e.EffectStarted) -> None:
        effect = self._plan(entry.plan) if entry.plan is not None else self.effects[entry.step]
        path, kind = effect.plan.path, effect.plan.effect
        if entry.epoch != self.epoch:
            self.breaks(6, f"{path} began under epoch {entry.epoch}, the run's is {self.epoch}")
        if entry.attempt in effect.attempts or effect.final:
            self.breaks(8, f"attempt {entry.attempt} of {path} began, it was {effect.outcome} for good or begun before")
        if effect.outcome == "started" or (effect.outcome == "unknown") != entry.resend:
            self.breaks(8, f"attempt {entry.attempt} of {path} began while it was {effect.outcome}")
        if effect.outcome == "unknown" and kind not in SENDS_AGAIN:
            self.breaks(8, f"{path} is {kind} and unknown, and was sent again")
        if effect.outcome == "unknown" and kind == "keyed" and entry.at >= effect.attempts[1].at + KEY_TTL_MS:
            self.breaks(8, f"{path} was sent again after its key had expired")
        effect.outcome = "unknown" if entry.resend else "started"
        effect.attempts[entry.attempt] = entry

    def _unknown(self, step: str) -> None:
        effect = self.effects[step]
        effect.outcome, effect.left_started = "unknown", False

    def _confirm(self, entry: e.EffectConfirmed) -> None:
        effect = self._settled(entry.step, "confirmed")
        effect.final = True
        if effect.plan.tool == "ask":
            self.answers.add(msgspec.json.decode(entry.result, type=str))

    def _fail(self, entry: e.EffectFailed) -> None:
        effect = self._settled(entry.step, "failed")
        effect.final = entry.final
        path, kind = effect.plan.path, effect.plan.effect
        if kind == "transactional" or entry.by.startswith("person"):
            return  # rolled back with its `started`; or somebody looked, and the checker compares
        ended = self.town.endings.get((effect.plan.key, entry.attempt))
        match entry.reason:
            case "not_sent" | "rejected" if entry.by in {"answer", "evidence"}:
                if ended not in {entry.reason, None}:  # None: its code never began, or the page refused it at once
                    self.breaks(5, f"{path} failed as {entry.reason}, its attempt {entry.attempt} was {ended}")
            case "raised" if kind == "read":
                pass
            case "absent":
                if kind not in {"keyed", "absolute", "queryable", "read"}:
                    self.breaks(3, f"{path} is {kind}, and was held to be proven absent")
            case reason if reason in BEFORE_ANY_ATTEMPT and not effect.attempts:
                pass
            case reason:
                self.breaks(3, f"{path} failed, the evidence is {reason}")

    def _settled(self, step: str, outcome: str) -> Followed:
        effect = self.effects[step]
        if effect.left_started:
            self.breaks(2, f"{effect.plan.path} was started when its owner lost the run, and became {outcome}")
        if effect.final:
            self.breaks(4, f"{effect.plan.path} was {effect.outcome} for good, and became {outcome}")
        effect.outcome = outcome
        return effect

    def _leave(self) -> None:
        for effect in self.effects.values():
            if effect.outcome in {"started", "unknown"}:
                self.breaks(3, f"the segment was completed while {effect.plan.path} was {effect.outcome}")
        self.effects = {}

    def leaves(self, tool: str, key: str, attempt: int) -> bool:
        """Say whether this is an effect of this run; law 1 is looked at if it is."""
        effect = self.by_key.get(key)
        if effect is None or effect.plan.tool != tool:
            return False
        started = effect.attempts.get(attempt)
        if started is None:
            self.breaks(1, f"attempt {attempt} of {effect.plan.path} was sent, and is not recorded as started")
        elif started.epoch != self.epoch and not self.killed and tool not in IN_THREADS:
            why = f"under epoch {started.epoch}, the run's is {self.epoch}"
            self.breaks(1, f"attempt {attempt} of {effect.plan.path} was sent {why}")
        return True


class Laws:
    """The laws over every journal of a store."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.runs: dict[int, RunLaws] = {}
        self.broken: list[str] = []
        self.row = 0

    def read(self, rows: list[tuple[int, int, bytes]]) -> None:
        """Take what was written since the last time, as (row, run, body)."""
        for row, run, body in rows:
            self.row = row
            if run:  # 0 is the store's own journal
                self._of(run).read(body)

    def _of(self, run: int) -> RunLaws:
        if run not in self.runs:
            self.runs[run] = RunLaws(f"run {run}", self.town, broken=self.broken)
        return self.runs[run]

    def leaves(self, tool: str, key: str, attempt: int) -> None:
        """Look at law 1 for an attempt whose bytes are about to leave. Read what was written before."""
        knowing = [laws for laws in self.runs.values() if laws.leaves(tool, key, attempt)]
        if not knowing:
            self.broken.append(f"law 1: attempt {attempt} of {tool} was sent, and no journal knows it")
