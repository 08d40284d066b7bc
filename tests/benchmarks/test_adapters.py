"""The table of the adapters counts in the outside ledger, and would see a repetition; the cost of one is measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.adapters import __main__ as table
from benchmarks.adapters import cost
from benchmarks.adapters.hosts import ALL
from benchmarks.adapters.scenario import Host, Measured, NotMade, durable, without
from benchmarks.child import MAIN, ROOT
from benchmarks.comparing import Bench

LOOP = next(host for host in ALL if "milepost.agents" in host.name)


def test_a_loop_repeats_both_calls_and_the_same_loop_as_a_run_repeats_neither() -> None:
    """Requirement 51. Requirement 53."""
    bare, kept = without(LOOP), durable(LOOP)

    assert bare == Measured(2, 2, 3, "done", 0, None)
    assert kept == Measured(1, 1, 2, "unknown; a person looked: confirmed", 2, 2)
    assert kept.kept


def test_a_host_that_does_not_die_in_the_second_call_is_no_row() -> None:
    ends = Host("ends", "nothing", (MAIN, "this"), LOOP.durable)

    with pytest.raises(NotMade, match="ends: it was not killed in `refund`"):
        without(ends)


@pytest.mark.parametrize(
    "found",
    [
        Measured(2, 1, 2, "unknown; a person looked: confirmed", 2, 2),
        Measured(1, 2, 2, "unknown; a person looked: confirmed", 2, 2),
        Measured(1, 1, 2, "confirmed; a person looked: confirmed", 2, 2),
        Measured(1, 1, 2, "unknown; a person looked: confirmed", 1, 2),
        Measured(1, 1, 2, "unknown; a person looked: confirmed", 2, 1),
        Measured(1, 1, 2, "unknown; a person looked: confirmed", 2, None),
    ],
)
def test_whatever_was_repeated_lost_or_misreported_is_seen(found: Measured) -> None:
    assert not found.kept


def test_the_page_has_two_rows_for_each_host() -> None:
    page = table.PAGE.read_text(encoding="utf-8").partition(table.BEGIN)[2].partition(table.END)[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]

    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        name for host in ALL for name in (host.name, f"{host.name}, **Milepost**")
    ]


def test_what_an_adapter_costs_a_call_is_measured_beside_the_same_host_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirement 41."""
    monkeypatch.setattr(cost, "ADAPTERS", cost.ADAPTERS[-1:])

    (row,) = cost.rows(Bench(rounds=1, scale=0.001, folder=tmp_path))

    assert "without" in row.figure
    assert row.cpu_us is not None
    assert row.cpu_us > 0
    assert row.fresh is not None
    assert row.extended is not None
    assert min(row.fresh, row.extended) > 0, "in bare commits"


def test_an_adapter_whose_environment_is_not_there_is_a_row_that_says_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = cost.Adapter("there", "no.program", "no_such_package.module")
    monkeypatch.setattr(cost, "ADAPTERS", [there, replace(there, environment=".venv-none")])

    rows = cost.rows(Bench(rounds=1, scale=0.001, folder=tmp_path))

    assert [row.figure for row in rows] == [
        f"not installed in {environment}: `make bench ARGS=adapters` sets it up" for environment in (MAIN, ".venv-none")
    ]


def test_every_host_of_the_table_has_a_row_of_its_cost_on_both_pages() -> None:
    measured = [adapter.program.removeprefix("benchmarks.adapters.calls_").split() for adapter in cost.ADAPTERS]
    pages = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("performance.md", "adapters.md")]

    for host in ALL:
        _, program = host.durable
        assert any(all(word in program for word in words) for words in measured), host.name
    assert [adapter.name for adapter in cost.ADAPTERS for page in pages if f"| {adapter.name} |" not in page] == []
