"""A seal finds what no chain shows: a cut tail, a chain computed anew, a run that is gone, an older copy."""

import json
import shutil
from collections.abc import Callable
from typing import Any, cast

import apsw
import pytest

from milepost.core.chain import genesis, link
from tests.cli.shop_floor import Shop
from tests.cli.test_damage import change
from tests.polling import eventually

OLDER = "older"


@pytest.fixture
def keyed(shop: Shop) -> Shop:
    """The shop with a key of its own, trusted to seal and to export."""
    shop.ok("keys", "new", "ada", "--folder", "keys")
    shop.ok("keys", "trust", "keys/ada.pub", "--may", "seal", "--may", "export")
    return shop


def seal(shop: Shop) -> Any:
    return shop.read("seal", "--to", "shop.seal", "--key", "keys/ada.key")


def compare(shop: Shop) -> tuple[int, list[tuple[str, str, int | None]]]:
    """Verify with the seal; return the exit code, and of each difference its kind, run and entry."""
    answered = shop.milepost("verify", "--seal", "shop.seal", "--trust", "operators.toml", "--json")
    assert answered.stdout, answered.output
    told = json.loads(answered.stdout)
    return answered.exit_code, [(one["kind"], one["run"], one["entry"]) for one in told["seal"]["differences"]]


def keep(shop: Shop) -> None:
    """Copy the store aside, as a backup has it: nobody has it open."""
    (shop.folder / OLDER).mkdir()
    for path in shop.folder.glob("shop.db*"):
        if path.is_file():
            shutil.copy(path, shop.folder / OLDER / path.name)


def restore(shop: Shop) -> None:
    """Put the copy in the place of the store."""
    for path in shop.folder.glob("shop.db*"):
        if path.is_file():
            path.unlink()
    for path in (shop.folder / OLDER).iterdir():
        shutil.copy(path, shop.folder / path.name)


def run_number(shop: Shop, run: str) -> int:
    connection = apsw.Connection(str(shop.folder / "shop.db"))
    [(number,)] = connection.execute("SELECT run FROM mp_runs WHERE id = ?", (run,)).fetchall()
    connection.close()
    return int(cast("int", number))


def cut(shop: Shop, run: str) -> None:
    """Cut a run's last entry off, and set its head as if it had never been: its chain verifies."""
    number = run_number(shop, run)
    last = "SELECT row, seq, hash FROM mp_journal WHERE run = ?1 ORDER BY seq DESC"
    for sql in (
        "DELETE FROM mp_journal WHERE run = ?1 AND seq = (SELECT seq FROM mp_heads WHERE run = ?1)",
        f"UPDATE mp_heads SET (row, seq, hash) = ({last}) WHERE run = ?1",  # noqa: S608  our own statement
        "UPDATE mp_runs SET status = 'running' WHERE run = ?1",
    ):
        change(shop, sql, values=(number,))


def rewrite(shop: Shop, run: str) -> None:
    """Change what a run says it did, and compute its whole chain anew."""
    number = run_number(shop, run)
    connection = apsw.Connection(str(shop.folder / "shop.db"))
    [(store,)] = connection.execute("SELECT value FROM mp_meta WHERE name = 'store_id'").fetchall()
    rows = connection.execute("SELECT row, body FROM mp_journal WHERE run = ? ORDER BY seq", (number,)).fetchall()
    connection.close()
    digest = genesis(str(store), run)
    for row, body in cast("list[tuple[int, bytes]]", rows):
        forged = body.replace(b"receipt for", b"nothing for")
        digest = link(digest, forged)
        change(shop, "UPDATE mp_journal SET body = ?, hash = ? WHERE row = ?", values=(forged, digest, row))
    change(shop, "UPDATE mp_heads SET hash = ? WHERE run = ?", values=(digest, number))


def delete(shop: Shop, run: str) -> None:
    """Delete a run without a trace."""
    number = run_number(shop, run)
    for table in ("journal", "chunks", "heads", "runs"):
        change(shop, f"DELETE FROM mp_{table} WHERE run = ?", values=(number,))  # noqa: S608  a table's own name


def bury(shop: Shop, run: str) -> None:
    """Delete a run behind a tombstone that no pruning wrote."""
    number = run_number(shop, run)
    change(
        shop,
        "INSERT INTO mp_tombstones (run, id, seq, hash, digest, workflow, status, at, by, why) "
        "SELECT run, id, seq, hash, digest, workflow, status, 1, 'ann', '' FROM mp_runs JOIN mp_heads USING (run) "
        "WHERE run = ?",
        values=(number,),
    )
    delete(shop, run)


def test_a_store_that_only_grew_agrees_with_its_seal(keyed: Shop) -> None:
    one = keyed.start("sleeping")
    keyed.drive()
    told = seal(keyed)
    assert (told["sequence"], told["runs"], told["by"]) == (1, 1, "ada")
    assert compare(keyed) == (0, [])

    keyed.start("buy", "two")
    keyed.ok("cancel", one, "--why", "no more")
    keyed.drive()

    assert keyed.status(one) == "cancelled"
    assert compare(keyed) == (0, [])
    said = keyed.ok("verify", "--seal", "shop.seal", "--trust", "operators.toml")
    assert "Seal 1 of" in said
    assert "agrees, " in said
    assert seal(keyed)["sequence"] == 2


@pytest.mark.parametrize(
    ("damage", "kind", "entry"),
    [(cut, "cut", 5), (rewrite, "rewritten", 5), (delete, "deleted", 1), (bury, "deleted", 1)],
    ids=["a cut tail", "a chain computed anew", "a deleted run", "a deletion behind a forged tombstone"],
)
def test_what_no_chain_shows_the_seal_does_and_names_the_run_and_the_entry(
    keyed: Shop, damage: Callable[[Shop, str], None], kind: str, entry: int
) -> None:
    """Requirement 48."""
    whole, run = keyed.start("buy", "one"), keyed.start("buy", "two")
    keyed.drive()
    seal(keyed)

    damage(keyed, run)

    assert keyed.milepost("verify").exit_code == 0, "without the seal this is not seen"
    assert compare(keyed) == (1, [(kind, run, entry)])
    shown = keyed.milepost("verify", "--seal", "shop.seal", "--trust", "operators.toml")
    assert f"{kind.upper()}  run {run}, from entry {entry} on:" in shown.stdout
    assert whole not in shown.stdout
    assert keyed.refused("seal", "--to", "shop.seal", "--key", "keys/ada.key") == (4, "seal_broken")
    assert keyed.refused("worker", "--seal", "shop.seal") == (4, "seal_broken")


def test_a_tail_that_was_cut_and_grown_anew_does_not_pass_for_the_old_one(keyed: Shop) -> None:
    """Requirement 48."""
    run = keyed.start("mailing", "ann")
    keyed.drive()
    seal(keyed)
    cut(keyed, run)
    change(keyed, "UPDATE mp_runs SET due = 1, status = 'ready'")
    keyed.drive()
    keyed.drive()

    code, differences = compare(keyed)

    assert code == 1
    assert [(kind, of) for kind, of, _ in differences] == [("rewritten", run)]


def test_an_older_copy_of_the_store_is_refused_before_anything_is_claimed(keyed: Shop) -> None:
    """Requirement 48. Requirement 4. The older copy knows nothing of the charge, and would do it again."""
    run = keyed.start("buy", "one")
    keep(keyed)
    keyed.drive()
    assert keyed.ledger() == ["one 500"]
    seal(keyed)

    restore(keyed)

    assert keyed.status(run) == "ready"
    assert compare(keyed) == (1, [("rolled_back", "system", 1), ("rolled_back", run, 2)])
    before = keyed.read("journal", run)
    assert keyed.refused("worker", "--seal", "shop.seal", "--trust", "operators.toml") == (4, "rolled_back")
    assert keyed.read("journal", run) == before
    assert keyed.ledger() == ["one 500"]
    assert keyed.refused("seal", "--to", "shop.seal", "--key", "keys/ada.key") == (4, "rolled_back")


def test_an_older_copy_is_seen_even_where_no_run_moved_since(keyed: Shop) -> None:
    """Requirement 48."""
    keyed.start("sleeping")
    keyed.drive()
    seal(keyed)
    keep(keyed)
    seal(keyed)

    restore(keyed)

    assert compare(keyed) == (1, [("rolled_back", "system", 2)])


def test_another_store_and_a_new_one_in_its_place_are_refused(keyed: Shop) -> None:
    keyed.start("buy", "one")
    seal(keyed)
    for path in keyed.folder.glob("shop.db*"):
        if path.is_file():
            path.unlink()

    assert keyed.refused("worker", "--seal", "shop.seal") == (4, "store_missing")
    assert not (keyed.folder / "shop.db").exists()
    keyed.ok("init", "--store", "shop.db")
    assert compare(keyed)[1][0][0] == "other_store"
    assert keyed.refused("worker", "--seal", "shop.seal") == (4, "seal_broken")


def test_a_pruned_run_is_no_deleted_one_and_is_named_with_who_pruned_it(keyed: Shop) -> None:
    run = keyed.start("buy", "one")
    keyed.drive()
    seal(keyed)

    keyed.ok("prune", "--before", "0s", "--by", "ann")

    assert compare(keyed) == (0, [])
    shown = keyed.milepost("verify", "--seal", "shop.seal", "--trust", "operators.toml")
    assert f"run {run} was pruned since, by ann" in shown.output
    seal(keyed)
    change(keyed, "DELETE FROM mp_tombstones")
    assert compare(keyed) == (1, [("deleted", run, 5)])


@pytest.mark.parametrize(
    ("old", "new"),
    [('"runs": 1', '"runs": 2'), ('"sequence": 1', '"sequence": 9'), ('"system",', '"sytsem",'), ('"ada"', '"bob"')],
)
def test_a_seal_that_was_changed_is_none(keyed: Shop, old: str, new: str) -> None:
    keyed.start("buy", "one")
    seal(keyed)
    file = keyed.folder / "shop.seal"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))

    assert keyed.refused("verify", "--seal", "shop.seal") == (2, "seal_unreadable")
    assert keyed.refused("worker", "--seal", "shop.seal") == (2, "seal_unreadable")


def test_a_seal_by_a_stranger_or_by_who_may_not_seal_is_not_believed(keyed: Shop) -> None:
    keyed.start("buy", "one")
    keyed.ok("keys", "new", "mallory", "--folder", "keys")
    keyed.ok("seal", "--to", "shop.seal", "--key", "keys/mallory.key")

    assert keyed.milepost("verify", "--seal", "shop.seal").exit_code == 0, "whose key it is was not asked"
    assert keyed.refused("verify", "--seal", "shop.seal", "--trust", "operators.toml") == (2, "untrusted")
    keyed.ok("keys", "trust", "keys/mallory.pub", "--may", "approve")
    assert keyed.refused("worker", "--seal", "shop.seal", "--trust", "operators.toml") == (2, "untrusted")


def test_a_missing_seal_stops_the_worker_and_is_no_reason_to_go_on(keyed: Shop) -> None:
    keyed.start("buy", "one")

    assert keyed.refused("worker", "--seal", "gone.seal") == (2, "seal_unreadable")
    assert keyed.ledger() == []


def test_a_worker_with_a_seal_that_agrees_drives_and_the_store_goes_on_agreeing(keyed: Shop) -> None:
    run = keyed.start("buy", "one")
    seal(keyed)

    keyed.worker("--seal", "shop.seal", "--trust", "operators.toml")

    eventually(lambda: keyed.status(run) == "done", saying="the run is done")
    assert compare(keyed) == (0, [])
