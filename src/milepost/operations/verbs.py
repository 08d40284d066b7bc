"""The operator's verbs. Each is one message in a run's inbox, or, for `kill`, one transaction that takes the epoch.

A message waits for whoever owns the run; if nobody does, it wakes the run for the next worker. `kill` waits for nobody.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import codec
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.inbox import may_retry
from milepost.definitions.call import Finding
from milepost.definitions.values import Codec
from milepost.errors import UnknownStep, WrongStatus
from milepost.operations import approvals, budgets, history, switches, words
from milepost.operations.inspection import Inspector
from milepost.stores import marks
from milepost.stores.api import Deliver, Kill, Killed, Post, Thrown

if TYPE_CHECKING:
    from milepost.core.authority import Authority
    from milepost.operations.approvals import Shown
    from milepost.operations.history import Back, Forked
    from milepost.operations.keys import Signer
    from milepost.stores.api import Store
    from milepost.stores.fleet import WorkerRow

ENDED = frozenset({"done", "failed", "cancelled", "killed"})
_anything: Codec[Any] = Codec(Any, "a value")


class Operator:
    """Acts on the runs of one store. `write` commits one operation durably; `now` returns milliseconds since 1970."""

    def __init__(self, store: Store, write: Callable[[Any], Awaitable[Any]], now: Callable[[], int]) -> None:
        self._store = store
        self._write = write
        self._now = now

    async def send(self, run_id: str, name: str, value: object, *, id: str | None = None, by: str = "") -> bool:
        """Send a signal; return False when a signal with this id was sent before. Raises UnknownRun, WrongStatus."""
        run_id = await self._live(run_id)
        message_id = id or uuid.uuid4().hex
        message = m.Send(at=self._now(), by=by, id=message_id, name=name, value=msgspec.Raw(_anything.write(value)))
        return await self._deliver(run_id, f"signal:{name}:{message_id}", message)

    async def cancel(self, run_id: str, *, why: str, by: str = "") -> None:
        """Ask a run to start nothing new and end when what is in flight has finished."""
        run_id = await self._live(run_id)
        await self._deliver(run_id, _fresh("cancel"), m.Cancel(at=self._now(), by=by, why=why))

    async def kill(self, run_id: str, *, why: str, by: str = "") -> list[tuple[str, str]]:
        """Take the run and its descendants from whoever holds them; return the (run, path) pairs left unknown.

        After it returns, no effect that had not started will start. Raises UnknownRun, and WrongStatus when the run and
        all its descendants have ended already.
        """
        run_id = await self._store.resolve_id(run_id)
        now = self._now()

        def entry(epoch: int, unknown: tuple[str, ...]) -> bytes:
            stopped = e.RunStopped(at=now, status="killed", code="killed", why=why, by=by, epoch=epoch, unknown=unknown)
            return codec.encode(stopped)

        def tell(parent: str) -> Post:
            ended = m.Child(at=now, by=by, child=run_id, status="killed", why=why)
            return Post(parent, f"child:{run_id}:killed", m.encode(ended), now)

        killed: Killed = await self._write(Kill(run_id, why, now, entry, tell))
        for worker in killed.owners:
            marks.ask_to_let_go(self._store.local, worker)
        if not killed.runs:
            raise WrongStatus(run_id, (await self._store.run(run_id)).status, "not ended")
        return killed.unknown

    async def grant(
        self,
        run_id: str,
        *,
        by: str,
        scopes: Iterable[str] = (),
        budget: Mapping[str, Decimal | int] | None = None,
        why: str = "",
        signer: Signer | None = None,
    ) -> None:
        """Widen a run's authority or budget; with a `signer`, `by` is its name.

        Raises UnknownRun, and InvalidValue for what is no amount, or where nobody is named.
        """
        run_id = await self._store.resolve_id(run_id)
        more = budgets.checked(budget)
        message = m.Grant(at=self._now(), by=by, scopes=tuple(scopes), budget=more, why=why)
        await self._deliver(run_id, _fresh("grant"), words.grant(self._store, run_id, message, signer))

    async def revoke(
        self,
        run_id: str,
        *,
        by: str,
        why: str,
        scopes: Iterable[str] = (),
        ceilings: Mapping[str, Decimal | int] | None = None,
        dead: Callable[[WorkerRow], bool] = lambda worker: worker.ended_at is not None,
    ) -> bool:
        """Narrow a run; return whether it holds by now. See `operations.budgets`; `dead` says who acts no more."""
        run_id = await self._live(run_id)
        message = budgets.revoke(scopes, ceilings, by=by, why=why, now=self._now())
        await self._deliver(run_id, _fresh("revoke"), message)
        return await budgets.taken(self._store, run_id, message, dead)

    async def set_ceiling(
        self, pool: str, ceilings: Mapping[str, Decimal | int | None], *, per: str = "ever", by: str, why: str
    ) -> int:
        """Set what a shared pool may spend. See `operations.budgets.set_ceiling`."""
        return await budgets.set_ceiling(self._write, pool, per, ceilings, by=by, why=why, now=self._now())

    async def resolve(
        self, run_id: str, path: str, finding: Finding[Any], *, by: str, why: str, signer: Signer | None = None
    ) -> None:
        """Settle an unknown effect on a person's word, and lift the hold that it put on its tool.

        With a `signer`, `by` is its name. Raises UnknownRun, UnknownStep when no such effect is unknown, InvalidValue
        for a value that cannot be stored, or where nobody is named.
        """
        run_id = await self._store.resolve_id(run_id)
        if finding.answer not in {"happened", "did_not_happen", "rejected"}:
            raise UnknownStep(
                run_id, path, f"{finding.answer!r} settles nothing: say happened, did_not_happen or rejected"
            )
        row = await self._store.run(run_id)
        found = [effect for effect in await self._store.effects(run_id) if path in {effect.path, effect.step}]
        contradicted = row.status == "blocked" and (row.why or "").startswith("contradicted")
        if not contradicted and not any(effect.outcome in {"unknown", "confirmed"} for effect in found):
            outcome = found[0].outcome if found else "not open"
            raise UnknownStep(run_id, path, f"it is {outcome}, only an unknown effect can be resolved")
        message = m.Resolve(
            at=self._now(),
            by=by,
            path=path,
            answer=finding.answer,
            why=why or finding.why,
            value=msgspec.Raw(_anything.write(finding.value)),
        )
        message = await words.resolve(self._store, Inspector(self._store), run_id, message, signer)
        await self._deliver(run_id, _fresh("resolve"), message)

    async def approve(
        self,
        approval_id: str,
        *,
        by: str,
        why: str = "",
        digest: str | None = None,
        signer: Signer | None = None,
    ) -> Shown:
        """Approve exactly one effect, once; see `approvals.answer`. Raises UnknownApproval, DigestDiffers."""
        return await self._answer(approval_id, approved=True, by=by, why=why, digest=digest, signer=signer)

    async def deny(
        self, approval_id: str, *, by: str, why: str, digest: str | None = None, signer: Signer | None = None
    ) -> Shown:
        """Deny exactly one effect, also one that was approved and has not started: it fails as denied.

        Raises UnknownApproval, DigestDiffers.
        """
        return await self._answer(approval_id, approved=False, by=by, why=why, digest=digest, signer=signer)

    async def _answer(self, approval_id: str, **said: Any) -> Shown:
        inspector = Inspector(self._store)
        return await approvals.answer(self._store, self._write, inspector, self._now(), approval_id, **said)

    async def retry(self, run_id: str, *, by: str, why: str = "") -> None:
        """Re-enter a failed segment, keeping its finished steps. Raises UnknownRun, WrongStatus."""
        run_id = await self._store.resolve_id(run_id)
        row = await self._store.run(run_id)
        if not may_retry(row.status, (row.why or "").partition(":")[0]):
            lifted = f" (a block is lifted with milepost resume {run_id} --why …)" if row.status == "blocked" else ""
            raise WrongStatus(run_id, row.status, f"failed{lifted}")
        await self._deliver(run_id, _fresh("retry"), m.Retry(at=self._now(), by=by, why=why))

    async def resume(self, run_id: str, *, by: str, why: str) -> None:
        """Lift a block, once whoever takes the run has checked again what blocked it. Raises UnknownRun, WrongStatus.

        Where that code may still not go on with the run, the block stays, and the journal says why.
        """
        run_id = await self._store.resolve_id(run_id)
        row = await self._store.run(run_id)
        if row.status != "blocked":
            raise WrongStatus(run_id, row.status, "blocked")
        await self._deliver(run_id, _fresh("resume"), m.Resume(at=self._now(), by=by, why=why))

    async def rewind(self, run_id: str, *, to: str, by: str, why: str) -> Back:
        """Ask a run to go back to a boundary; see `operations.history.rewind`."""
        return await history.rewind(self._store, self._write, self._now(), run_id, to=to, by=by, why=why)

    async def fork(
        self, run_id: str, *, at: str | None, by: str, why: str, authority: Authority, **given: Any
    ) -> Forked:
        """Make a new run that goes on from a boundary of another one; see `operations.history.fork`."""
        now = self._now()
        return await history.fork(
            self._store, self._write, now, run_id, at=at, by=by, why=why, authority=authority, **given
        )

    async def freeze(self, scope: str, *, by: str, why: str) -> None:
        """Let nothing start under `all`, `tool:NAME`, `workflow:NAME` or `tenant:NAME`. Raises UnknownScope."""
        await switches.freeze(self._write, scope, by=by, why=why, now=self._now())

    async def thaw(self, scope: str, *, by: str, why: str, held: bool = False) -> Thrown:
        """Set a scope free, and reset a tool's breaker; `held` lifts holds too. Raises UnknownScope, NothingStopped."""
        return await switches.thaw(self._write, scope, by=by, why=why, now=self._now(), held=held)

    async def lift_stop(self, stood: marks.Stop | None, *, by: str, why: str) -> int:
        """Write down that a stop file is lifted, and thaw everything; return how much thawed. Raises NothingStopped."""
        return await switches.lift_stop(self._write, stood, by=by, why=why, now=self._now())

    async def _live(self, run_id: str) -> str:
        full = await self._store.resolve_id(run_id)
        row = await self._store.run(full)
        if row.status in ENDED:
            raise WrongStatus(full, row.status, "not ended")
        return full

    async def _deliver(self, run_id: str, message_id: str, message: m.Message) -> bool:
        fresh: bool = await self._write(Deliver(Post(run_id, message_id, m.encode(message), self._now())))
        return fresh


def _fresh(kind: str) -> str:
    return f"{kind}:{uuid.uuid4().hex}"
