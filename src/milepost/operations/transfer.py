"""Giving runs away and taking them in: a signed bundle, in plain lines of JSON.

  header     which store, when, by whom
  run        one for each run: its row, where its chain ends, the store that it was begun in
  entry      the exact bytes of one journal entry, in base64, in their order
  chunk      the exact bytes of one chunk, under its name
  once, approval, effect
             what the run claimed, was asked about, and has not settled
  end        the sha256 of all lines before, and the signature

Nothing of a bundle is believed before its signature is an operator's who may `export`, and every run's chain
verifies from the genesis of the store that it was begun in. What stands beside the entries is believed as far as
the signature is.

Nothing resurrects. A run that had not ended, or that failed and may be tried again, comes in blocked, `imported`: an
entry behind its history says so, voids approvals, and closes its budget, because where it came from it may have gone
on, and used them. What it claimed stays claimed, and what its contradictions held is held here too. What was in
flight is unknown. Messages that wait in an inbox are not part of a run's record yet, and stay behind. The same bundle
twice is nothing new; another chain under the same id is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.chain import genesis, link
from milepost.core.chunks import digest_of
from milepost.core.code_entries import Resumed
from milepost.core.state import IMPORTED, RunState
from milepost.core.statement import EXPORT, statement
from milepost.core.store_entries import RunImported
from milepost.errors import Damaged, MilepostError
from milepost.operations import keys
from milepost.operations.sealing import replace_file
from milepost.stores.api import Switch
from milepost.stores.encryption import KeyMissing
from milepost.stores.keeping import RunCopy, TakeIn, TakenIn

if TYPE_CHECKING:
    from milepost.operations.keys import Signer, Trust
    from milepost.stores.api import Store

FORMAT = "milepost.bundle.1"
PRIVATE_MODE = 0o600
OVER = frozenset({"done", "cancelled", "killed"})  # one that failed is not: `retry` lets it go on
CONFLICT = "conflict:"  # how the reason begins for which a person is asked where an effect was found twice
CONTRADICTED = "contradicted"  # the code of the block that evidence against the record makes
Write = Callable[[Any], Awaitable[Any]]
_encode = msgspec.json.Encoder(order="deterministic").encode


class BundleRefused(MilepostError):
    """A file is no bundle that can be believed. Nothing of it was taken in."""

    code = "bundle_refused"

    def __init__(self, place: Path, why: str) -> None:
        super().__init__(
            f"{place} is refused: {why}. Nothing of it was taken in. Fetch it again from where it was made."
        )
        self.path = str(place)
        self.why = why


class Line(msgspec.Struct, frozen=True, tag_field="line", tag=str.lower, omit_defaults=True):
    """One line of a bundle."""


class Header(Line, frozen=True):
    """What the bundle is, and where it comes from. `at` is in milliseconds since 1970."""

    format: str
    store: str
    at: int
    by: str


class Run(Line, frozen=True):
    """One run: its row, and where its chain ends (`hash` in hex, `boundary` the number of an entry)."""

    id: str
    origin: str
    seq: int
    hash: str
    epoch: int
    segment: str | None
    boundary: int
    row: dict[str, str | int | None]


class Entry(Line, frozen=True):
    """The exact bytes of the next entry of the run above."""

    body: bytes


class Chunk(Line, frozen=True):
    """The exact bytes of a chunk of the run above."""

    digest: str
    body: bytes


class Once(Line, frozen=True):
    """A business identity that the run above claimed."""

    tenant: str
    tool: str
    value: str
    step: str
    digest: str
    outcome: str
    result: bytes | None = None


class Approval(Line, frozen=True):
    """What somebody was asked about the run above."""

    id: str
    step: str
    path: str
    tool: str
    args: bytes
    asked_at: int
    verdict: str
    by: str | None = None


class Effect(Line, frozen=True):
    """An effect of the run above that was not settled."""

    step: str
    path: str
    tool: str
    effect: str
    outcome: str
    attempt: int
    started_at: int | None = None
    why: str | None = None
    person: str | None = None


class End(Line, frozen=True):
    """The signature, over what stands above."""

    facts: dict[str, Any]
    public: str
    signature: str


_decoder = msgspec.json.Decoder(Header | Run | Entry | Chunk | Once | Approval | Effect | End)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose signature was verified: its runs, its name (the sha256 of its lines) and who signed it."""

    runs: list[RunCopy]
    name: str
    signer: str
    store: str
    at: int


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: runs with their number of entries, and how many messages stay behind."""

    runs: list[tuple[str, int]]
    waiting: Mapping[str, int] = field(default_factory=dict)


# ---------------------------------------------------------------- giving away


async def export(store: Store, run_ids: Iterable[str], signer: Signer, place: Path, now: int) -> Exported:
    """Write runs into a bundle that only its owner may read. `now` is in milliseconds since 1970.

    Raises UnknownRun, Damaged for a run that does not verify, and OSError where the file cannot be written.
    """
    copies = [await store.copy(run_id) for run_id in dict.fromkeys(run_ids)]
    for copy in copies:
        _verify_chain(copy)
    lines = [_encode(Header(format=FORMAT, store=store.id, at=now, by=signer.name))]
    for copy in copies:
        lines += map(_encode, _lines(copy))
    data = b"".join(line + b"\n" for line in lines)
    ends = [[copy.run_id, copy.seq, copy.hash.hex()] for copy in copies]
    facts = {"store": store.id, "at": now, "by": signer.name, "runs": ends, "sha256": sha256(data).hexdigest()}
    end = End(facts=facts, public=signer.public, signature=keys.sign(signer, statement(EXPORT, facts)))
    replace_file(place, data + _encode(end) + b"\n", PRIVATE_MODE)
    waiting = await store.undelivered()
    ids = {copy.run_id for copy in copies}
    return Exported([(copy.run_id, copy.seq) for copy in copies], {id_: n for id_, n in waiting.items() if id_ in ids})


def _lines(copy: RunCopy) -> Iterator[Line]:
    yield Run(
        id=copy.run_id,
        origin=copy.origin,
        seq=copy.seq,
        hash=copy.hash.hex(),
        epoch=copy.epoch,
        segment=copy.segment,
        boundary=copy.boundary,
        row=dict(copy.row),  # type: ignore[arg-type]  # a row of the store holds texts, numbers and nothing
    )
    for body in copy.bodies:
        yield Entry(body=body)
    for digest, body in copy.chunks.items():
        yield Chunk(digest=digest, body=body)
    for kind, rows in ((Once, copy.once), (Approval, copy.approvals), (Effect, copy.effects)):
        for row in rows:
            yield kind(**row)  # type: ignore[arg-type]  # by column


# ---------------------------------------------------------------- taking in


def read(place: Path, trust: Trust, now: int | None = None) -> Bundle:
    """Return the bundle in a file, after verifying its signature and every chain in it.

    Raises BundleRefused, and Untrusted for a signature that is no trusted operator's.
    """
    try:
        data = place.read_bytes()
    except OSError as error:
        raise BundleRefused(place, error.strerror or str(error)) from error
    signed, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    try:
        lines = [_decoder.decode(line) for line in signed.split(b"\n")]
        end = _decoder.decode(last)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BundleRefused(place, f"it is no bundle ({error})") from error
    header = lines[0]
    if not isinstance(header, Header) or header.format != FORMAT or not isinstance(end, End):
        raise BundleRefused(place, "its first or last line is missing, or of another version")
    facts = end.facts
    said = statement(EXPORT, {name: value for name, value in facts.items() if name != "domain"})
    operator = keys.verify(trust, str(facts.get("by")), said, end.signature, now)
    if facts.get("sha256") != sha256(signed + b"\n").hexdigest():
        raise BundleRefused(place, "its lines are not those that were signed")
    try:
        runs = list(_runs(lines[1:]))
        for copy in runs:
            _verify_chain(copy)
    except (Damaged, ValueError) as error:
        raise BundleRefused(place, str(error)) from error
    if facts.get("runs") != [[copy.run_id, copy.seq, copy.hash.hex()] for copy in runs]:
        raise BundleRefused(place, "its runs are not those that were signed")
    return Bundle(runs, facts["sha256"], operator.name, header.store, header.at)


def _runs(lines: Iterable[Line]) -> Iterator[RunCopy]:
    run: Run | None = None
    beside: dict[type[Line], list[Any]] = {}
    for line in lines:
        if isinstance(line, Run):
            if run is not None:
                yield _copy(run, beside)
            run, beside = line, {}
        elif run is None or isinstance(line, Header | End):
            msg = "a line stands where none of its kind may"
            raise ValueError(msg)
        else:
            beside.setdefault(type(line), []).append(line)
    if run is not None:
        yield _copy(run, beside)


def _copy(run: Run, beside: Mapping[type[Line], list[Any]]) -> RunCopy:
    def rows(kind: type[Line]) -> list[dict[str, object]]:
        return [msgspec.structs.asdict(line) for line in beside.get(kind, ())]

    return RunCopy(
        run.id,
        run.origin,
        run.row,
        run.seq,
        bytes.fromhex(run.hash),
        run.epoch,
        run.segment,
        run.boundary,
        [line.body for line in beside.get(Entry, ())],
        {line.digest: line.body for line in beside.get(Chunk, ())},
        rows(Once),
        rows(Approval),
        rows(Effect),
    )


def _verify_chain(copy: RunCopy) -> None:
    """Check that the entries are one chain from its genesis to its head. Raises Damaged."""
    digest = genesis(copy.origin, copy.run_id)
    for body in copy.bodies:
        digest = link(digest, body)
    if (len(copy.bodies), digest) != (copy.seq, copy.hash):
        raise Damaged(copy.run_id, "its entries do not lead from its beginning to its head", seq=copy.seq)


async def take_in(store: Store, write: Write, bundle: Bundle, now: int, by: str) -> list[TakenIn | MilepostError]:
    """Take a bundle's runs in, each in a transaction of its own; return for each what came of it, refusals as errors.

    A run whose record does not fold, or whose chunks do not match their names, is refused as Damaged.
    """
    answers: list[TakenIn | MilepostError] = []
    for copy in bundle.runs:
        try:
            answers.append(await write(_taking(store, copy, bundle, now, by)))
        except MilepostError as error:
            answers.append(error)
    return answers


def _taking(store: Store, copy: RunCopy, bundle: Bundle, now: int, by: str) -> TakeIn:
    state, boundary, doubted = _fold(store, copy)
    for name, body in copy.chunks.items():
        digest = digest_of(store.plain(copy.run_id, f"chunk {name}", body))
        if name not in {digest, store.chunk_name(copy.run_id, digest)}:
            raise Damaged(copy.run_id, f"chunk {name[:12]} does not match its name")
    # What the bundle says beside the record is not asked where the record says it itself.
    copy.epoch, copy.segment, copy.boundary = state.epoch, state.segment, boundary
    copy.row = {**copy.row, "status": state.status}
    void = {id_ for id_, one in state.approvals.items() if one.verdict not in {"used", "denied"}}
    if state.status not in OVER:
        copy.approvals = [{**row, "verdict": "void"} if row["id"] in void else row for row in copy.approvals]
    ask = f"milepost resume {copy.run_id[:8]}"
    why = f"imported from store {bundle.store[:8]}: drive it here only if nothing drives it there any more"
    stop = None
    if state.status not in OVER:
        in_flight = tuple(effect.path for effect in state.effects() if effect.outcome == "started")
        stopped = e.RunStopped(
            at=now, status="blocked", code=IMPORTED, why=why, by=by, epoch=state.epoch + 1, unknown=in_flight
        )
        stop = codec.encode(stopped)
    told = RunImported(
        at=now,
        run=copy.run_id,
        origin=copy.origin,
        seq=copy.seq,
        hash=copy.hash.hex(),
        bundle=bundle.name,
        signer=bundle.signer,
        by=by,
    )
    return TakeIn(
        copy, now, by, bundle.name, bundle.signer, ask, why, stop, codec.encode(told),
        holds=_holds(state, doubted, now), overspent=dict(state.overspent),
    )  # fmt: skip


def _holds(state: RunState, doubted: Mapping[str, str], now: int) -> list[Switch]:
    """Return what holds the tools of a run whose record is contradicted: what is in doubt there is in doubt here."""
    open_ = [effect for effect in state.effects() if effect.contradicted or effect.doubt.person.startswith(CONFLICT)]
    found = {effect.path: (effect.tool, effect.doubt.person) for effect in open_}
    found |= {f"{tool} in an earlier segment": (tool, evidence) for tool, evidence in doubted.items()}
    return [
        Switch(f"tool:{tool}", "hold", f"contradicted at {path} of run {state.run}, taken in: {why}", state.run, now,
               f"{state.run} {path}")
        for path, (tool, why) in found.items()
    ]  # fmt: skip


def _fold(store: Store, copy: RunCopy) -> tuple[RunState, int, dict[str, str]]:
    """Return what the record says of a run, the number of its latest boundary, and evidence against earlier segments.

    That is by tool, as long as no person has looked into it. Raises Damaged.
    """
    state, boundary = RunState(copy.run_id), 0
    doubted: dict[str, str] = {}
    try:
        for seq, body in enumerate(copy.bodies, start=1):
            entry = codec.decode(store.plain(copy.run_id, f"entry {seq}", body))
            state.apply(entry)
            if isinstance(entry, e.BOUNDARIES):
                boundary = seq
            if isinstance(entry, e.Contradicted) and not entry.step:
                doubted[entry.tool] = entry.evidence
            elif isinstance(entry, Resumed) and entry.was == CONTRADICTED:
                doubted.clear()  # to try a failed segment again, or to drive what was taken in, says nothing of it
            if seq == 1 and not (isinstance(entry, e.RunCreated) and entry.run == copy.run_id):
                raise Damaged(copy.run_id, "it does not begin with its own first entry", seq=1)
    except KeyMissing:
        raise
    except (KeyError, IndexError, AssertionError, MilepostError) as error:
        raise Damaged(copy.run_id, f"its entries do not follow from each other ({error!r})", seq=seq) from error
    return state, boundary, doubted
