"""Whether what people are said to have said was said by them: every signature in the record, looked at again.

A worker checks an answer when it arrives, and an approval once more when it is used. Here the whole of a run is read:
each answer, each grant, each resolution must carry the signature of an operator who may give it, over just what the
record made of it, and counts once; and no boundary may hold money or scopes that no entry gave. So what a worker, or
whoever can write to the file, has added by itself shows. What a policy denies is nobody's word.

A key that was revoked, or that expired, has signed all the same: that is counted, and is no doubt. Who asks whether a
revoked key was misused looks at what it signed.

Of a run that came from another store, what was signed there names that store. Where it came through several, the ones
in between are not known here: what was signed there is counted and not looked at. The run's own chain says where it
was begun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from milepost.core import answers, codec, words
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.approval import BAD_SIGNATURE, REPLAYED, UNSIGNED
from milepost.core.chain import genesis
from milepost.core.chunks import digest_of
from milepost.core.state import IMPORTED, RunState
from milepost.core.statement import POWER, domain_of
from milepost.core.steps import Effect
from milepost.core.store_entries import RunImported
from milepost.core.word_entries import WordSigned
from milepost.errors import Damaged
from milepost.operations import keys, switches

if TYPE_CHECKING:
    from milepost.operations.keys import Trust
    from milepost.stores.api import Store

NOT_GIVEN = "not_given"
NOT_BROUGHT = "not_brought"
OF_POLICY = "policy "
_about = msgspec.json.Decoder(e.About)


@dataclass(frozen=True, slots=True)
class Doubt:
    """An entry that says what nobody is known to have said. `code` is a stable word (core/approval.py)."""

    run_id: str
    seq: int
    code: str
    why: str


@dataclass(slots=True)
class Vouched:
    """What was looked at: how many signatures hold, how many of them by keys that count no more, and the doubts."""

    held: int = 0
    lapsed: int = 0
    elsewhere: int = 0
    doubts: list[Doubt] = field(default_factory=list)

    def add(self, other: Vouched) -> None:
        """Count what was found in another run, too."""
        self.held += other.held
        self.lapsed += other.lapsed
        self.elsewhere += other.elsewhere
        self.doubts += other.doubts


async def vouch(
    store: Store, run_id: str, trust: Trust, now: int, *, brought: tuple[int, str] | None = None
) -> Vouched:
    """Look at every signature in a run, whose chain was verified. `now` is in milliseconds since 1970.

    `brought` is the number of the last entry that the run came in with, and the store that it was begun in. Raises
    Damaged, KeyMissing where what is encrypted cannot be read.
    """
    first, stored, _ = await store.chain(run_id)
    found, state, reading = Vouched(), RunState(run_id), _Reading(store, run_id, trust, now)
    if brought is not None and first != genesis(brought[1], run_id):
        at = _Place(brought[0], store.id)
        reading.doubt(found, at, NOT_BROUGHT, "it is said to have come from another store, where it was not begun")
        brought = None
    word: WordSigned | None = None
    taken: set[str] = set()
    denied: tuple[str, str] | None = None
    hops = 0
    for one in stored:
        entry = codec.decode(one.plain)
        at = _Place(one.seq, store.id if brought is None or one.seq > brought[0] else brought[1])
        if isinstance(entry, e.BOUNDARIES) and one.seq > 1:
            await _bounded(found, reading, state, entry.boundary, at)
        before = state.steps.get(getattr(entry, "step", ""))
        fresh = type(before) is Effect and before.outcome == "not_started"
        against = _against(state, entry)
        state.apply(entry)
        if isinstance(entry, e.RunStopped) and entry.code == IMPORTED:
            hops += 1
        kind = words.needs_word(entry)
        if (kind or _answered(entry)) and hops and at.store != store.id:
            found.elsewhere += 1
        elif isinstance(entry, e.ApprovalAnswered) and _answered(entry):
            _approved(found, reading, state, entry, at, against)
        elif isinstance(entry, e.EffectFailed) and _denied(entry) and not (fresh and denied == (entry.by, entry.step)):
            reading.doubt(found, at, UNSIGNED, f"it is denied by {entry.by!r}, and nobody answered so")
        elif kind and isinstance(entry, words.Worded):
            of_kind = word if word is not None and word.kind == kind else None
            if of_kind is not None and of_kind.id in taken:
                reading.doubt(found, at, REPLAYED, f"this word of {of_kind.by!r} was taken before")
            else:
                await _worded(found, reading, of_kind, entry, at, before if type(before) is Effect else None)
        if word is not None:
            taken.add(word.id)
        word, denied = entry if isinstance(entry, WordSigned) else None, _no(state, entry)
    return found


def _answered(entry: e.Entry) -> bool:
    """Say whether a person is said to have answered: a rule that denies what was asked answers in its own name."""
    return isinstance(entry, e.ApprovalAnswered) and (entry.approved or not entry.by.startswith(OF_POLICY))


def _against(state: RunState, entry: e.Entry) -> tuple[str, str] | None:
    """Return why an answer could not count, by the rules that it is judged by when it comes."""
    if not isinstance(entry, e.ApprovalAnswered):
        return None
    said = m.Answer(at=entry.said_at or entry.at, by=entry.by, approval=entry.id, approved=entry.approved)
    return answers.refusal(state, said, entry.at)


def _approved(
    found: Vouched, reading: _Reading, state: RunState, entry: e.ApprovalAnswered, at: _Place,
    against: tuple[str, str] | None,
) -> None:  # fmt: skip
    if against is not None:
        reading.doubt(found, at, *against)
        return
    said = state.approvals[entry.id].statement(
        at.store, reading.run_id, approved=entry.approved, by=entry.by, why=entry.why, at=entry.said_at or entry.at
    )
    reading.signature(found, at, entry.by, said, entry.signature)


def _no(state: RunState, entry: e.Entry) -> tuple[str, str] | None:
    """Return who denies in an answer, as entries name a person, and what."""
    if not isinstance(entry, e.ApprovalAnswered) or entry.approved:
        return None
    return words.OF_PERSON + entry.by, state.approvals[entry.id].step


def _denied(entry: e.EffectFailed) -> bool:
    return entry.reason == "denied" and entry.by.startswith(words.OF_PERSON)


@dataclass(frozen=True, slots=True)
class _Place:
    seq: int
    store: str


@dataclass(slots=True)
class _Reading:
    store: Store
    run_id: str
    trust: Trust
    now: int

    def doubt(self, found: Vouched, at: _Place, code: str, why: str) -> None:
        """Note that an entry says what nobody is known to have said."""
        found.doubts.append(Doubt(self.run_id, at.seq, code, why))

    def signature(self, found: Vouched, at: _Place, name: str, said: bytes, signature: str) -> None:
        """Look at one signature."""
        operator = self.trust.operators.get(name)
        if not signature:
            self.doubt(found, at, UNSIGNED, f"it is said by {name!r}, and nobody signed it")
        elif operator is None:
            self.doubt(found, at, "unknown_signer", f"the trust file names no operator {name!r}")
        elif not keys.signed_by(operator.public, said, signature):
            self.doubt(found, at, BAD_SIGNATURE, f"the signature of {name!r} is not over what it says")
        elif POWER[domain_of(said)] not in operator.may:
            self.doubt(found, at, "not_permitted", f"{name!r} signed it, and may {', '.join(sorted(operator.may))}")
        else:
            found.held += 1
            expired = operator.expires is not None and operator.expires <= self.now
            found.lapsed += operator.revoked is not None or expired

    async def chunk(self, digest: str) -> bytes:
        """Return a chunk of the run, verified. Raises Damaged."""
        data = await self.store.chunk(self.run_id, digest)
        if digest_of(data) != digest:
            raise Damaged(self.run_id, f"chunk {digest[:12]} does not match its digest")
        return data


async def _worded(
    found: Vouched, reading: _Reading, word: WordSigned | None, entry: words.Worded, at: _Place, effect: Effect | None
) -> None:
    if word is None:
        reading.doubt(found, at, UNSIGNED, f"it is said by {entry.by!r}, and nobody signed it")
        return
    value = b""
    if isinstance(entry, e.EffectConfirmed):
        value = bytes(entry.result)
        if value.startswith(b'{"$ref":"'):
            value = await reading.chunk(msgspec.json.decode(value)["$ref"])
    try:
        differs = words.disagreement(word, entry, at.store, reading.run_id, effect=effect, value=value)
    except msgspec.DecodeError as error:
        differs = str(error)
    if differs:
        reading.doubt(found, at, BAD_SIGNATURE, f"what {word.by!r} signed is another: {differs}")
        return
    reading.signature(found, at, word.by, bytes(word.said), word.signature)


async def _bounded(found: Vouched, reading: _Reading, state: RunState, boundary: e.Boundary, at: _Place) -> None:
    """Compare a boundary with what the entries before it gave."""
    if boundary.granted != state.ledger.granted:
        reading.doubt(found, at, NOT_GIVEN, "it holds another budget than the entries before it gave")
    if boundary.spent != state.ledger.spent:
        reading.doubt(found, at, NOT_GIVEN, "it has spent another sum than the entries before it say")
    if boundary.words != state.words:
        reading.doubt(found, at, NOT_GIVEN, "it remembers other words than were said")
    if boundary.about != state.about_digest:
        was = _about.decode(await reading.chunk(state.about_digest)).authority
        is_ = _about.decode(await reading.chunk(boundary.about)).authority
        if is_ != state.held(was):
            reading.doubt(found, at, NOT_GIVEN, "it holds another authority than the entries before it gave")


async def brought_in(store: Store) -> dict[str, tuple[int, str]]:
    """Return, of each run that came from another store, the last entry it came with and the store it was begun in."""
    told = await switches.history_of(store)
    return {one.run: (one.seq, one.origin) for one in told if isinstance(one, RunImported)}
