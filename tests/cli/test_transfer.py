"""Runs that are given away and taken in: with their history, verified first, and nothing resurrects."""

import asyncio
import base64
import json
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from milepost.stores.api import Query, Store
from tests.cli.shop_floor import Shop, drive_all
from tests.cli.test_damage import change


@pytest.fixture
def keyed(shop: Shop) -> Shop:
    """The shop with a key of its own, trusted to export, and an empty second store."""
    shop.ok("keys", "new", "ada", "--folder", "keys")
    shop.ok("keys", "trust", "keys/ada.pub", "--may", "export")
    shop.ok("init", "--store", "other.db")
    return shop


def export(shop: Shop, *runs: str, store: str = "shop.db", to: str = "runs.bundle") -> Any:
    return shop.read("export", *runs, "--to", to, "--key", "keys/ada.key", "--store", store)


def import_(shop: Shop, *, store: str = "other.db", bundle: str = "runs.bundle") -> list[dict[str, Any]]:
    answered = shop.milepost("import", bundle, "--trust", "operators.toml", "--store", store, "--json")
    runs: list[dict[str, Any]] = json.loads(answered.stdout)["runs"]
    assert answered.exit_code == (5 if any(run["refused"] for run in runs) else 0)
    return runs


def drive(shop: Shop, store: str) -> None:
    """Drive every run of a store, in this process."""
    app = shop.app()
    before, app.store = app.store, f"sqlite:///{store}"
    try:
        asyncio.run(drive_all(app))
    finally:
        app.store = before


def everything(path: Path) -> list[tuple[object, ...]]:
    """Return all that a store holds of runs."""
    connection = apsw.Connection(str(path))
    tables = ("mp_runs", "mp_heads", "mp_journal", "mp_chunks", "mp_once", "mp_approvals", "mp_effects", "mp_imports")
    rows: list[tuple[object, ...]] = []
    for table in tables:
        rows += connection.execute(f"SELECT '{table}', * FROM {table} ORDER BY 2, 3, 4").fetchall()  # noqa: S608
    connection.close()
    return rows


def test_a_run_that_ended_comes_in_with_its_whole_history_and_verifies(keyed: Shop) -> None:
    run = keyed.start("buy", "one", "--key", "order-1")
    keyed.drive()
    told = export(keyed, run[:6])
    assert told["runs"] == [{"run": run, "entries": 5}]
    assert stat.S_IMODE((keyed.folder / "runs.bundle").stat().st_mode) == 0o600

    [came] = import_(keyed)

    assert (came["run"], came["imported"]) == (run, True)
    for command in (("journal", run, "--full"), ("effects", run, "--all"), ("show", run)):
        here, there = (keyed.read(*command, "--store", store) for store in ("shop.db", "other.db"))
        if command[0] != "show":
            assert here == there, command
        else:
            assert (there["status"], there["result"]) == (here["status"], here["result"])
    assert keyed.ok("verify", "--store", "other.db").startswith("2 of 2 runs sound")  # its own journal is the second
    drive(keyed, "other.db")
    assert keyed.ledger() == ["one 500"]
    assert keyed.read("start", "buy", '"one"', "--key", "order-1", "--store", "other.db")["run"] == run


def test_a_run_that_had_not_ended_is_blocked_and_no_worker_drives_it(keyed: Shop) -> None:
    run = keyed.start("staged", "seven")
    keyed.drive()
    assert keyed.status(run) == "parked"
    export(keyed, run)

    import_(keyed)
    drive(keyed, "other.db")

    shown = keyed.read("show", run, "--store", "other.db")
    assert shown["status"] == "blocked"
    assert "imported from store" in json.dumps(shown)
    last = keyed.read("journal", run, "--store", "other.db")[-1]
    assert (last["entry"], last["fields"]["code"]) == ("run_stopped", "imported")
    assert keyed.ledger() == ["seven 500"]
    assert keyed.status(run) == "parked", "where it came from it goes on"


def test_an_approval_that_was_given_before_the_export_is_not_given_after_the_import(keyed: Shop) -> None:
    """Requirement 48. The run went on where it came from and used the approval; the copy must not use it once more."""
    run = keyed.start("mailing", "ann")
    keyed.drive()
    [asked] = keyed.read("show", run)["approvals"]
    approval = asked["approval"]
    keyed.ok("approve", approval, "--by", "bob")
    _journal_the_answer(keyed)
    export(keyed, run)
    keyed.drive()
    assert keyed.ledger() == ["mail ann"]

    import_(keyed)
    keyed.ok("resume", run, "--why", "drive it here", "--store", "other.db")
    drive(keyed, "other.db")

    shown = keyed.read("show", run, "--store", "other.db")
    assert (shown["status"], shown["waits_for"]) == ("parked", "approval")
    assert [one["verdict"] for one in shown["approvals"]] == ["asked"]
    assert keyed.ledger() == ["mail ann"]


def test_a_run_that_began_elsewhere_is_not_taken_back_here(keyed: Shop) -> None:
    """Requirement 21. Where it came from it may have been taken back already: then undoing it here undoes it twice."""
    run = keyed.start("buy", "one")
    keyed.drive()
    export(keyed, run)
    import_(keyed)

    code, why = keyed.refused("rewind", run, "--to", "buy", "--why", "the wrong one", "--store", "other.db")

    assert (code, why) == (5, "not_reversible")
    told = keyed.milepost("rewind", run, "--to", "buy", "--dry-run", "--store", "other.db").output
    assert "began in another store" in " ".join(told.split())
    assert keyed.ledger() == ["one 500"]


async def answered(store: Store) -> bool:
    """Whether the one run of a store has taken an approval into its record."""
    [run] = await store.runs(Query())
    return any(b'"approval_answered.1"' in one.body for one in (await store.chain(run.id))[1])


def _journal_the_answer(shop: Shop) -> None:
    """Let the run take the approval into its record, with its tool frozen so that it cannot use it yet."""
    shop.ok("freeze", "tool:mail", "--why", "wait")
    asyncio.run(drive_all(shop.app(), answered))
    assert shop.ledger() == []
    shop.ok("thaw", "tool:mail", "--why", "go on")


def test_money_that_was_left_is_not_brought_along(keyed: Shop) -> None:
    run = keyed.start("mailing", "ann", "--budget", "usd=5")
    keyed.drive()
    assert keyed.read("show", run)["budget"]["granted"] == {"usd": "5"}
    export(keyed, run)

    import_(keyed)

    assert keyed.read("show", run, "--store", "other.db")["budget"]["granted"] == {}


def test_a_run_that_failed_is_not_tried_again_here_before_a_person_lets_it_go_on(keyed: Shop) -> None:
    """Requirement 48. Where it came from it may have been tried again since, and have done what it does."""
    run = keyed.start("failing", None, "--budget", "usd=5")
    keyed.drive()
    assert keyed.status(run) == "failed"
    export(keyed, run)
    keyed.folder.joinpath("mended").touch()
    keyed.ok("retry", run, "--why", "mended")
    keyed.drive()
    assert keyed.status(run) == "done"

    import_(keyed)
    keyed.milepost("retry", run, "--why", "mended", "--store", "other.db")
    drive(keyed, "other.db")

    shown = keyed.read("show", run, "--store", "other.db")
    assert (shown["status"], shown["budget"]["granted"]) == ("blocked", {})
    keyed.ok("resume", run, "--why", "it is deleted there", "--store", "other.db")
    drive(keyed, "other.db")
    assert keyed.read("show", run, "--store", "other.db")["status"] == "done"


def test_what_was_in_flight_comes_in_as_unknown_and_needs_a_person(keyed: Shop) -> None:
    run = keyed.start("faxing", "ann")
    keyed.drive()
    export(keyed, run)

    import_(keyed)

    [effect] = keyed.read("effects", run, "--store", "other.db")
    assert effect["outcome"] == "unknown"
    drive(keyed, "other.db")
    assert keyed.ledger() == ["fax ann"]


def test_the_same_bundle_twice_is_nothing_new(keyed: Shop) -> None:
    runs = [keyed.start("buy", "one"), keyed.start("sleeping")]
    keyed.drive()
    export(keyed, *runs)
    import_(keyed)
    before = everything(keyed.folder / "other.db")

    again = import_(keyed)

    assert [(run["imported"], run["refused"]) for run in again] == [(False, None)] * 2
    assert everything(keyed.folder / "other.db") == before
    assert "is here already" in keyed.ok("import", "runs.bundle", "--trust", "operators.toml", "--store", "other.db")


def test_a_bundle_of_runs_that_went_on_is_nothing_new_where_they_are_at_home(keyed: Shop) -> None:
    run = keyed.start("mailing", "ann")
    keyed.drive()
    export(keyed, run)
    keyed.ok("cancel", run)
    keyed.drive()
    before = everything(keyed.folder / "shop.db")

    assert import_(keyed, store="shop.db")[0]["imported"] is False

    assert everything(keyed.folder / "shop.db") == before
    assert keyed.status(run) == "cancelled"


def test_a_later_bundle_of_a_run_that_came_in_earlier_is_another_chain(keyed: Shop) -> None:
    run = keyed.start("mailing", "ann")
    keyed.drive()
    export(keyed, run)
    import_(keyed)
    keyed.ok("cancel", run)
    keyed.drive()
    export(keyed, run)
    before = everything(keyed.folder / "other.db")

    [refused] = import_(keyed)

    assert refused["refused"] == "refused"
    assert "another chain" in refused["why"]
    assert everything(keyed.folder / "other.db") == before


def test_an_older_bundle_resurrects_no_pruned_run(keyed: Shop) -> None:
    run = keyed.start("buy", "one", "--key", "order-1")
    keyed.drive()
    export(keyed, run)
    keyed.ok("prune", "--before", "0s")

    [refused] = import_(keyed, store="shop.db")

    assert "was pruned" in refused["why"]
    assert keyed.read("runs") == []


def resigned(shop: Shop, lines: list[Any]) -> None:
    """Write lines as a bundle whose end fits them, all but the signature: as who has no key can."""
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    lines[-1]["facts"]["sha256"] = sha256(data).hexdigest()
    (shop.folder / "runs.bundle").write_bytes(data + json.dumps(lines[-1]).encode() + b"\n")


def lines_of(shop: Shop) -> list[Any]:
    return [json.loads(line) for line in (shop.folder / "runs.bundle").read_bytes().splitlines()]


def test_whatever_is_changed_in_a_bundle_it_is_refused_and_nothing_is_taken_in(keyed: Shop) -> None:
    """Requirement 48."""
    keyed_run = keyed.start("buy", "one")
    keyed.drive()
    export(keyed, keyed_run)
    whole, before = (keyed.folder / "runs.bundle").read_bytes(), everything(keyed.folder / "other.db")
    raw = whole.splitlines(keepends=True)
    changed = {
        "a flipped bit": bytes([whole[0], whole[1] ^ 1, *whole[2:]]),
        "a flipped bit in the middle": whole[: len(whole) // 2]
        + bytes([whole[len(whole) // 2] ^ 1])
        + whole[len(whole) // 2 + 1 :],
        "cut": whole[:-40],
        "a line less": b"".join(raw[:3] + raw[4:]),
        "lines swapped": b"".join([*raw[:2], raw[3], raw[2], *raw[4:]]),
        "its end only": raw[-1],
        "nothing": b"",
        "something else": b"\x00" * 100,
    }
    for what, data in changed.items():
        (keyed.folder / "runs.bundle").write_bytes(data)
        code, error = keyed.refused("import", "runs.bundle", "--trust", "operators.toml", "--store", "other.db")
        assert (code, error) in {(2, "bundle_refused"), (2, "untrusted")}, what
    assert everything(keyed.folder / "other.db") == before


def test_a_bundle_whose_lines_were_forged_lacks_the_signature(keyed: Shop) -> None:
    keyed_run = keyed.start("buy", "one")
    keyed.drive()
    export(keyed, keyed_run)
    lines = lines_of(keyed)
    [entry] = [line for line in lines if line["line"] == "entry" and b"receipt" in base64.b64decode(line["body"])][:1]
    entry["body"] = base64.b64encode(base64.b64decode(entry["body"]).replace(b"receipt", b"nothing")).decode()
    resigned(keyed, lines)

    assert keyed.refused("import", "runs.bundle", "--trust", "operators.toml", "--store", "other.db") == (
        2,
        "untrusted",
    )


def test_a_bundle_by_who_may_not_export_is_refused(keyed: Shop) -> None:
    run = keyed.start("buy", "one")
    keyed.ok("keys", "new", "bob", "--folder", "keys")
    keyed.ok("keys", "trust", "keys/bob.pub", "--may", "seal")
    keyed.ok("export", run, "--to", "runs.bundle", "--key", "keys/bob.key")

    assert keyed.refused("import", "runs.bundle", "--trust", "operators.toml", "--store", "other.db") == (
        2,
        "untrusted",
    )
    assert keyed.refused("import", "runs.bundle", "--store", "other.db") == (2, "usage")


def test_a_damaged_run_is_not_exported(keyed: Shop) -> None:
    run = keyed.start("buy", "one")
    keyed.drive()
    change(keyed, "UPDATE mp_journal SET body = CAST(body || ' ' AS BLOB) WHERE seq = 3")

    assert keyed.refused("export", run, "--to", "runs.bundle", "--key", "keys/ada.key") == (1, "damaged")
    assert not (keyed.folder / "runs.bundle").exists()
