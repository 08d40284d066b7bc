"""An encrypted store does all that every store must do, and holds nothing readable; its chain needs no key."""

import asyncio
import stat
from pathlib import Path

import apsw
import pytest

from milepost.core.chain import verify
from milepost.core.chunks import digest_of
from milepost.errors import Damaged, StoreFailed
from milepost.stores.api import ApprovalRow, EffectRow, Emit, Once, OnceSettled
from milepost.stores.encryption import KeyFileRefused, KeyMissing, WrongKeyFile, load, write
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing import store_conformance as conformance
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append, deliver, status, switch
from tests.stores.conftest import SqlitePlace

CANARY = b"canary-4f7c91zz"
TEXT = CANARY.decode()


class EncryptedPlace(SqlitePlace):
    """A file whose every opening has the key."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.key_file = path.with_name("payload.keys")
        write(self.key_file, "k1", rotate=False)

    async def open(self) -> SqliteStore:
        return SqliteStore(str(self.path), create=True, cipher=load(self.key_file))


@pytest.fixture
def stores(tmp_path: Path) -> EncryptedPlace:
    return EncryptedPlace(tmp_path / "store.db")


class TestBreakers(conformance.Breakers): ...


class TestChildren(conformance.Children): ...


class TestChunks(conformance.Chunks): ...


class TestClaims(conformance.Claims): ...


class TestIdentities(conformance.Identities): ...


class TestInbox(conformance.Inbox): ...


class TestJournal(conformance.Journal): ...


class TestKilling(conformance.Killing): ...


class TestOpening(conformance.Opening): ...


class TestPools(conformance.Pools): ...


class TestProjections(conformance.Projections): ...


class TestRefusals(conformance.Refusals): ...


class TestSchedules(conformance.Schedules): ...


class TestSwitches(conformance.Switches): ...


class TestTransactions(conformance.Transactions): ...


class TestTurns(conformance.Turns): ...


class TestWaits(conformance.Waits): ...


def test_no_part_of_the_suite_is_left_out() -> None:
    run = {base for name, kind in globals().items() if name.startswith("Test") for base in kind.__bases__}

    kept = {
        conformance.Keeping
    }  # it looks at the bytes as they are stored: tests/runtime/test_encrypted.py takes runs in
    assert run | kept == {*conformance.ALL, conformance.Transactions}


async def fill(subject: Subject) -> None:
    """Write the canary wherever a value can stand."""
    head = await subject.held("a1", chunks={digest_of(CANARY): CANARY}, digest=TEXT)
    once = Once("", "charge", TEXT, ":0", TEXT)
    effect = EffectRow(":0", "unknown", "pay/charge#1", "charge", "keyed", 1, 10, TEXT, TEXT)
    asked = ApprovalRow("ap-1", "a1", ":1", "pay/mail#1", "mail", CANARY, 9, "asked")
    await subject.done(append(head, CANARY, once=once, effects=[effect], approvals=[asked], chunks={"d": CANARY}))
    settled = [OnceSettled("", "charge", TEXT, "confirmed", CANARY)]
    hold = switch("tool:charge")
    hold.why = TEXT
    await subject.done(append(head, CANARY, once_settled=settled, status=status("blocked", why=TEXT), holds=[hold]))
    await subject.write(deliver("a1", "m1", CANARY), Emit([("a1", 5, CANARY)]))
    await subject.held("b1")
    kill = conformance.subject.kill("b1")
    kill.why = TEXT
    await subject.done(kill)


def files(stores: EncryptedPlace) -> bytes:
    return b"".join(path.read_bytes() for path in stores.path.parent.glob("store.db*") if path.is_file())


def filled(stores: EncryptedPlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        await fill(subject)
        assert CANARY not in files(stores)  # the log is there
        subject.close()

    asyncio.run(scene())


def test_no_value_is_found_in_the_file_or_its_log_and_each_is_read_back(stores: EncryptedPlace) -> None:
    filled(stores)

    assert CANARY not in files(stores)
    assert digest_of(CANARY).encode() not in files(stores), "whoever guesses a state could confirm it"

    async def read() -> None:
        store = await stores.open()
        before, entries, head = await store.chain("a1")
        assert verify("a1", before, 1, ((one.seq, one.body, one.hash) for one in entries), head.hash) == 4
        assert [one.plain for one in entries][2:] == [CANARY, CANARY]
        assert await store.chunk("a1", digest_of(CANARY)) == CANARY
        assert [body for _, body in await store.inbox("a1")] == [CANARY]
        assert [body for _, _, body in await store.events("a1", 0)] == [CANARY]
        assert (await store.run("a1")).why == (await store.run("b1")).why == TEXT
        [effect] = await store.effects("a1")
        assert (effect.why, effect.person) == (TEXT, TEXT)
        assert [row.args for row in await store.approvals("ap")] == [CANARY]
        assert [row.why for row in await store.switches()] == [TEXT]
        once = await store.once("", "charge", TEXT)
        assert once is not None
        assert (once.digest, once.result) == (TEXT, CANARY)
        store.close()

    asyncio.run(read())


def test_without_the_key_the_chain_verifies_and_what_it_says_is_refused_by_the_keys_name(
    stores: EncryptedPlace,
) -> None:
    filled(stores)

    async def read() -> None:
        store = SqliteStore(str(stores.path))
        before, entries, head = await store.chain("a1")
        assert verify("a1", before, 1, ((one.seq, one.body, one.hash) for one in entries), head.hash) == 4
        with pytest.raises(KeyMissing, match="'k1'"):
            _ = entries[0].plain
        with pytest.raises(KeyMissing, match="'k1'"):
            store.plain("a1", "entry 1", entries[0].body)
        for waiting in (store.inbox("a1"), store.approvals("ap"), store.events("a1", 0)):
            with pytest.raises(KeyMissing) as missing:
                await waiting
            assert missing.value.key_id == "k1"
        assert (await store.run("a1")).why == "[encrypted, key k1]"
        assert [row.why for row in await store.switches()] == ["[encrypted, key k1]"]
        subject = Subject(stores, store)
        (answer,) = await subject.write(deliver("a1", "m2"))
        assert answer.code == "key_missing"
        store.close()

    asyncio.run(read())


def test_a_key_file_of_another_store_opens_nothing(stores: EncryptedPlace, tmp_path: Path) -> None:
    filled(stores)
    write(tmp_path / "other.keys", "k1", rotate=False)
    before = files(stores)

    with pytest.raises(WrongKeyFile):
        SqliteStore(str(stores.path), cipher=load(tmp_path / "other.keys"))

    assert files(stores) == before


@pytest.mark.parametrize("table", ["mp_journal", "mp_chunks", "mp_inbox"])
def test_the_database_itself_refuses_what_is_plain(stores: EncryptedPlace, table: str) -> None:
    """Requirement 73."""
    filled(stores)
    plain = {
        "mp_journal": "INSERT INTO mp_journal (row, run, seq, body, hash) VALUES (99, 1, 9, x'7B7D', x'00')",
        "mp_chunks": "INSERT INTO mp_chunks (run, digest, body) VALUES (1, 'x', x'7B7D')",
        "mp_inbox": "INSERT INTO mp_inbox (run, message_id, body) VALUES (1, 'x', x'7B7D')",
    }
    file = apsw.Connection(str(stores.path))
    with pytest.raises(apsw.ConstraintError, match="this store is encrypted"):
        file.execute(plain[table]).fetchall()
    file.close()


def test_a_process_that_had_it_open_before_it_was_encrypted_writes_nothing_plain(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "store.db")
    key_file = tmp_path / "payload.keys"
    write(key_file, "k1", rotate=False)

    async def scene() -> None:
        older = Subject(place, await place.open())
        await older.create("a1")
        newer = SqliteStore(str(place.path), cipher=load(key_file))
        await older.write(deliver("a1", "m1"), store=newer)
        with pytest.raises(StoreFailed, match="this store is encrypted"):
            await older.write(deliver("a1", "m2", CANARY))
        assert await newer.inbox("a1") == [(1, b"hello")]
        assert [one.plain for one in (await newer.chain("a1"))[1]] == [b"created a1"], "what was plain is still read"
        newer.close()
        older.close()

    asyncio.run(scene())


def test_an_identity_that_was_claimed_before_the_store_was_encrypted_stays_claimed(tmp_path: Path) -> None:
    place, key_file = SqlitePlace(tmp_path / "store.db"), tmp_path / "payload.keys"
    write(key_file, "k1", rotate=False)

    async def scene() -> None:
        older = Subject(place, await place.open())
        head = await older.held("a1")
        await older.done(append(head, b"started", once=Once("", "charge", TEXT, ":0", "d1")))
        older.close()
        store = SqliteStore(str(place.path), cipher=load(key_file))
        newer = Subject(place, store)
        second = await newer.held("a2")
        (answer,) = await newer.write(append(second, b"started", once=Once("", "charge", TEXT, ":0", "d1")))
        assert answer.code == "once_taken"
        assert (answer.row.run_id, answer.row.digest) == ("a1", "d1")
        assert (await store.once("", "charge", TEXT) or answer.row).run_id == "a1"
        newer.close()

    asyncio.run(scene())
    assert CANARY not in place.path.read_bytes()


def test_after_a_rotation_old_values_are_read_and_new_ones_are_written_under_the_new_key(
    stores: EncryptedPlace,
) -> None:
    filled(stores)
    older = load(stores.key_file)
    write(stores.key_file, "k2", rotate=True)
    assert stat.S_IMODE(stores.key_file.stat().st_mode) == 0o600

    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        head = await subject.claim("a1", "worker-2", "worker-1")
        await subject.done(append(head, b"after"))
        entries = (await store.chain("a1"))[1]
        assert [one.plain for one in entries][2:] == [CANARY, CANARY, b"claimed 2", b"after"]
        assert [b"\x02k2" in one.body[:8] for one in entries] == [False] * 4 + [True] * 2
        assert (await store.once("", "charge", TEXT)) is not None
        subject.close()
        left = SqliteStore(str(stores.path), cipher=older)
        with pytest.raises(KeyMissing, match="'k2'"):
            _ = [one.plain for one in (await left.chain("a1"))[1]]
        left.close()

    asyncio.run(scene())


def test_a_value_is_readable_only_where_it_was_written(stores: EncryptedPlace) -> None:
    """Requirement 48. What is moved to another entry, run or place, or changed in a bit, is damage."""
    cipher = load(stores.key_file)
    sealed = cipher.seal("a1", "entry 3", CANARY)

    assert cipher.open("a1", "entry 3", sealed) == CANARY
    for run, place, data in (
        ("a1", "entry 4", sealed),
        ("b1", "entry 3", sealed),
        ("a1", "chunk 3", sealed),
        ("a1", "entry 3", sealed[:-1] + bytes([sealed[-1] ^ 1])),
        ("a1", "entry 3", sealed[:20]),
        ("a1", "entry 3", sealed[:4]),
    ):
        with pytest.raises(Damaged) as found:
            cipher.open(run, place, data)
        assert TEXT not in str(found.value)
    assert sealed != cipher.seal("a1", "entry 3", CANARY), "equal values must not show"
    assert TEXT not in repr(cipher)


def test_a_text_that_only_looks_encrypted_is_shown_as_unreadable_and_breaks_nothing(stores: EncryptedPlace) -> None:
    cipher = load(stores.key_file)

    for text in ("mpe:", "mpe:zz", "mpe:AAAA", "mpe:é"):
        assert cipher.open_text("a1", "why", text).startswith("[encrypted")
    assert cipher.open_text("a1", "why", "plain") == "plain"


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "current = 'k1'", "current = 'k2'\nnames = '%s'\n[keys]\nk1 = '%s'",
        "current = 'k1'\nnames = 'short'\n[keys]\nk1 = '%s'", "current = 'k1'\nnames = '%s'\nkeys = 3",
        "current = 'k1'\nnames = '%s'\n[keys]\nk1 = 3", "current = 'a b'\nnames = '%s'\n[keys]\n'a b' = '%s'",
    ],
)  # fmt: skip
def test_a_key_file_that_is_none_is_refused_without_a_word_of_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "payload.keys"
    key = "A" * 43 + "="
    path.write_text(text.replace("%s", key))
    path.chmod(0o600)

    with pytest.raises(KeyFileRefused) as refused:
        load(path)
    assert key not in str(refused.value)


def test_a_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "payload.keys"
    write(path, "k1", rotate=False)
    before = path.read_bytes()

    for key_id, rotate in (("k1", False), ("k2", False), ("k1", True), ("bad name", True)):
        with pytest.raises(KeyFileRefused):
            write(path, key_id, rotate=rotate)
    assert path.read_bytes() == before
    path.chmod(0o644)
    with pytest.raises(KeyFileRefused, match="chmod 600"):
        load(path)
