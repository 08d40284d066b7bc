"""The checker catches each violation that is planted: a checker that cannot fail proves nothing."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from milepost.app import open_store
from milepost.core import codec
from milepost.core import entries as e
from milepost.core.chunks import digest_of
from milepost.stores.api import Append, Create, NewRun, Status, Store
from milepost.testing.check import Applied, Violation, check

STEP, KEY, ARGS = ":0", "key-of-one", {"order": "one"}
CHUNKS = {"about": msgspec.json.encode(e.About(workflow="shop", version="1")), "manifest": b"{}"}
CREATED = e.Boundary(
    about=digest_of(CHUNKS["about"]),
    manifest=digest_of(CHUNKS["manifest"]),
    visit=0,
    segment="pay",
    state=msgspec.Raw(b"1"),
)


def plan(effect: str = "keyed", tool: str = "charge", step: str = STEP) -> e.EffectPlanned:
    args = msgspec.Raw(msgspec.json.encode(ARGS))
    return e.EffectPlanned(
        at=2, step=step, path=f"pay/{tool}#1", tool=tool, version="1", effect=effect, digest="d", args=args, key=KEY
    )


def claimed(epoch: int = 1) -> e.Claimed:
    return e.Claimed(at=2, epoch=epoch, owner=f"worker-{epoch}")


def started(
    attempt: int = 1, *, epoch: int = 1, resend: bool = False, planned: e.EffectPlanned | None = None
) -> e.EffectStarted:
    first = planned or (plan() if attempt == 1 and not resend else None)
    return e.EffectStarted(at=3, step=STEP, attempt=attempt, epoch=epoch, deadline=9, plan=first, resend=resend)


def confirmed(by: str = "answer") -> e.EffectConfirmed:
    return e.EffectConfirmed(at=5, step=STEP, attempt=1, result=msgspec.Raw(b'"receipt"'), by=by)


def failed(*, final: bool = True) -> e.EffectFailed:
    return e.EffectFailed(at=5, step=STEP, attempt=1, why="no", reason="rejected", final=final)


def unknown(attempt: int = 1) -> e.EffectUnknown:
    return e.EffectUnknown(at=4, step=STEP, attempt=attempt, why="it died", quiet_at=4, died=True)


def stopped(status: str, *, epoch: int = 0) -> e.RunStopped:
    return e.RunStopped(at=6, status=status, code="code", why="why", epoch=epoch)


def contradicted(step: str = STEP) -> e.Contradicted:
    evidence = "attempt 1 of pay/charge#1 returned after all"
    return e.Contradicted(at=6, step=step, evidence=evidence, by="worker-1", tool="charge")


def boundary() -> e.Checkpointed:
    return e.Checkpointed(at=6, boundary=msgspec.structs.replace(CREATED, visit=1))


def line(key: str = KEY, *, attempt: int = 1, tool: str = "charge", args: dict[str, str] | None = None) -> Applied:
    return Applied(tool, key, attempt, 4, args)


TRUE = {
    "confirmed and applied": ([claimed(), started(), confirmed()], [line(args=ARGS)]),
    "unknown and applied": ([claimed(), started(), unknown()], [line()]),
    "unknown and not applied": ([claimed(), started(), unknown()], []),
    "still in flight": ([claimed(), started()], [line()]),
    "failed and not applied": ([claimed(), started(), failed()], []),
    "failed, applied and contradicted": ([claimed(), started(), failed(), contradicted()], [line()]),
    "contradicted, and looked into by a person": (
        [claimed(), started(), failed(), contradicted(), confirmed("person ann")],
        [line()],
    ),
    "contradicted after its segment": ([claimed(), started(), failed(), boundary(), contradicted("")], [line()]),
    "killed while it was in flight": ([claimed(), started(), stopped("killed", epoch=2)], [line()]),
    "sent again, and known by its key": (
        [claimed(), started(), unknown(), claimed(2), started(2, epoch=2, resend=True), confirmed()],
        [line(attempt=1)],
    ),
    "failed, tried again, confirmed": (
        [claimed(), started(), failed(final=False), started(2), confirmed()],
        [line(attempt=2)],
    ),
    "known by its arguments": ([claimed(), started(), confirmed()], [line("", args=ARGS)]),
    "confirmed by another step with the same identity": ([claimed(), plan(), confirmed("once")], []),
    "a read that was asked twice": (
        [claimed(), started(planned=plan("read")), unknown(), started(2, resend=True), confirmed()],
        [line(attempt=1), line(attempt=2)],
    ),
}
FALSE = {
    "applied twice": ({"repeated"}, [claimed(), started(), confirmed()], [line(), line()]),
    "applied by each of two attempts": (
        {"repeated"},
        [claimed(), started(), unknown(), started(2, resend=True), confirmed()],
        [line(attempt=1), line(attempt=2)],
    ),
    "applied under a key that nobody recorded": ({"unrecorded"}, [claimed(), started(), unknown()], [line("other")]),
    "applied with arguments that nobody recorded": (
        {"unrecorded"},
        [claimed(), started(), unknown()],
        [line("", args={"order": "two"})],
    ),
    "applied under its key, with other arguments": (
        {"altered"},
        [claimed(), started(), confirmed()],
        [line(args={"order": "two"})],
    ),
    "applied before it was started": ({"not_started", "lost"}, [claimed(), plan()], [line()]),
    "applied by an attempt that was not started": (
        {"not_started"},
        [claimed(), started(), unknown()],
        [line(attempt=2)],
    ),
    "applied, and left behind as started": ({"lost"}, [claimed(), started(), stopped("failed")], [line()]),
    "applied, and said to have failed": ({"failed"}, [claimed(), started(), failed()], [line()]),
    "applied, and said to have failed, to be tried again": (
        {"failed"},
        [claimed(), started(), failed(final=False)],
        [line()],
    ),
    "confirmed, and not applied": ({"phantom"}, [claimed(), started(), confirmed()], []),
    "confirmed by a person, and not applied": ({"phantom"}, [claimed(), started(), confirmed("person ann")], []),
    "confirmed, and then failed": ({"rewritten", "damaged"}, [claimed(), started(), confirmed(), failed()], []),
    "failed for good, and begun again": ({"rewritten", "damaged"}, [claimed(), started(), failed(), started(2)], []),
    "one attempt started twice": (
        {"started_twice"},
        [claimed(), started(), unknown(), started(1, resend=True)],
        [line()],
    ),
    "a segment that ended while an effect was unknown": (
        {"left_open"},
        [claimed(), started(), unknown(), boundary()],
        [],
    ),
    "a segment that ended while an effect was started": (
        {"left_open"},
        [claimed(), started(), boundary()],
        [line()],
    ),
    "an epoch that was claimed twice": ({"epoch"}, [claimed(1), claimed(1)], []),
    "an epoch that fell": ({"epoch"}, [claimed(2), claimed(1)], []),
    "killed under no new epoch": ({"epoch"}, [claimed(1), stopped("killed", epoch=1)], []),
    "started under an epoch that was lost": ({"epoch"}, [claimed(1), claimed(2), started(epoch=1), unknown()], []),
    "the outcome of what was never planned": ({"damaged"}, [claimed(), unknown()], []),
}


@pytest.mark.parametrize(("entries", "ledger"), TRUE.values(), ids=TRUE.keys())
def test_a_true_journal_has_no_violations(tmp_path: Path, entries: list[e.Entry], ledger: list[Applied]) -> None:
    with written(tmp_path, entries) as store:
        assert judge(store, ledger) == []


@pytest.mark.parametrize(("rules", "entries", "ledger"), FALSE.values(), ids=FALSE.keys())
def test_each_planted_violation_is_caught(
    tmp_path: Path, rules: set[str], entries: list[e.Entry], ledger: list[Applied]
) -> None:
    with written(tmp_path, entries) as store:
        found = judge(store, ledger)
    assert {violation.rule for violation in found} == rules
    assert all(str(violation).startswith(violation.rule) and violation.why for violation in found)


def test_tools_that_may_repeat_or_leave_no_line_are_named_by_who_asks(tmp_path: Path) -> None:
    with written(tmp_path, [claimed(), started(), confirmed()]) as store:
        assert judge(store, [line(), line()], repeats={"charge"}) == []
        assert judge(store, [], unseen={"charge"}) == []


@pytest.mark.parametrize(
    "planted",
    [
        "UPDATE mp_journal SET body = CAST(replace(body, 'receipt', 'tpiecer') AS BLOB) WHERE seq = 4",
        "DELETE FROM mp_journal WHERE seq = 3",
        "DELETE FROM mp_chunks",
    ],
)
def test_a_record_that_was_changed_behind_our_back_is_damaged(tmp_path: Path, planted: str) -> None:
    with written(tmp_path, [claimed(), started(), confirmed()]):
        pass
    with closing(apsw.Connection(str(tmp_path / "store.db"))) as connection:
        triggers = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}").fetchall()
        connection.execute(planted).fetchall()
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as store:
        assert "damaged" in {violation.rule for violation in judge(store, [line()])}


def test_a_run_whose_record_is_damaged_does_not_hide_what_is_wrong_with_another(tmp_path: Path) -> None:
    with written(tmp_path, [claimed(), unknown()], run="broken") as store:
        write(store, "other", [claimed(), started(), confirmed()])
        found = judge(store, [])
    assert {(violation.rule, violation.run_id) for violation in found} == {("damaged", "broken"), ("phantom", "other")}


def judge(store: Store, ledger: Iterable[Applied], **given: set[str]) -> list[Violation]:
    return asyncio.run(check(store, ledger, **given))


@contextmanager
def written(folder: Path, entries: list[e.Entry], run: str = "run") -> Iterator[Store]:
    """Write a journal by hand, into a real store and with a real chain."""
    with closing(open_store(f"sqlite:///{folder}/store.db", create=True)) as store:
        write(store, run, entries)
        yield store


def write(store: Store, run: str, entries: list[e.Entry]) -> None:
    async def writing() -> None:
        first = codec.encode(e.RunCreated(at=1, run=run, boundary=CREATED))
        chunks = {digest_of(body): body for body in CHUNKS.values()}
        new = NewRun(run, "shop", "1", "digest", first, "pay", 1, None, chunks=chunks)
        await store.commit([Create(new)])
        head = (await store.tail(run)).head
        status = next((Status(entry.status, 6) for entry in entries if isinstance(entry, e.RunStopped)), None)
        await store.commit([Append(head, [codec.encode(entry) for entry in entries], 2, status=status)])

    asyncio.run(writing())
