"""A fleet goes through a small soak; and what leaks, grows or is lost there is seen."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from milepost.app import open_store
from soak.__main__ import BEGIN, END, main, soak, write
from soak.judging import LEFT_OVER, bytes_of, leaks, missed, trend
from soak.report import Report
from soak.watching import PER_PROCESS, Quarter, Table, Watch
from tests.servers.fixtures import OwnPostgres, own_postgres, postgres_servers

__all__ = ["own_postgres", "postgres_servers"]

SEED = 2_026
WORK_S = 14.0


@pytest.mark.timeout(400)  # what is under way at its end may take two minutes on a busy machine
def test_a_fleet_loses_and_leaks_nothing_through_kills_restarts_and_a_deploy(tmp_path: Path) -> None:
    """Requirement 33. Requirement 50. Requirement 51. Requirement 69."""
    report = soak(tmp_path, SEED, WORK_S)

    found = {row.what: row.cells[-1] for row in report.rows}
    assert report.problems == [], report.as_text()
    assert int(found["runs that are done"].replace(",", "")) > 0
    assert int(found["effects in the outside ledgers"].replace(",", "")) > 0
    assert "2 restarts of the database" in report.title
    assert " 0 workers killed" not in report.title


# ------------------------------------------------------------ what must never be is seen


@pytest.fixture
def watch(own_postgres: OwnPostgres) -> Iterator[Watch]:
    """A watch over an empty store."""
    server = own_postgres(18, settings={"max_prepared_transactions": "2"})
    url = server.url(server.create_database())
    open_store(url, create=True).close()
    made = Watch(url)
    yield made
    made.close()


def left_over(watch: Watch, local: Path) -> set[str]:
    report = Report("leaks")
    leaks(SimpleNamespace(watch=watch, local=local, workers=[]), report)  # type: ignore[arg-type]
    return {row.what.removeprefix("left over: ") for row in report.rows if row.problems}


def test_what_is_left_over_on_the_server_is_named(watch: Watch, tmp_path: Path) -> None:
    assert left_over(watch, tmp_path) == set()

    (tmp_path / "gone.lock").touch()
    with psycopg.connect(watch.url, autocommit=True, application_name="milepost") as leak:
        leak.execute("SELECT pg_advisory_lock(7)")
        leak.execute("SELECT pg_create_physical_replication_slot('forgotten')")
        leak.execute("BEGIN")
        leak.execute("INSERT INTO mp_effects VALUES (7, '1', 'a', 't', 'keyed', 'unknown', 1)")
        leak.execute("PREPARE TRANSACTION 'forgotten'")
        leak.execute("INSERT INTO mp_inbox (run, message_id, body) VALUES (7, 'm', 'x')")
        leak.execute("INSERT INTO mp_waits VALUES ('tool:t', 7, 1, 0, 0)")
        leak.execute("INSERT INTO mp_effects VALUES (8, '1', 'a', 't', 'keyed', 'unknown', 1)")
        leak.execute("INSERT INTO mp_reserved VALUES ('total', -1, 'usd', 7, '1', '5')")
        leak.execute("INSERT INTO mp_approvals VALUES ('a', 7, '1', 'p', 't', '', 1, 'asked')")
        leak.execute("INSERT INTO mp_workers VALUES ('w', 'h', 1, 1, 9999999999999)")
        leak.execute("UPDATE mp_runs SET owner = 'w'")
        leak.execute("BEGIN")

        found = left_over(watch, tmp_path)
        leak.execute("COMMIT")
        leak.execute("ROLLBACK PREPARED 'forgotten'")

    assert found >= {*LEFT_OVER} - {"runs that a worker holds"}
    assert "lock files of this machine" in found


def test_more_connections_than_the_processes_may_have_are_seen(watch: Watch) -> None:
    held = [psycopg.connect(watch.url, application_name="milepost") for _ in range(PER_PROCESS + 1)]

    watch.look(processes=2)
    assert watch.above == []
    watch.look(processes=1)
    for one in held:
        one.close()

    assert len(watch.above) == 1


def test_a_worker_that_needs_more_and_more_memory_is_seen_and_one_that_warms_up_is_not() -> None:
    assert trend([60_000 + 400 * moment for moment in range(100)]) == ["from 65 to 91 MB"]
    assert trend([60_000 + min(6_000, 400 * moment) for moment in range(100)]) == []


def test_a_table_that_does_not_come_back_is_seen() -> None:
    swollen = [Quarter(1.0, {"mp_effects": Table(0, 90_000), "mp_heads": Table(100, 9_000), "mp_journal": Table(9, 9)})]

    assert bytes_of("mp_effects", swollen)[1] == ["90000 kB"]
    assert bytes_of("mp_heads", swollen)[1] == ["9000 kB"]
    assert bytes_of("mp_journal", swollen)[1] == []


def test_a_minute_without_a_tick_or_with_two_is_seen() -> None:
    ticks = [f"tick@2026-11-30T03:{minute:02}:00Z" for minute in (1, 2, 3)]

    assert list(missed(ticks)) == []
    assert len(list(missed([ticks[0], ticks[2]]))) == 1
    assert len(list(missed([ticks[0], *ticks]))) == 1


def test_a_violation_fails_the_soak_and_is_printed_with_its_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n\nold\n\n{END}\nafter\n")
    report = Report("Seed 7")
    report.add("runs", 1_200)

    assert main(["--seed", "7", "--write"], page=page, run=lambda *_: report) == 0
    assert "| runs |  |  |  |  | 1,200 |  |  |" in page.read_text()
    assert page.read_text().startswith(f"before\n{BEGIN}\n\nSeed 7\n")
    assert page.read_text().endswith(f"{END}\nafter\n")
    report.add("leaks", 1, must="none", problems=["one"])
    assert main(["--seed", "7"], page=page, run=lambda *_: report) == 1

    said = capsys.readouterr().out
    assert "VIOLATED  leaks: one" in said
    assert "--seed 7" in said


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")

    with pytest.raises(SystemExit):
        write(page, Report("Seed 7"))

    assert page.read_text() == "nothing"
