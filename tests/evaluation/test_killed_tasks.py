"""A task whose worker is killed ends as the task that nobody disturbed, and the comparison would see if it did not."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from evaluation.counter import Books, bank_process
from evaluation.judging import differences_of, judge, kill_of
from evaluation.killing import Finished, Kill, Stage, WorkerError, place_of_death
from evaluation.task import Task, canonical
from tests.evaluation import tiny_suite


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("evaluation")
    with bank_process(folder / "bank.db", "tests.evaluation.tiny_bank") as bank:
        yield Stage(folder / "runs.db", bank, tiny_suite)


@pytest.mark.parametrize(
    ("task", "kill", "record"),
    [
        (tiny_suite.PAYING, Kill(1, "late"), "started → unknown → not found → found → confirmed"),
        (tiny_suite.ORDERING, Kill(1, "applied"), "started → unknown → sent again → confirmed"),
        (tiny_suite.CHANGING, Kill(0, "applied"), "started → unknown → sent again → found → confirmed"),
        (tiny_suite.LOOKING, Kill(0, "lost"), "started → unknown → sent again → confirmed"),
    ],
    ids=lambda given: given.id if isinstance(given, Task) else "",
)
def test_a_killed_task_ends_as_the_undisturbed_one(stage: Stage, task: Task, kill: Kill, record: str) -> None:
    """Requirement 69. Requirement 86."""
    judged = judge(stage, task, kill)

    assert judged.differences == ()
    assert record in judged.cells
    assert judged.cells[-2:] == ("pass", "yes")


def test_a_kill_that_hit_no_started_call_proves_nothing_and_is_refused(stage: Stage) -> None:
    stage.play(tiny_suite.LOOKING, "undisturbed")

    with pytest.raises(WorkerError, match="its record has nothing open"):
        place_of_death(stage.store, "undisturbed", "get_balance")


def test_the_last_call_that_changes_something_is_the_one_to_kill() -> None:
    assert kill_of(tiny_suite.CHANGING, "lost") == Kill(1, "lost")
    assert kill_of(tiny_suite.LOOKING, "lost") == Kill(0, "lost")


def finished(task: Task, *references: str) -> Finished:
    """What a run of the task is that went as it should; `references` for another ledger than that."""
    environment, answers = tiny_suite.initial_environment(task), []
    for call in task.calls:
        environment, answer = tiny_suite.call_function(environment, call.function, call.args)
        answers.append(canonical(answer))
    call = task.calls[-1]
    ledger = tuple((one, f"{call.function} {canonical(call.args)}") for one in references or ("ref-1",))
    return Finished(answers, Books(environment, ledger), "act@2/send_money#1", ("started", "unknown", "confirmed"))


def test_what_went_as_it_should_has_no_differences() -> None:
    good = finished(tiny_suite.PAYING)

    assert differences_of(tiny_suite, tiny_suite.PAYING, good, good) == ()


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"books": Books("{}", finished(tiny_suite.PAYING).books.ledger)}, "the environment differs"),
        ({"answers": ["100"]}, "the answers differ"),
        ({"books": finished(tiny_suite.PAYING, "ref-1", "ref-2").books}, "the bank's ledger differs"),
        ({"books": finished(tiny_suite.PAYING, "ref-1", "ref-1").books}, "a reference was applied twice"),
        ({"said": ("started", "confirmed")}, "is not unknown next"),
        ({"said": ("started", "unknown", "found", "failed")}, "is not confirmed at last"),
        ({"damage": "a hash does not match"}, "its record is damaged: a hash does not match"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_comparison_sees_a_killed_run_that_differs(change: dict[str, object], difference: str) -> None:
    """Requirement 86."""
    good = finished(tiny_suite.PAYING)
    bad = replace(good, **change)  # type: ignore[arg-type]

    differences = differences_of(tiny_suite, tiny_suite.PAYING, good, bad)

    assert [found for found in differences if difference in found]


def test_the_comparison_sees_an_undisturbed_run_that_is_not_the_suites_own() -> None:
    wrong = replace(finished(tiny_suite.PAYING), answers=["1", "2"], books=Books("{}", ()))

    differences = differences_of(tiny_suite, tiny_suite.PAYING, wrong, wrong)

    assert {found for found in differences if found.startswith("the unkilled")} == {
        "the unkilled environment differs from the suite's",
        "the unkilled answers differ from the suite's",
        "the unkilled ledger differs from the ground truth",
    }


def test_numbers_are_compared_as_numbers_and_texts_as_texts() -> None:
    assert canonical({"b": [1.0], "a": True}) == canonical({"a": True, "b": [1]})
    assert canonical(1) != canonical("1")
