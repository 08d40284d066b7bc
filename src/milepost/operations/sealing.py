"""Seals: a signature over where every chain of a store ends, kept where whoever writes to the store cannot.

A chain shows that an entry was changed. It cannot show that its own end was cut off, that all of it was computed
anew, or that the whole file is an older copy of itself: what is missing left nothing behind. A seal remembers the
ends. Each seal first writes `sealed` with the next number into the store's own journal, and then signs the root of a
hash tree over the ends of all chains, that journal's too. So every older copy lacks at least that entry, even where
no run moved since.

A store that only grew agrees with its seal: each sealed end is still in its chain, and the rest follows from it. What a
seal cannot show is what was added after it. Seal as often as that matters.

Where something differs, it is said of which run, and from which entry on:

  rolled_back  the store's own journal, or the run with it, is shorter than when it was sealed: an older copy
  cut          only that run is shorter: its tail was cut off
  rewritten    the run is as long or longer, and does not lead through the end that was sealed
  deleted      the run is gone and no pruning of it is recorded; or its tombstone is gone
  resurrected  a run is here that was pruned before the seal
  other_store  the file is another store
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from milepost.core import chain, codec
from milepost.core.statement import SEAL, statement
from milepost.core.store_entries import RunPruned, Sealed
from milepost.errors import Damaged, MilepostError, StoreError
from milepost.operations import keys
from milepost.stores.keeping import Leaf, MarkSeal

if TYPE_CHECKING:
    from milepost.operations.keys import Signer, Trust
    from milepost.stores.api import Store
    from milepost.stores.keeping import Tombstone

SYSTEM = "system"
_DIGEST = re.compile("[0-9a-f]{64}")
Kind = Literal["rolled_back", "cut", "rewritten", "deleted", "resurrected", "other_store"]
Write = Callable[[Any], Awaitable[Any]]
_encode = msgspec.json.Encoder(order="deterministic").encode


class SealUnreadable(MilepostError):
    """A file is no seal, or its signature is not that of its content."""

    code = "seal_unreadable"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is no seal that can be believed: {why}. Fetch the seal from where it is kept.")
        self.path = str(path)
        self.why = why


@dataclass(frozen=True, slots=True)
class Difference:
    """What does not agree with a seal. `seq` is the first entry that is missing or may be another."""

    kind: Kind
    run_id: str
    seq: int | None
    why: str


class SealBroken(StoreError):
    """The store is not what was sealed. Nothing was claimed, and nothing was sent."""

    code = "seal_broken"

    def __init__(self, path: Path | str, differences: Sequence[Difference]) -> None:
        first = differences[0]
        at = "" if first.seq is None else f", from entry {first.seq} on"
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        super().__init__(
            f"the store does not agree with its seal {path}: {first.kind}, run {first.run_id}{at}: {first.why}{more}. "
            f"Nothing was sent. Keep the file, and look with: milepost verify --seal {path}"
        )
        self.differences = list(differences)


class RolledBack(SealBroken):
    """The store is an older copy of what was sealed, or of a part of it."""

    code = "rolled_back"


class Facts(msgspec.Struct, frozen=True):
    """What a seal's signature covers. `at` is in milliseconds since 1970, `root` in hex."""

    domain: str
    store: str
    sequence: int
    at: int
    by: str
    runs: int
    entries: int
    pruned: int
    root: str


class Seal(msgspec.Struct, frozen=True):
    """A seal as its file has it: the facts, the ends (run id, last entry, its hash in hex), the signature."""

    facts: Facts
    leaves: list[tuple[str, int, str]]
    pruned: list[tuple[str, int, str]]
    public: str
    signature: str

    def statement(self) -> bytes:
        """Return the bytes that were signed."""
        facts = msgspec.structs.asdict(self.facts)
        return statement(facts.pop("domain"), facts)


@dataclass(frozen=True, slots=True)
class Compared:
    """What comparing a store with a seal found. `pruned` names runs that were pruned since, with who did it."""

    seal: Seal
    differences: list[Difference]
    grown: int
    pruned: list[tuple[str, str]] = field(default_factory=list)


# ---------------------------------------------------------------- making one


async def seal(store: Store, write: Write, signer: Signer, place: Path, now: int, by: str) -> Seal:
    """Sign where every chain ends now, and put it at `place`. `now` is in milliseconds since 1970.

    Where a seal of this store stands there already it must still agree: sealing never blesses what an older seal shows
    to be wrong. Raises SealBroken, RolledBack, SealUnreadable, and OSError where the file cannot be written.
    """
    above = 0
    if place.exists():  # noqa: ASYNC240  a command waits for its own small file
        older = read(place)
        _refuse(place, (await compare(store, older)).differences)
        above = older.facts.sequence

    def entry(sequence: int) -> bytes:
        return codec.encode(Sealed(at=now, sequence=sequence, by=by))

    sequence = await write(MarkSeal(now, above, entry))
    standing = await store.standing()
    leaves = [(leaf.run_id, leaf.seq, leaf.hash.hex()) for leaf in standing.leaves]
    pruned = [(stone.run_id, stone.seq, stone.hash.hex()) for stone in standing.tombstones]
    facts = Facts(
        domain=SEAL,
        store=standing.store_id,
        sequence=sequence,
        at=now,
        by=signer.name,
        runs=len(leaves) - 1,
        entries=sum(seq for _, seq, _ in leaves),
        pruned=len(pruned),
        root=root_of(leaves, pruned),
    )
    unsigned = Seal(facts, leaves, pruned, signer.public, "")
    made = msgspec.structs.replace(unsigned, signature=keys.sign(signer, unsigned.statement()))
    replace_file(place, msgspec.json.format(_encode(made), indent=1) + b"\n")
    return made


def root_of(leaves: Sequence[tuple[str, int, str]], pruned: Sequence[tuple[str, int, str]]) -> str:
    """Return the root of the hash tree over ends and tombstones, in hex. Leaves and nodes hash under other prefixes."""
    level = [sha256(b"\0" + _encode(["run", *leaf])).digest() for leaf in leaves]
    level += [sha256(b"\0" + _encode(["pruned", *stone])).digest() for stone in pruned]
    if not level:
        return sha256(b"\0").hexdigest()
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [sha256(b"\1" + b"".join(pair)).digest() if len(pair) == 2 else pair[0] for pair in pairs]  # noqa: PLR2004
    return level[0].hex()


def replace_file(place: Path, data: bytes, mode: int = 0o644) -> None:
    """Put a file in place whole or not at all, durable before this returns."""
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# ---------------------------------------------------------------- reading and comparing


def read(place: Path, trust: Trust | None = None, now: int | None = None) -> Seal:
    """Return the seal in a file. Without `trust` only that its content is what its own key signed is known.

    Raises SealUnreadable, and Untrusted for a signature that is no trusted operator's.
    """
    try:
        found = msgspec.json.decode(place.read_bytes(), type=Seal)
    except OSError as error:
        raise SealUnreadable(place, error.strerror or str(error)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise SealUnreadable(place, f"it is none ({error})") from error
    if found.facts.domain != SEAL or not keys.signed_by(found.public, found.statement(), found.signature):
        raise SealUnreadable(place, "its content is not what was signed")
    if root_of(found.leaves, found.pruned) != found.facts.root:
        raise SealUnreadable(place, "the ends that it lists are not those that were signed")
    if SYSTEM not in {run_id for run_id, _, _ in found.leaves} or not all(
        _DIGEST.fullmatch(digest) for _, _, digest in (*found.leaves, *found.pruned)
    ):
        raise SealUnreadable(place, "it lacks the store's own journal, or an end has no hash")
    if trust is not None:
        keys.verify(trust, found.facts.by, found.statement(), found.signature, now)
    return found


async def require(store: Store, place: Path, trust: Trust | None = None, now: int | None = None) -> Compared:
    """Return how a store compares with the seal in a file. Raises RolledBack or SealBroken where it does not agree."""
    compared = await compare(store, read(place, trust, now))
    _refuse(place, compared.differences)
    return compared


def _refuse(place: Path, differences: Sequence[Difference]) -> None:
    if differences:
        older = any(one.kind == "rolled_back" for one in differences)
        raise (RolledBack if older else SealBroken)(place, differences)


async def compare(store: Store, seal: Seal) -> Compared:
    """Return where a store does not agree with a seal, the store's own journal first."""
    standing = await store.standing()
    if standing.store_id != seal.facts.store:
        why = f"this is store {standing.store_id}, and {seal.facts.store} was sealed"
        return Compared(seal, [Difference("other_store", SYSTEM, None, why)], 0)
    here = {leaf.run_id: leaf for leaf in standing.leaves}
    sealed = {run_id: Leaf(run_id, seq, bytes.fromhex(digest)) for run_id, seq, digest in seal.leaves}
    own = sealed.pop(SYSTEM)
    stones = {stone.run_id: stone for stone in standing.tombstones}
    older = SYSTEM not in here or here[SYSTEM].seq < own.seq
    differences = [found] if (found := await _follows(store, own, here.get(SYSTEM), older=older)) else []
    gone = [run_id for run_id in sealed if run_id not in here]
    recorded = await _prunings(store, own, here[SYSTEM]) if gone and not differences else set()
    pruned = []
    for run_id, leaf in sorted(sealed.items()):
        stone = stones.get(run_id)
        if run_id not in here and stone is not None and (run_id, stone.hash.hex()) in recorded and _led_to(leaf, stone):
            pruned.append((run_id, stone.by))
        elif found := await _follows(store, leaf, here.get(run_id), older=older):
            differences.append(found)
    for run_id, seq, digest in seal.pruned:
        stone = stones.get(run_id)
        if run_id in here:
            differences.append(Difference("resurrected", run_id, None, "it was pruned before the seal, and is here"))
        elif stone is None or stone.hash.hex() != digest:
            kind: Kind = "rolled_back" if older else "deleted"
            differences.append(Difference(kind, run_id, seq, "its tombstone is gone, or another"))
    grown = sum(leaf.seq for leaf in here.values()) - sum(leaf.seq for leaf in sealed.values()) - own.seq
    return Compared(seal, differences, max(0, grown), pruned)


async def _follows(store: Store, sealed: Leaf, here: Leaf | None, *, older: bool) -> Difference | None:
    """Return how a chain differs from its sealed end, None where it is that end or leads on from it."""
    run_id, seq = sealed.run_id, sealed.seq
    if here is None:
        gone: Kind = "rolled_back" if older else "deleted"
        return Difference(gone, run_id, 1, f"it had {seq} entries when it was sealed, and is gone")
    if here.seq < seq:
        short: Kind = "rolled_back" if older else "cut"
        return Difference(short, run_id, here.seq + 1, f"it had {seq} entries when it was sealed, and has {here.seq}")
    if here.seq == seq:
        same = here.hash == sealed.hash
        return None if same else Difference("rewritten", run_id, seq, f"entry {seq}, or one before it, is another")
    newer = [one for one in await store.after(run_id, seq) if one.seq <= here.seq]
    try:
        chain.verify(run_id, sealed.hash, seq + 1, ((one.seq, one.body, one.hash) for one in newer), here.hash)
    except Damaged as error:
        first = error.seq in {None, seq + 1}
        where = seq if first else error.seq
        return Difference(
            "rewritten", run_id, where, f"entry {where}, or one {'before' if first else 'after'} it, is another"
        )
    return None


async def _prunings(store: Store, sealed: Leaf, here: Leaf) -> set[tuple[str, str]]:
    """Return the runs whose pruning is recorded after the seal, with the hash of their last entry."""
    newer = await store.after(SYSTEM, sealed.seq) if here.seq > sealed.seq else []
    entries = [codec.decode(one.plain) for one in newer]
    return {(entry.run, entry.hash) for entry in entries if isinstance(entry, RunPruned)}


def _led_to(sealed: Leaf, stone: Tombstone) -> bool:
    """Say whether a run that was pruned may have grown from its sealed end to its last entry."""
    return stone.seq > sealed.seq or (stone.seq, stone.hash) == (sealed.seq, sealed.hash)
