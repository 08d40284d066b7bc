"""What waits for a person's word, shown from the verified record, and the word itself.

What is shown is read from the journal, not from the projection that listings are made of: the arguments are the
recorded bytes, and the answer carries the digest that stands beside them. So an answer to what was shown answers
nothing else. Whoever has a key signs the whole of it (core/approval.py).

Every attempt reaches the run, also one that cannot count: there it is refused and written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from milepost.core import approval as a
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.steps import Effect
from milepost.core.words import KINDS
from milepost.errors import InvalidValue, Refused, UnknownApproval
from milepost.operations import keys
from milepost.stores.api import Deliver, Post

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from milepost.operations.inspection import Inspector
    from milepost.operations.keys import Signer
    from milepost.stores.api import ApprovalRow, Store


class DigestDiffers(Refused):
    """What is to be answered is not what was shown: the digests of the arguments differ."""

    code = "digest_differs"

    def __init__(self, asked: str, shown: str, found: str) -> None:
        super().__init__(
            f"approval {asked} is about arguments of digest {found or 'none'}, and you were shown {shown!r}. "
            f"Look again with: milepost approvals"
        )
        self.asked, self.shown, self.found = asked, shown, found


class SelfApproval(Refused):
    """Whoever a run acts for may not approve what it asks for."""

    code = "self_approval"

    def __init__(self, asked: str, requester: str) -> None:
        super().__init__(
            f"approval {asked} was asked for {requester!r}, who may not approve it. The attempt is recorded. "
            f"Somebody else says: milepost approve {asked} --by NAME"
        )
        self.asked, self.requester = asked, requester


FIRST = {"asked": 0, "approved": 1}


@dataclass(frozen=True, slots=True)
class Shown:
    """One approval with what it is bound to. Moments are milliseconds since 1970.

    `args` are the recorded bytes. `standing` is that of the record, and `expired` where its time ran out meanwhile;
    `void` where its run, or the part of the run that asked, is over. Of what is over only the row is left: then
    `bound` is None. `reason` is the rule's.
    """

    id: str
    run_id: str
    path: str
    tool: str
    args: bytes
    asked_at: int
    standing: str
    by: str
    bound: a.Approval | None = None
    reason: str = ""

    @property
    def whole(self) -> bool:
        """Whether the digest is of all the arguments; not where the tool declares some of them volatile."""
        return self.bound is not None and sha256(self.args).hexdigest() == self.bound.digest


@dataclass(frozen=True, slots=True)
class Attempt:
    """An answer, a grant or a resolution that did not count: `code` says why in a stable word (core/approval.py).

    `approval` is what it was about: an approval's id, what was to be granted, the path of an effect.
    """

    at: int
    approval: str
    by: str
    code: str
    why: str
    kind: str = "answer"


def attempts(entries: list[e.Entry]) -> list[Attempt]:
    """Return the answers, grants and resolutions that were refused, oldest first."""
    return [
        Attempt(entry.at, entry.about, entry.by, entry.code or "refused", entry.why, entry.kind)
        for entry in entries
        if isinstance(entry, e.MessageRefused) and entry.kind in KINDS
    ]


async def find(store: Store, prefix: str) -> ApprovalRow:
    """Return the one approval whose id begins like this. Raises UnknownApproval."""
    # The store matches by pattern: what is typed must not be one.
    found = await store.approvals(prefix) if prefix.replace("-", "").isalnum() else []
    if len(found) != 1:
        fits = f"several fit: {', '.join(row.id for row in found[:5])}" if found else "there is none"
        raise UnknownApproval(prefix, fits)
    return found[0]


async def shown(inspector: Inspector, row: ApprovalRow, now: int) -> Shown:
    """Return an approval as the verified record has it. Raises Damaged."""
    state, entries = await inspector.record(row.run_id)
    bound, effect = state.approvals.get(row.id), state.steps.get(row.step)
    by = row.by or ""
    if bound is None or type(effect) is not Effect or effect.digest != bound.digest:
        return Shown(row.id, row.run_id, row.path, row.tool, row.args, row.asked_at, row.verdict, by)
    standing = "expired" if bound.open and bound.expired(now) else bound.verdict
    asked = [entry for entry in entries if isinstance(entry, e.ApprovalAsked) and entry.id == row.id]
    return Shown(
        row.id, row.run_id, effect.path, effect.tool, bytes(effect.args), row.asked_at,
        row.verdict if row.verdict == "void" else standing, bound.by, bound, asked[0].why if asked else "",
    )  # fmt: skip


async def listed(inspector: Inspector, now: int, run_id: str | None = None, *, every: bool = False) -> list[Shown]:
    """Return approvals: what waits for an answer, then what was approved and not used; with `every` all others."""
    rows = [*await inspector.approvals("asked"), *await inspector.approvals("approved")]
    if every:
        rows += [row for row in await inspector.approvals() if row.verdict not in a.OPEN]
    found = [await shown(inspector, row, now) for row in rows if run_id in {None, row.run_id}]
    return sorted(found, key=lambda one: FIRST.get(one.standing, 2))


async def answer(
    store: Store,
    write: Callable[[Any], Awaitable[Any]],
    inspector: Inspector,
    now: int,
    approval_id: str,
    *,
    approved: bool,
    by: str,
    why: str = "",
    digest: str | None = None,
    signer: Signer | None = None,
) -> Shown:
    """Send an answer to the run; return what it was given to. `digest` is the beginning of what was shown.

    With a `signer`, `by` is its name. Raises UnknownApproval where the approval cannot be answered that way any more
    (the attempt is recorded all the same), DigestDiffers, SelfApproval,
    and InvalidValue where nobody is named.
    """
    if not by and signer is None:
        what = "by"
        raise InvalidValue(what, "nobody is named: say who answers, or sign the answer with a key")
    row = await find(store, approval_id)
    about = await shown(inspector, row, now)
    bound = about.bound
    is_ = "" if bound is None else bound.digest
    if digest is not None and not (digest and is_.startswith(digest)):
        raise DigestDiffers(row.id, digest, is_)
    if signer is not None:
        by = signer.name
    signature = ""
    if signer is not None and bound is not None:
        said = bound.statement(store.id, row.run_id, approved=approved, by=by, why=why, at=now)
        signature = keys.sign(signer, said)
    message = m.Answer(at=now, by=by, approval=row.id, approved=approved, why=why, digest=is_, signature=signature)
    said_alike = sha256("\0".join((str(approved), by, why, is_, signature)).encode()).hexdigest()[:16]
    fresh = await write(Deliver(Post(row.run_id, f"answer:{row.id}:{said_alike}", m.encode(message), now)))
    if about.standing != "asked" and (approved or about.standing not in {"approved", "expired"}):
        anew = ": it is asked anew once a worker looks at its run" if about.standing == "expired" else ""
        raise UnknownApproval(approval_id, f"it is {about.standing} already{anew}. The attempt is recorded")
    if not fresh:
        raise UnknownApproval(approval_id, "it was answered already, and waits for the run to take the answer")
    if approved and bound is not None and a.same_person(by, bound.requester):
        raise SelfApproval(row.id, bound.requester)
    return about
