"""What a person does to runs, as methods of an App; some is refused first by the code that runs today."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from milepost.core.authority import Authority
from milepost.core.budget import amounts
from milepost.core.duration import Duration, parse_ms, to_ms
from milepost.definitions.call import Finding
from milepost.definitions.run import Handle
from milepost.definitions.tools import Cost
from milepost.errors import Incompatible, InvalidValue, MilepostError, NotReversible
from milepost.operations import budgets, keys, retention, sealing, switches, transfer
from milepost.operations.budgets import PoolView
from milepost.operations.retention import Pruned
from milepost.operations.sealing import Seal
from milepost.operations.switches import Standing
from milepost.operations.transfer import Exported
from milepost.operations.verbs import Operator
from milepost.runtime import rewinding
from milepost.runtime.engine import Engine
from milepost.runtime.examining import Examined, examine, examine_all
from milepost.runtime.rewinding import Way
from milepost.stores.keeping import TakenIn


class Deciding(ABC):
    """The verbs of an App that is open."""

    @abstractmethod
    def _need_engine(self) -> Engine: ...

    @abstractmethod
    def handle(self, run_id: str, /) -> Handle[Any]:
        """Return the handle of a run."""

    async def _write(self, operation: Any) -> Any:
        engine = self._need_engine()
        answer = await engine.writer.durable(operation)
        engine.woken.set()
        return answer

    def _operator(self) -> Operator:
        engine = self._need_engine()
        return Operator(engine.store, self._write, engine.clock.now)

    async def send(self, run_id: str, name: str, value: object, /, *, id: str | None = None, by: str = "") -> None:
        """Send a signal to a run; the same `id` a second time is the same signal. Raises UnknownRun, WrongStatus."""
        await self._operator().send(run_id, name, value, id=id, by=by)

    async def cancel(self, run_id: str, /, *, why: str, by: str = "") -> None:
        """Let a run finish what is in flight and start nothing new. Raises UnknownRun, WrongStatus."""
        await self._operator().cancel(run_id, why=why, by=by)

    async def kill(self, run_id: str, /, *, why: str, by: str = "") -> Sequence[str]:
        """Stop a run and its descendants now; return the paths whose outcome is left unknown."""
        return [path for _, path in await self._operator().kill(run_id, why=why, by=by)]

    async def grant(
        self,
        run_id: str,
        /,
        *,
        by: str = "",
        scopes: Iterable[str] = (),
        budget: Cost | None = None,
        why: str = "",
        key: str | Path | None = None,
    ) -> None:
        """Give a run further scopes or money; with `key`, a private key's file, signed in its name.

        Raises UnknownRun, InvalidValue, KeyRefused.
        """
        await self._operator().grant(run_id, by=by, scopes=scopes, budget=budget, why=why, signer=_signer(key))

    async def revoke(
        self, run_id: str, /, *, by: str, why: str, scopes: Iterable[str] = (), ceilings: Cost | None = None
    ) -> bool:
        """Take scopes from a run, or lower what it was granted to ceilings; return whether it holds by now.

        It does not where a worker that is not proven dead has not taken it within five seconds. Raises UnknownRun,
        WrongStatus, InvalidValue.
        """
        dead = self._need_engine().is_dead
        return await self._operator().revoke(
            run_id,
            by=by,
            why=why,
            scopes=scopes,
            ceilings=ceilings,
            dead=lambda one: bool(one.ended_at) or dead(one.id),
        )

    async def set_budget(
        self, pool: str, ceilings: Mapping[str, Decimal | int | None], /, *, per: str = "ever", by: str, why: str
    ) -> int:
        """Set what a shared pool (`total`, `tenant:NAME`, `principal:NAME`) may spend per unit, `ever` or per `day`.

        None lifts a ceiling. Returns how many waiting runs look again. Raises InvalidValue.
        """
        return await self._operator().set_ceiling(pool, ceilings, per=per, by=by, why=why)

    async def budgets(self) -> list[PoolView]:
        """Return every ceiling of the shared pools, with what is spent and reserved of it."""
        engine = self._need_engine()
        return await budgets.pools(engine.store, engine.clock.now())

    async def freeze(self, scope: str, /, *, by: str, why: str) -> None:
        """Let nothing start under `all`, `tool:NAME`, `workflow:NAME` or `tenant:NAME`. Raises UnknownScope."""
        await self._operator().freeze(scope, by=by, why=why)

    async def thaw(self, scope: str, /, *, by: str, why: str, held: bool = False) -> int:
        """Set a scope free, and reset a tool's breaker; `held` lifts holds too. Returns how many runs look again.

        Raises UnknownScope, NothingStopped.
        """
        return (await self._operator().thaw(scope, by=by, why=why, held=held)).woken

    async def switches(self) -> list[Standing]:
        """Return all that is stopped now, and how many runs wait for it."""
        return await switches.standing(self._need_engine().store)

    async def resolve(
        self,
        run_id: str,
        path: str,
        finding: Finding[Any],
        /,
        *,
        by: str = "",
        why: str,
        key: str | Path | None = None,
    ) -> None:
        """Settle an unknown effect on a person's word; with `key`, a private key's file, signed in its name.

        Raises UnknownRun, UnknownStep, InvalidValue, KeyRefused.
        """
        await self._operator().resolve(run_id, path, finding, by=by, why=why, signer=_signer(key))

    async def approve(
        self,
        approval_id: str,
        /,
        *,
        by: str = "",
        why: str = "",
        digest: str | None = None,
        key: str | Path | None = None,
    ) -> None:
        """Approve exactly one effect, once, before it expires. Raises UnknownApproval.

        `digest`, or its beginning, is that of the arguments that were shown: others raise DigestDiffers. With `key`, a
        private key's file, the answer is signed in its name. Raises KeyRefused.
        """
        await self._operator().approve(approval_id, by=by, why=why, digest=digest, signer=_signer(key))

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

    # ------------------------------------------------------------ keeping the store

    async def prune(
        self, *, before: Duration | datetime, by: str, why: str, workflow: str | None = None, dry: bool = False
    ) -> Pruned:
        """Delete runs that ended before a moment, or that long ago, each beside its tombstone; `dry` only looks."""
        engine = self._need_engine()
        now = engine.clock.now()
        until = to_ms(before) if isinstance(before, datetime) else now - parse_ms(before)
        return await retention.prune(
            engine.store, self._write, before=until, now=now, by=by, why=why, workflow=workflow, dry=dry
        )

    async def make_seal(self, to: str | Path, /, *, key: str | Path, by: str = "") -> Seal:
        """Sign where every run's record ends, into a file elsewhere.

        Raises SealBroken or RolledBack where a seal that stands there does not agree; KeyRefused, OSError.
        """
        engine, signer = self._need_engine(), keys.read_private(Path(key))
        now = engine.clock.now()
        return await sealing.seal(engine.store, self._write, signer, Path(to), now, by or signer.name)

    async def export(self, run_ids: Iterable[str], to: str | Path, /, *, key: str | Path) -> Exported:
        """Write whole runs into a signed bundle. Raises UnknownRun, Damaged, KeyRefused, OSError."""
        engine = self._need_engine()
        full = [await engine.store.resolve_id(run_id) for run_id in run_ids]
        return await transfer.export(engine.store, full, keys.read_private(Path(key)), Path(to), engine.clock.now())

    async def take_in(
        self, bundle: str | Path, /, *, trust: str | Path, by: str
    ) -> list[tuple[str, TakenIn | MilepostError]]:
        """Take the runs of a bundle in, none of them driven; return for each id what came of it, refusals as errors.

        Raises BundleRefused, Untrusted, KeyRefused.
        """
        engine = self._need_engine()
        now = engine.clock.now()
        read = transfer.read(Path(bundle), keys.load(Path(trust)), now)
        taken = await transfer.take_in(engine.store, self._write, read, now, by)
        return list(zip([copy.run_id for copy in read.runs], taken, strict=True))


def _signer(key: str | Path | None) -> keys.Signer | None:
    return None if key is None else keys.read_private(Path(key))


def moment_of(deadline: Duration | datetime | None, now: int) -> int | None:
    """Return a deadline as a moment in milliseconds since 1970; a span counts from `now`."""
    if deadline is None:
        return None
    return to_ms(deadline) if isinstance(deadline, datetime) else now + parse_ms(deadline)


def amounts_of(budget: Cost | None) -> dict[str, Decimal]:
    """Return a budget's amounts. Raises InvalidValue."""
    try:
        return amounts(budget)
    except ValueError as error:
        what = "budget"
        raise InvalidValue(what, str(error)) from error
