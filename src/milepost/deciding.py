"""What a person does to runs, as methods of an App; some is refused first by the code that runs today."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from milepost.core.authority import Authority
from milepost.core.duration import Duration, parse_ms, to_ms
from milepost.definitions.call import Finding
from milepost.definitions.run import Handle
from milepost.definitions.tools import Cost
from milepost.errors import Incompatible, NotReversible
from milepost.operations import keys
from milepost.operations.verbs import Operator
from milepost.runtime import rewinding
from milepost.runtime.engine import Engine
from milepost.runtime.examining import Examined, examine, examine_all
from milepost.runtime.rewinding import Way


class Deciding(ABC):
    """The verbs of an App that is open."""

    @abstractmethod
    def _need_engine(self) -> Engine: ...

    @abstractmethod
    def handle(self, run_id: str, /) -> Handle[Any]:
        """Return the handle of a run."""

    def _operator(self) -> Operator:
        engine = self._need_engine()

        async def write(operation: Any) -> Any:
            answer = await engine.writer.durable(operation)
            engine.woken.set()
            return answer

        return Operator(engine.store, write, engine.clock.now)

    async def send(self, run_id: str, name: str, value: object, /, *, id: str | None = None) -> None:
        """Send a signal to a run; the same `id` a second time is the same signal. Raises UnknownRun, WrongStatus."""
        await self._operator().send(run_id, name, value, id=id)

    async def cancel(self, run_id: str, /, *, why: str) -> None:
        """Let a run finish what is in flight and start nothing new. Raises UnknownRun, WrongStatus."""
        await self._operator().cancel(run_id, why=why)

    async def kill(self, run_id: str, /, *, why: str) -> Sequence[str]:
        """Stop a run and its descendants now; return the paths whose outcome is left unknown."""
        return [path for _, path in await self._operator().kill(run_id, why=why)]

    async def grant(self, run_id: str, /, *, by: str, scopes: Iterable[str] = (), budget: Cost | None = None) -> None:
        """Give a run further scopes or money. Raises UnknownRun, InvalidValue."""
        await self._operator().grant(run_id, by=by, scopes=scopes, budget=budget)

    async def resolve(self, run_id: str, path: str, finding: Finding[Any], /, *, by: str, why: str) -> None:
        """Settle an unknown effect on a person's word. Raises UnknownRun, UnknownStep."""
        await self._operator().resolve(run_id, path, finding, by=by, why=why)

    async def approve(
        self, approval_id: str, /, *, by: str = "", digest: str | None = None, key: str | Path | None = None
    ) -> None:
        """Approve exactly one effect, once, before it expires. Raises UnknownApproval.

        `digest`, or its beginning, is that of the arguments that were shown: others raise DigestDiffers. With `key`, a
        private key's file, the answer is signed in its name. Raises KeyRefused.
        """
        await self._operator().approve(approval_id, by=by, digest=digest, signer=_signer(key))

    async def deny(self, approval_id: str, /, *, by: str = "", why: str, key: str | Path | None = None) -> None:
        """Deny one effect, also one that was approved and has not started. Raises UnknownApproval, KeyRefused."""
        await self._operator().deny(approval_id, by=by, why=why, signer=_signer(key))

    async def retry(self, run_id: str, /, *, by: str, why: str = "") -> None:
        """Re-enter the failed segment of a run, keeping its finished steps. Raises UnknownRun, WrongStatus."""
        await self._operator().retry(run_id, by=by, why=why)

    async def resume(self, run_id: str, /, *, by: str, why: str) -> None:
        """Lift the block of a run, after checking that this app's code may go on with it.

        Raises Incompatible with the difference where it may not; UnknownRun, WrongStatus. Whoever takes the run checks
        again. A segment that changed while the run was half done with it is accepted by this.
        """
        engine = self._need_engine()
        found = await examine(engine, await engine.store.resolve_id(run_id))
        if found.status == "blocked" and found.verdict in {"blocks", "elsewhere"}:
            raise Incompatible(found.run, found.reasons)
        await self._operator().resume(run_id, by=by, why=why)

    async def check(self) -> list[Examined]:
        """Return what this app's code would do with every run that has not ended, without doing it."""
        return await examine_all(self._need_engine())

    async def find_way(self, run_id: str, to: str, /) -> Way:
        """Return what a rewind would undo and what forbids it, without doing it. Raises UnknownRun, UnknownBoundary."""
        engine = self._need_engine()
        full = await engine.store.resolve_id(run_id)
        driven = (await engine.store.run(full)).owner is not None
        return await rewinding.find_way(engine, full, to, driven=driven)

    async def rewind(self, run_id: str, /, *, to: str, by: str, why: str) -> None:
        """Take a run back to one of its boundaries: a worker undoes what was done since, newest first.

        Raises NotReversible, with each reason, before anything is done; UnknownRun, UnknownBoundary.
        """
        way = await self.find_way(run_id, to)
        if way.refused:
            raise NotReversible(run_id, way.target.name, way.refused)
        await self._operator().rewind(run_id, to=to, by=by, why=why)

    async def fork(
        self,
        run_id: str,
        /,
        *,
        by: str,
        why: str,
        at: str | None = None,
        key: str | None = None,
        authority: Authority | None = None,
        budget: Cost | None = None,
        deadline: Duration | datetime | None = None,
    ) -> Handle[Any]:
        """Make a new run that goes on from a boundary of another one, with the authority and the money given here.

        Raises NotReversible, UnknownRun, UnknownBoundary, Damaged, StartConflict, InvalidValue.
        """
        until = moment_of(deadline, self._need_engine().clock.now())
        held = authority or Authority(by)
        forked = await self._operator().fork(
            run_id, at=at, by=by, why=why, authority=held, budget=budget, key=key, deadline=until
        )
        return self.handle(forked.run_id)


def _signer(key: str | Path | None) -> keys.Signer | None:
    return None if key is None else keys.read_private(Path(key))


def moment_of(deadline: Duration | datetime | None, now: int) -> int | None:
    """Return a deadline as a moment in milliseconds since 1970; a span counts from `now`."""
    if deadline is None:
        return None
    return to_ms(deadline) if isinstance(deadline, datetime) else now + parse_ms(deadline)
