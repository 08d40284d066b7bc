"""Each fault of the scoreboard is run for real, a few tries of it; and the table tells what was lost."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from faults.__main__ import BEGIN, END, main
from faults.noted import NOTES, unacknowledged
from faults.running import Theatre, run, schedule, theatre
from faults.scenarios import FAULTS
from faults.scoreboard import (
    POSTGRES,
    SQLITE,
    STORES,
    TEMPORAL,
    WITH_A_PERSON,
    Fault,
    Row,
    as_markdown,
    as_text,
    complaints,
    kept,
    total,
)
from faults.stage import Stage, Try
from faults.strace import ToolMissing
from milepost.testing.world import Rules, Toxic
from tests.tidy.repository import text

SEED = 2_026
ON = {SQLITE: {*range(1, 14), *range(16, 26)}, POSTGRES: {12, 13, 14, 15, 20}, TEMPORAL: {2, 3, 6, 12, 13, 15}}


@pytest.fixture(scope="module")
def stages() -> Iterator[Theatre]:
    with theatre() as opened:
        yield opened


@pytest.mark.parametrize(
    "fault", FAULTS, ids=lambda fault: f"{fault.number}-{fault.store}-{fault.name.replace(' ', '-')}"
)
def test_no_fault_loses_an_effect_or_repeats_one(stages: Theatre, fault: Fault) -> None:
    """Requirement 87. Requirement 33. Requirement 50. Requirement 51. Requirement 69."""
    row = Row(fault)
    for seed in range(SEED, SEED + fault.smoke):
        done, slow = stages.tried(fault, seed)
        row.add(seed, done)
        row.again += slow and not done.problems

    assert complaints([row]) == [], "\n".join(complaints([row]))
    assert row.verdict == "survived" or (row.verdict == "survived with a person" and fault.number in WITH_A_PERSON)


@pytest.mark.parametrize("store", STORES)
def test_every_fault_that_concerns_a_store_has_a_scenario_and_none_has_two(store: str) -> None:
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", text("docs/FAULTS.md"), re.MULTILINE)}

    assert sorted(fault.number for fault in FAULTS if fault.store == store) == sorted(ON[store])
    assert listed == ON[SQLITE] | ON[POSTGRES]


def test_the_page_that_is_published_has_every_fault_and_none_of_them_lost() -> None:
    page = text("docs/reliability.md")
    rows = kept(page, FAULTS)

    assert [fault.key for fault in FAULTS if fault.key not in {row.fault.key for row in rows}] == []
    assert [row.fault.key for row in rows if row.points < int(row.fault.least * row.tries)] == []
    assert {row.fault.number for row in rows if row.verdict == "survived with a person"} <= WITH_A_PERSON
    assert {row.verdict for row in rows} <= {"survived", "survived with a person"}
    assert as_markdown(rows).splitlines()[0] in page
    assert not re.search(r"\| (lost|not run) \|", page)


def test_a_column_that_is_written_anew_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    both = [fault for fault in FAULTS if fault.number in {12, 19}]
    rows = [Row(fault, tries=10 + place, points=9, asked=fault.number == 19, cut=3, gap=fault.number == 19 and 2)
            for place, fault in enumerate(both)]  # fmt: skip
    page = f"{BEGIN}\n\n{as_markdown(rows)}\n\n{END}"

    again = kept(page, [fault for fault in both if fault.store != POSTGRES])

    mended = [*again, *(row for row in rows if row.fault.store == POSTGRES)]
    assert {row.fault.store for row in again if row.fault.number == 12} == {SQLITE, TEMPORAL}
    assert as_markdown(mended) == as_markdown(rows)


# ------------------------------------------------------------ what is lost is seen


def careless(stage: Stage) -> None:
    """A provider that forgets keys at once, and a tool that says it remembers them: the resend is a second effect."""
    stage.declare(hears_s=0.25)
    stage.outside.obey(Rules(script=(Toxic("drop"),), knows_keys_ms=0))
    stage.result.met(stage.outside)
    stage.done("one", "charge")


def planted(play: object, number: int = 5) -> Fault:
    return Fault(number, "planted", "by a test", "that it is seen", play, tries=2)  # type: ignore[arg-type]


def test_an_effect_that_is_applied_twice_is_lost_and_fails_the_run_with_its_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requirement 87. The gate closes: the code is 1, and the printed command makes the failure again."""
    page = tmp_path / "reliability.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")

    code = main(["--tries", "1", "--seed", "41", "--write"], faults=[planted(careless)], page=page)

    said = capsys.readouterr().out
    assert code == 1
    assert "repeated: one/charge#1" in said
    assert "python -m faults --only 5 --store SQLite --seed 41 --tries 1" in said
    assert "1 faults: 1 lost" in said
    assert "| lost |" in page.read_text()


def test_a_try_that_breaks_is_no_proof(stages: Theatre) -> None:
    def breaks(_stage: Stage) -> None:
        raise ZeroDivisionError

    row = Row(planted(breaks))
    row.add(1, stages.play(row.fault, 1))

    assert row.verdict == "lost"
    assert "ZeroDivisionError" in complaints([row])[0]


def test_a_worker_that_leaves_an_effect_without_its_record_is_seen(stages: Theatre) -> None:
    def forges(stage: Stage) -> None:
        stage.done("one", "ship")
        stage.declare(account="another-account")  # what is applied there is in no journal that is looked at
        stage.outside = stages.world.account("another-account")
        stage.judge("in another account")

    row = Row(planted(forges))
    row.add(2, stages.play(row.fault, 2))

    seen = [problem.partition(" of run")[0] for problem in row.failures[0].problems]
    assert seen == ["in another account: phantom: one/ship#1"]


def test_a_tool_of_the_system_that_is_missing_is_said_and_fails_the_run() -> None:
    def missing(_stage: Stage) -> None:
        raise ToolMissing("no such tool")

    rows = run([planted(missing)], {(5, SQLITE): 2}, seed=0, until=time.monotonic() + 60)

    assert [row.verdict for row in rows] == ["not run"]
    assert complaints(rows) == ["fault 5 was not run: no such tool"]


def test_a_fault_that_never_came_is_no_verdict() -> None:
    row = Row(planted(careless))
    row.add(1, Try())

    assert row.verdict == "not run"
    assert "never came" in complaints([row])[0]


def test_a_fault_that_came_too_seldom_was_not_survived() -> None:
    row = Row(replace(planted(careless), least=0.5))
    for seed in range(8):
        row.add(seed, Try(points=seed < 3))

    assert (row.verdict, row.least) == ("not run", 4)
    assert complaints([row]) == ["fault 5 was not run: in 8 tries it came 3 times, and not 4"]

    row.add(8, Try(points=1))

    assert row.verdict == "survived"


def test_a_fault_that_runs_out_of_time_again_and_again_fails_though_it_held() -> None:
    row = Row(planted(careless), again=2)
    for seed in range(39):
        row.add(seed, Try(points=1))

    assert row.verdict == "survived"
    assert "fault 5: 2 of 39 tries ran out of time and held again, and 1 may" in complaints([row])[0]

    row.add(39, Try(points=1))

    assert complaints([row]) == []


def test_a_request_that_left_before_its_record_was_acknowledged_is_seen(stages: Theatre) -> None:
    stage = Stage(stages.folder / "noted", stages.world, stages.zygote, stages.databases, 3)
    stage.work("one", "charge", mode="note")
    sent = stage.outside.requests()

    (stage.folder / NOTES).rename(stage.folder / "moved")

    assert [one.attempt for one in sent] == [1]
    assert unacknowledged(stage.folder, sent) == [f"{sent[0].key} 1"]

    (stage.folder / "moved").rename(stage.folder / NOTES)

    assert unacknowledged(stage.folder, sent) == []
    assert unacknowledged(stage.folder, [sent[0]._replace(attempt=2)]) == [f"{sent[0].key} 2"]


def test_a_try_that_only_ran_out_of_time_is_made_once_more_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    tries: list[int] = []

    def stands_still(stage: Stage) -> None:
        tries.append(stage.seed)
        stage.result.met("came")
        if len(tries) < 2:
            stage.until(lambda: False, "it goes on", within_s=0)

    assert main(["--tries", "1", "--seed", "8"], faults=[planted(stands_still)]) == 0
    assert tries == [8, 8]
    assert "1 tries ran out of time and held when they were made again" in capsys.readouterr().out


def test_what_was_lost_while_time_ran_out_is_not_tried_again_until_it_holds() -> None:
    tries: list[int] = []

    def slow_and_careless(stage: Stage) -> None:
        tries.append(stage.seed)
        if len(tries) == 1:
            careless(stage)
        stage.result.met("came")
        stage.until(lambda: len(tries) > 1, "it goes on", within_s=0)

    (row,) = run([planted(slow_and_careless)], {(5, SQLITE): 1}, seed=8, until=time.monotonic() + 60)

    assert tries == [8]
    assert row.verdict == "lost"
    assert any("repeated" in problem for problem in row.failures[0].problems)


def test_a_part_of_the_scoreboard_does_not_replace_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n")

    with pytest.raises(SystemExit):
        main(["--only", "5", "--write"], faults=[planted(careless)], page=page)

    assert "leave --only out" in capsys.readouterr().err
    assert "old" in page.read_text()


def test_a_try_that_runs_out_of_time_twice_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    def hangs(stage: Stage) -> None:
        stage.until(lambda: False, "it goes on", within_s=0)

    assert main(["--tries", "1"], faults=[planted(hangs)]) == 1
    assert "not within 0 s: it goes on" in capsys.readouterr().out


def test_a_person_is_the_answer_only_where_one_is_expected() -> None:
    rows = [Row(planted(careless, number)) for number in (5, 6)]
    for row in rows:
        row.add(1, Try(points=1, asked=2))

    assert [row.verdict for row in rows] == ["survived with a person"] * 2
    assert complaints(rows) == ["fault 5: 2 times a person was needed where none should be"]


def test_an_irreversible_call_cut_off_by_a_kill_is_counted_and_changes_no_verdict() -> None:
    row = Row(planted(careless))
    row.add(1, Try(points=1, cut=1))

    assert row.verdict == "survived"
    assert row.counted[2] == "1"
    assert complaints([row]) == []


# ------------------------------------------------------------ the table


def some_rows() -> list[Row]:
    rows = [Row(planted(careless, number)) for number in (5, 9, 19)]
    rows[0].add(1, Try(points=3))
    rows[1].add(1, Try(points=1, asked=1))
    rows[2].add(1, Try(points=1, gap=1, problems=["it broke"]))
    return rows


def test_the_table_has_a_line_for_each_fault_and_a_total() -> None:
    rows = some_rows()
    lines = as_text(rows).splitlines()

    assert [line.split("  ")[0] for line in lines[2:5]] == ["5", "9", "19"]
    assert lines[-1] == total(rows)
    assert total(rows) == (
        "3 faults: 1 survived, 1 survived with a person, 1 lost; 3 tries, 5 kill points and states met"
    )


def test_the_page_has_the_same_table_with_what_was_injected_and_checked() -> None:
    page = as_markdown(some_rows())

    assert page.count("| planted |") == 3
    assert "| by a test | that it is seen |" in page
    assert "1 tries fell into the gap that only a seal closes" in page


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")

    with pytest.raises(SystemExit, match="no marks"):
        main(["--tries", "1", "--write"], faults=[planted(lambda stage: stage.result.met("came"))], page=page)

    assert page.read_text() == "no marks"


def test_the_tries_of_all_faults_take_turns() -> None:
    order = schedule({1: 4, 2: 2})

    assert [fault for fault, _ in order] == [1, 1, 2, 1, 1, 2]
    assert [number for fault, number in order if fault == 1] == [0, 1, 2, 3]


def test_when_the_time_is_used_up_each_fault_has_had_its_first_try() -> None:
    came: list[SimpleNamespace] = []

    def comes(stage: Stage) -> None:
        came.append(SimpleNamespace(seed=stage.seed))
        stage.result.met("came")

    rows = run([planted(comes)], {(5, SQLITE): 4}, seed=100, until=time.monotonic() - 1)

    assert [row.tries for row in rows] == [1]
    assert [one.seed for one in came] == [100]
