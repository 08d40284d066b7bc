"""docs/limits.md is true: what still wins, wins; and what is said to be noticed, is noticed."""

import asyncio
import os
import shutil
from pathlib import Path

import apsw
import pytest

import milepost as mp
from milepost.app import open_store
from milepost.cli.opening import writing
from milepost.core.policy import Answer, Request, Rule, Verdict
from milepost.definitions.rules import Policy, PolicyFile, load
from milepost.operations import keys, sealing
from milepost.operations.inspection import Verified
from milepost.stores.api import Query, Switch

Rows = list[tuple[object, ...]]


@mp.tool(effect="read")
async def look(number: int) -> int:
    return number


@mp.workflow(version="1", tools=[look])
async def looking(_run: mp.Run, number: int) -> int:
    return await look(number)


def app_at(place: Path) -> mp.App:
    return mp.App(f"sqlite:///{place}", workflows=[looking])


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Make a store with one finished run."""
    place = tmp_path / "limits.db"
    app_at(place).run(looking, 1, key="first")
    return place


def by_hand(place: Path, *statements: str) -> None:
    """Change a store as its owner can: without its triggers."""
    connection = apsw.Connection(str(place))
    for name in ("mp_journal_no_update", "mp_journal_no_delete"):
        connection.execute(f"DROP TRIGGER {name}").fetchall()
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def verified(place: Path) -> Verified:
    async def ask() -> Verified:
        app = app_at(place)
        async with app.client():
            newest, *_ = await app.inspect.runs(Query())
            return await app.inspect.verify(newest.id)

    return asyncio.run(ask())


def test_a_request_that_lands_after_its_bound_is_applied_twice_and_then_found(tmp_path: Path) -> None:
    ledger: list[str] = []

    @mp.tool(effect="queryable", visible_within="0s", retry=mp.Retry(3, first="1ms"))
    async def pay(call: mp.Call, order: str) -> str:
        if call.attempt == 1:
            raise ConnectionResetError(order)  # the request is on its way, and slower than was declared
        ledger.extend([order, order])  # it lands, and so does the second one
        return order

    @pay.reconcile
    async def find(order: str) -> mp.Finding[str]:
        return mp.conflict(ledger) if ledger[1:] else mp.happened(order) if ledger else mp.did_not_happen()

    @mp.workflow(version="1", tools=[pay])
    async def buy(_run: mp.Run, order: str) -> str:
        return await pay(order)

    app = mp.App(f"sqlite:///{tmp_path}/late.db", workflows=[buy])

    async def switches() -> list[Switch]:
        async with app.client():
            return await app.inspect.switches()

    with pytest.raises(mp.RunBlocked) as blocked:
        app.run(buy, "o-1")

    assert ledger == ["o-1", "o-1"]
    assert blocked.value.reason == "contradicted"
    assert [(switch.scope, switch.kind) for switch in asyncio.run(switches())] == [("tool:pay", "hold")]


def test_a_run_that_was_given_an_outcome_is_not_told_when_it_is_undone(tmp_path: Path) -> None:
    ledger: list[str] = []

    @mp.tool(effect="keyed", key_ttl="24h", once="order")
    async def pay(order: str) -> str:
        ledger.append(f"pay {order}")
        return order

    @mp.tool(effect="keyed", key_ttl="24h")
    async def pay_back(order: str) -> None:
        ledger.append(f"pay back {order}")

    pay.compensate(pay_back)

    @mp.workflow(version="1", tools=[pay])
    async def buy(run: mp.Run, _: int) -> str:
        return await pay("o-1")

    app = mp.App(f"sqlite:///{tmp_path}/undone.db", workflows=[buy])

    async def undo() -> tuple[list[str], str]:
        async with app:
            one, other = [await app.start(buy, number, key=f"key-{number}") for number in (1, 2)]
            await one.result(timeout="60s")
            await other.result(timeout="60s")
            await app.rewind(one.id, to="0", by="ann", why="the wrong order")
            for _ in range(500):
                if "rewound" in [line.name for line in await app.inspect.journal(one.id)]:
                    break
                await asyncio.sleep(0.01)
            await one.result(timeout="60s")
            return ledger, (await other.status()).status

    assert asyncio.run(undo()) == (["pay o-1", "pay back o-1", "pay o-1"], "done")


def test_a_changed_entry_is_noticed(finished: Path) -> None:
    by_hand(
        finished,
        """UPDATE mp_journal SET body = CAST(replace(CAST(body AS TEXT), '"epoch":1', '"epoch":7') AS BLOB)
        WHERE seq = 2 AND run > 0""",
    )

    assert "do not match" in (verified(finished).damage or "")


def test_a_missing_entry_is_noticed(finished: Path) -> None:
    by_hand(finished, "DELETE FROM mp_journal WHERE seq = 2 AND run > 0")

    assert verified(finished).damage is not None


def test_a_tail_that_was_cut_together_with_the_head_is_not_noticed(finished: Path) -> None:
    before = verified(finished)
    by_hand(
        finished,
        "DELETE FROM mp_journal WHERE row = (SELECT max(row) FROM mp_journal)",
        "UPDATE mp_heads SET (row, seq, hash) = (SELECT row, seq, hash FROM mp_journal ORDER BY row DESC LIMIT 1), "
        "boundary = (SELECT min(row) FROM mp_journal)",
        "UPDATE mp_runs SET status = 'running'",
    )

    after = verified(finished)

    assert (before.damage, after.damage) == (None, None)
    assert after.entries == before.entries - 1


def test_an_older_copy_of_the_file_is_not_noticed(finished: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.db"
    shutil.copy(finished, older)  # no process has it open, and its log is empty
    app_at(finished).run(looking, 2, key="second")
    shutil.copy(older, finished)

    assert verified(finished).damage is None
    with pytest.raises(mp.StartConflict):
        app_at(finished).run(looking, 2, key="first")
    assert app_at(finished).run(looking, 3, key="second") == 3  # as if the key had never been used


# ------------------------------------------------------------ policies


def verdict(when: str, answer: Answer = "allow", **args: object) -> Verdict:
    return Policy("p", "1", "0" * 64, [Rule("all", "allow"), Rule("r", answer, when=when)]).decide(
        Request("pay", views={"args": lambda: args})
    )


def test_a_comparison_of_unlike_things_for_equality_is_false_and_no_error() -> None:
    assert verdict("args.cents == '5000'", "deny", cents=5000).answer == "allow"
    assert verdict("args.cents > '5000'", "deny", cents=5000).waits


def test_half_of_an_or_decides_where_the_other_half_has_no_field() -> None:
    when = "args.cents <= 5000 || args.vip"

    assert verdict(when, vip=True).answer == "allow"
    assert verdict(when, vip=False).waits


def test_an_amount_in_a_condition_is_a_float() -> None:
    assert verdict("args.big == 1180591620717411303424.0", "deny", big=2**70 + 1).rule == "r"


def test_a_policy_file_that_is_half_written_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    rules = ['version = "1"', '[[rule]]\nname = "all"\nverdict = "allow"', '[[rule]]\nname = "never"\nverdict = "deny"']
    file = PolicyFile(path)

    path.write_text("\n".join(rules[:2]))
    half = file.decide(Request("pay"))
    path.write_text("\n".join(rules))

    assert (half.answer, file.decide(Request("pay")).answer) == ("allow", "deny")


def test_an_edit_that_keeps_size_time_and_inode_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('version = "1"\n[[rule]]\nname = "all"\nverdict = "allow"')
    file = PolicyFile(path)
    before = file.decide(Request("pay"))
    stat = path.stat()

    path.write_text('version = "1"\n[[rule]]\nname = "al"\nverdict = "deny" \n')
    os.truncate(path, stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    assert path.stat().st_size == stat.st_size
    assert (before.answer, file.decide(Request("pay")).answer) == ("allow", "allow")
    assert load(path).decide(Request("pay")).answer == "deny"


def test_what_a_segment_reads_by_itself_is_not_in_the_provenance(tmp_path: Path) -> None:
    page, sent = tmp_path / "page.txt", []
    page.write_text("write to mallory")
    policy = tmp_path / "policy.toml"
    policy.write_text('version = "1"\n[[rule]]\nname = "all"\nverdict = "allow"\nwhen = "provenance.after == []"\n')

    @mp.tool
    async def mail(to: str) -> None:
        sent.append(to)

    @mp.workflow(version="1", tools=[mail])
    async def desk(_run: mp.Run) -> None:
        await mail(page.read_text())

    mp.App(f"sqlite:///{tmp_path}/p.db", workflows=[desk], policy=str(policy)).run(desk)

    assert sent == ["write to mallory"]


def sealed(place: Path, folder: Path) -> Path:
    """Seal a store, elsewhere."""
    keys.create("ada", folder)
    seal = folder / "store.seal"

    async def sealing_it() -> None:
        store = open_store(f"sqlite:///{place}")
        try:
            await sealing.seal(store, writing(store), keys.read_private(folder / "ada.key"), seal, 1, "ada")
        finally:
            store.close()

    asyncio.run(sealing_it())
    return seal


def test_with_a_seal_a_cut_tail_and_an_older_copy_are_refused(finished: Path, tmp_path: Path) -> None:
    """Requirement 48."""
    older = tmp_path / "older.db"
    shutil.copy(finished, older)
    seal = sealed(finished, tmp_path / "elsewhere")
    app = mp.App(f"sqlite:///{finished}", workflows=[looking], seal=seal)
    assert app.run(looking, 2, key="second") == 2

    shutil.copy(finished, tmp_path / "good.db")
    by_hand(
        finished,
        "DELETE FROM mp_journal WHERE run = 1 AND seq = (SELECT seq FROM mp_heads WHERE run = 1)",
        "UPDATE mp_heads SET (row, seq, hash) = "
        "(SELECT row, seq, hash FROM mp_journal WHERE run = 1 ORDER BY seq DESC) WHERE run = 1",
    )
    with pytest.raises(sealing.SealBroken, match="cut"):
        app.run(looking, 3, key="third")

    shutil.copy(older, finished)
    with pytest.raises(sealing.RolledBack):
        app.run(looking, 3, key="third")


def test_what_was_added_after_the_seal_and_cut_again_is_not_noticed(finished: Path, tmp_path: Path) -> None:
    seal = sealed(finished, tmp_path / "elsewhere")
    shutil.copy(finished, tmp_path / "older.db")
    app_at(finished).run(looking, 2, key="second")
    shutil.copy(tmp_path / "older.db", finished)

    app = mp.App(f"sqlite:///{finished}", workflows=[looking], seal=seal)
    assert app.run(looking, 3, key="second") == 3
