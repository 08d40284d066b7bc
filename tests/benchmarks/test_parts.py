"""Every part of the benchmark runs, in small, and measures what it says; how fast is no matter of a test."""

import json
from pathlib import Path

import pytest

from benchmarks import authority, checkpoint, growth, memory, peers, postgres, recovery, startup, syscalls, throughput
from benchmarks.__main__ import PARTS, main
from benchmarks.baseline import EXTENDED, commits
from benchmarks.comparing import Bench, Row
from benchmarks.timing import Slice


@pytest.fixture
def small(tmp_path: Path) -> Bench:
    return Bench(rounds=1, scale=0.001, folder=tmp_path)


def test_the_yardstick_commits_on_a_fresh_log_and_over_an_extended_one(tmp_path: Path) -> None:
    for extended in (False, True):
        folder = tmp_path / str(extended)
        folder.mkdir()

        assert commits(20, extended=extended)(folder).count == 20

    assert EXTENDED == 16 << 20


def test_every_rate_is_measured_and_stands_beside_both_baselines(small: Bench) -> None:
    """Requirement 41."""
    rows = list(throughput.rows(small))

    assert len({row.work for row in rows}) == len(rows) == 12
    assert all(row.fresh and row.extended and row.cpu_us for row in rows)
    assert sum(row.target is not None for row in rows) == 10


def test_every_effect_asks_the_kernel_for_a_sync_of_its_own(small: Bench) -> None:
    (row,) = syscalls.rows(small)

    assert row.verdict == "met", row.figure


def test_the_checks_of_a_call_are_counted_in_bare_commits_of_the_same_moment(small: Bench) -> None:
    rows = list(authority.rows(small))

    costs, deciding, together, syncs = rows[:6], rows[6], rows[7:13], rows[13:]
    for some in (costs, together):
        assert [row.work.split(",")[0] for row in some[::2]] == [
            "checks of everything",
            "checks of an approval",
            "checks of a budget",
        ]
    assert ["5 runs together" in row.work for row in (*costs, *together)] == [*[False] * 6, *[True] * 6]
    assert all(row.fresh is not None and row.extended is not None for row in (*costs, *together))
    assert [row.target is not None for row in (*costs, *together)] == [*[False] * 6, True, *[False] * 5]
    assert deciding.work == "checks of everything: deciding"
    assert float(deciding.figure.split()[0]) > 0
    assert [row.verdict for row in syncs] == ["met"] * 3, [row.figure for row in syncs]


def test_what_is_declared_costs_what_it_takes_more_than_the_same_calls_without() -> None:
    calls = {kind.name: [Slice(20, 0.02, 0.004)] * 3 for kind in authority.KINDS.values()}
    calls[authority.EVERYTHING.name] = [Slice(20, 0.03, 0.005), Slice(20, 0.9, 0.9), Slice(20, 0.03, 0.005)]
    taken = authority.Taken(calls, [Slice(20, 0.02, 0.001)] * 3, [Slice(20, 0.01, 0.001)] * 3)

    everything, wall, *others = authority.compared(taken, together=5)

    assert (everything.figure, wall.figure) == ("50 µs a call", "500 µs a call")
    assert everything.fresh == pytest.approx(0.05)
    assert everything.extended == pytest.approx(0.1)
    assert everything.verdict == "met"
    assert all(row.fresh == 0 and not row.verdict for row in others)


def test_checkpoints_of_small_and_large_states_are_timed(small: Bench) -> None:
    """Requirement 54."""
    rows = list(checkpoint.rows(small))

    assert [row.work.split(" of ")[2] for row in rows] == ["1 KB, 1 KB", "100 KB, 1 KB", "1,000 KB, 1 KB"]
    assert all(row.fresh and row.cpu_us for row in rows)


def test_a_run_is_recovered_from_where_its_worker_was_killed(small: Bench) -> None:
    rows = list(recovery.rows(small))

    assert [row.work.split("after ")[1] for row in rows] == [
        "10 finished steps",
        "1,000 finished steps",
        "1,000 finished steps",
    ]
    assert all(float(row.figure.split()[0]) > 0 for row in rows)


def test_a_late_turn_of_a_conversation_stores_about_as_much_as_an_early_one(small: Bench) -> None:
    """Requirement 41."""
    bytes_a_turn, time_a_turn = growth.rows(small)

    assert bytes_a_turn.verdict == "met", bytes_a_turn.figure
    assert "ms" in time_a_turn.figure


def test_runs_are_parked_and_looked_at_from_another_process(small: Bench) -> None:
    parked, opened = memory.rows(small)

    assert parked.work == "resident memory added by parking 20 runs"
    assert opened.verdict == "met", opened.figure


def test_the_fleet_is_measured_on_one_durable_server(small: Bench) -> None:
    rows = list(postgres.rows(small))

    work = [row.work for row in rows]
    assert work[0] == "PostgreSQL: one run in sequence", rows[0].figure
    assert work[3] == "PostgreSQL: 100 runs"
    assert [one.split("by ")[1] for one in work[6:9]] == ["1 worker", "2 workers", "4 workers"]
    assert [rows[at].figure.split()[0] for at in (1, 2, 4, 5)] == ["not"] * 4  # those are in another environment
    assert float(rows[9].figure.split()[0].replace(",", "")) > 0
    assert [one.split(" among ")[0] for one in work[11:]] == [
        "PostgreSQL: what is due",
        "PostgreSQL: a claim",
        "PostgreSQL: the list of runs",
        "PostgreSQL: the list of parked runs of a workflow",
    ]
    assert all(row.target is not None for row in rows[10:])


def test_import_and_help_are_timed(small: Bench) -> None:
    rows = list(startup.rows(small))

    assert [row.figure.split()[1] for row in rows] == ["ms", "ms"]


def test_an_engine_that_is_not_installed_is_named_and_one_that_is_gets_its_rows(small: Bench) -> None:
    absent = peers.Peer("Absent", "no_such_engine", "no.such.program", "steps/s", 10, 1)
    present = peers.Peer("Present", "milepost", "tests.benchmarks.tiny_peer", "steps/s", 10, 1)

    rows = list(peers.rows(small, [absent, present]))

    assert (rows[0].work.split(":")[0], rows[0].figure) == ("Absent", "not installed")
    assert [row.figure for row in rows[1:]] == [
        "40 steps/s",
        "200 steps/s",
        "1.0 → 4.0 KB (4.00 times)",
        "1.00 → 2.00 ms",
    ]


def test_a_failing_engine_says_what_went_wrong(small: Bench) -> None:
    broken = peers.Peer("Broken", "milepost", "no.such.program", "steps/s", 10, 1)

    with pytest.raises(RuntimeError, match="No module named"):
        list(peers.rows(small, [broken]))


def test_the_command_prints_the_chosen_parts_as_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baseline", "--rounds", "1", "--scale", "0.001", "--folder", str(tmp_path), "--json"]) == 0

    rows = [Row(**row) for row in json.loads(capsys.readouterr().out)]
    assert [row.work for row in rows] == ["bare commits, fresh log", "bare commits, pre-extended log"]
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_a_part_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed"])

    assert f"there are {', '.join(PARTS)}" in capsys.readouterr().err


def test_a_rate_is_units_in_wall_time() -> None:
    assert Slice(count=100, seconds=0.5, cpu=0.1).rate == 200
