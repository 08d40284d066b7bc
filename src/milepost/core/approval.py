"""A person's verdict on one exact effect, used once.

An approval is *bound*: to the run, the place of the call, the tool and its version, the class, the digest of the
arguments, the policy in force when it was asked, and the moment when it lapses. Its id is made from all of them. What
differs in any is another effect to approve: the older request is closed, and the newer one has another id.

  asked        a person is asked. Absence is denial: nothing starts.
  approved     the effect may start, once, until `expires_at`
  denied       it may not, ever; also where an approval that was not used yet was taken back
  used         consumed, in the transaction that wrote `started`; no answer changes it any more
  superseded   other arguments, code or rules stand there now, or it is not asked for any more
  expired      its time ran out before it was used

An answer may be signed. What is signed is `facts`: all that the approval is bound to, and what was said of it. The
signature stays in the record, and is looked at again when the approval is about to be used: so a line that somebody
wrote into the record permits nothing, and a key that was revoked meanwhile permits nothing more.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from milepost.core.statement import APPROVAL, statement

Standing = Literal["asked", "approved", "denied", "used", "superseded", "expired"]
OPEN: Final = frozenset({"asked", "approved"})
TTL_MS: Final = 7 * 24 * 3_600_000  # how long a request holds where neither a rule nor the App says it

# Why an answer was refused, as `code` of MessageRefused. These words are stable.
NOT_ASKED: Final = "not_asked"
REPLAYED: Final = "replayed"
SUPERSEDED: Final = "superseded"
EXPIRED: Final = "expired"
WRONG_DIGEST: Final = "wrong_digest"
SELF_APPROVAL: Final = "self_approval"
UNSIGNED: Final = "unsigned"
BAD_SIGNATURE: Final = "bad_signature"


class Binding(msgspec.Struct, frozen=True, gc=False):
    """What an approval is bound to, besides the run and its expiry: one call as it would be made now."""

    step: str
    tool: str
    version: str
    effect: str
    digest: str
    policy: str = ""


@dataclass(slots=True)
class Approval:
    """One question to a person, and the answer. Moments are milliseconds since 1970.

    `rule` asked for it, empty where the tool alone did; `requester` is who the run acts for. `said_at` is when the
    answer was given, `signature` what it was signed with.
    """

    id: str
    step: str
    tool_version: str
    digest: str
    asked_at: int
    tool: str = ""
    effect: str = ""
    policy: str = ""
    rule: str = ""
    expires_at: int | None = None
    requester: str = ""
    verdict: Standing = "asked"
    by: str = ""
    why: str = ""
    said_at: int = 0
    signature: str = ""

    @property
    def open(self) -> bool:
        """Whether it may still be answered, or used."""
        return self.verdict in OPEN

    @property
    def binding(self) -> Binding:
        """What it is bound to."""
        return Binding(self.step, self.tool, self.tool_version, self.effect, self.digest, self.policy)

    def expired(self, now: int) -> bool:
        """Say whether its time has run out."""
        return self.expires_at is not None and now >= self.expires_at

    def stands(self, call: Binding, now: int) -> bool:
        """Say whether it may still be answered, or used, for exactly this call: asked before each attempt."""
        return self.verdict in OPEN and self.binding == call and not self.expired(now)

    def permits(self, call: Binding, now: int) -> bool:
        """Say whether this approval lets exactly this call start now."""
        return self.verdict == "approved" and self.stands(call, now)

    def statement(self, store: str, run: str, *, approved: bool, by: str, why: str, at: int) -> bytes:
        """Return the bytes that an answer to it signs: what it is bound to, and what is said of it."""
        return statement(APPROVAL, facts(self, store, run, approved=approved, by=by, why=why, at=at))

    def said(self, store: str, run: str) -> bytes:
        """Return the bytes that the recorded answer must have signed."""
        approved = self.verdict in {"approved", "used"}
        return self.statement(store, run, approved=approved, by=self.by, why=self.why, at=self.said_at)


class Approvals(Mapping[str, Approval]):
    """The approvals of a run's visit by their ids, in the order in which they were asked, and by the step they are of.

    Each attempt looks for those of its own step, and a run may have very many. An approval that is taken in keeps its
    id and its step for good; what becomes of it is written into it.
    """

    __slots__ = ("_by_id", "_by_step")

    def __init__(self, approvals: Iterable[Approval] = ()) -> None:
        self._by_id: dict[str, Approval] = {}
        self._by_step: dict[str, list[Approval]] = {}
        for approval in approvals:
            self.add(approval)

    def __getitem__(self, id_: str) -> Approval:
        return self._by_id[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, step: str) -> Sequence[Approval]:
        """Return the approvals of a step, in the order in which they were asked."""
        return self._by_step.get(step, ())

    def add(self, approval: Approval) -> None:
        """Take an approval in, as the latest. It replaces one of the same id."""
        earlier = self._by_id.pop(approval.id, None)
        if earlier is not None:
            self._by_step[earlier.step].remove(earlier)
        self._by_id[approval.id] = approval
        self._by_step.setdefault(approval.step, []).append(approval)


def facts(approval: Approval, store: str, run: str, *, approved: bool, by: str, why: str, at: int) -> dict[str, Any]:
    """Return what is signed with an answer. `store` is the id of the store: a copy elsewhere has another."""
    return {
        "store": store,
        "run": run,
        "approval": approval.id,
        "step": approval.step,
        "tool": approval.tool,
        "version": approval.tool_version,
        "effect": approval.effect,
        "digest": approval.digest,
        "policy": approval.policy,
        "requester": approval.requester,
        "expires_at": approval.expires_at,
        "approved": approved,
        "by": by,
        "why": why,
        "at": at,
    }


def approval_id(run_id: str, visit: int, place: str, binding: Binding, requester: str, expires_at: int | None) -> str:
    """Return the id of the approval for exactly this call at exactly this place. `place` counts earlier requests."""
    bound = (
        run_id, str(visit), place, binding.step, binding.tool, binding.version, binding.effect, binding.digest,
        binding.policy, requester, str(expires_at),
    )  # fmt: skip
    # Length-prefixed: a name with a separator in it must not make two bindings one.
    return "ap-" + sha256("".join(f"{len(part)}:{part}" for part in bound).encode()).hexdigest()[:16]


def same_person(one: str, other: str) -> bool:
    """Say whether two names are one person's: however they are spelt, and never where a name is missing."""
    return bool(one) and bool(other) and _folded(one) == _folded(other)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip().casefold()
