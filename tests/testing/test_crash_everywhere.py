"""A careful workflow ends in the same way wherever it is killed; of a careless one the report names the mistake."""

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.stores.api import Query
from milepost.testing import Outsides, Report, Unreliable, crash_everywhere
from tests.testing import careless
from tests.testing.books import Book, Books
from tests.testing.careful import desk, parcels

HURRIED: dict[str, Any] = {"seed": 1}


def tried(workflow: mp.Workflow[str, Any], world: Outsides[Any], **options: Any) -> Report:
    report = crash_everywhere(workflow, "o-1", world, **{**HURRIED, **options})
    for broken in report.broken:
        if broken.store is not None:
            shutil.rmtree(broken.store.parent, ignore_errors=True)
    return report


def rules(report: Report) -> set[str]:
    return {broken.rule for broken in report.broken}


def whys(report: Report, rule: str) -> str:
    return " ".join(sorted({broken.why for broken in report.broken if broken.rule == rule}))


# ---------------------------------------------------------------- careful


def test_a_careful_workflow_ends_the_same_wherever_its_worker_dies(books: Books) -> None:
    """Requirement 50. Requirement 69. Each class of effect, arms, an approval, a sleep, a signal, a child."""
    report = tried(
        desk, books, also=[parcels], signals={"word": "yes"}, budget={"tokens": 30}, repeats=["ask"], most=40
    )

    assert report.ok, report
    assert (len(report.points), report.equal, report.missed) == (40, 40, ())
    assert report.unseen == ("note",)
    assert set(report.asked) <= {"tell/mail#1"}
    report.raise_if_broken()


def test_every_point_of_a_small_run_is_named_and_in_its_order(books: Books) -> None:
    report = tried(one_charge, books)
    expected = [
        "before worker enlisted",
        "after worker enlisted",
        "before run created",
        "after run created",
        "before claimed",
        "after claimed",
        "before effect started one_charge/charge#1",
        "after effect started one_charge/charge#1",
        'charge#1: before book(call).once("charge", call.key, order=order, cents=cents)',
        'charge#1: before return "receipt"',
        "charge#1: returned",
        "before effect confirmed one_charge/charge#1",
        "after effect confirmed one_charge/charge#1",
    ]

    assert report.ok, report
    # What is written together, and so is one point, may be two on a machine that stands still in between.
    assert [point for point in report.points if point in expected] == expected


def test_the_irreversible_call_that_was_in_flight_goes_to_a_person_and_nothing_is_broken(books: Books) -> None:
    @mp.tool
    def press(call: mp.Call, button: str) -> str:
        call.resource(Book).write("press", call.key, button=button)
        return f"{button} pressed"

    @mp.workflow(version="1", tools=[press])
    async def presses(run: mp.Run, button: str) -> str:
        return await press(button)

    report = tried(presses, books)

    assert report.ok, report
    assert report.asked == ("presses/press#1",)
    assert 'press#1: before return f"{button} pressed"' in report.with_person
    assert "before claimed" not in report.with_person
    assert "and looked into the ledger, about: presses/press#1" in str(report)


def test_a_run_that_fails_must_fail_everywhere(books: Books) -> None:
    @mp.tool(effect="read", retry=mp.Retry(2, first="1h"))
    async def look(order: str) -> str:
        msg = "there is no such order"
        raise LookupError(msg)

    @mp.workflow(version="1", tools=[look, careless.charge])
    async def buys(run: mp.Run, order: str) -> str:
        await careless.charge(order, 500)
        return await look(order)

    report = tried(buys, books)

    assert report.ok, report
    assert "look#2: raised LookupError" in report.points


@pytest.mark.parametrize("with_key", [True, False])
def test_a_ledger_whose_lines_are_not_the_arguments_is_compared_by_key_or_counted(
    books: Books, *, with_key: bool
) -> None:
    @mp.tool
    def mail(call: mp.Call, to: str) -> str:
        call.resource(Book).write("mail", call.key if with_key else "", subject=f"To {to}")
        return f"sent to {to}"

    @mp.workflow(version="1", tools=[mail])
    async def tells(run: mp.Run, to: str) -> list[str]:
        return [await mail(to), await mail(to)]

    report = tried(tells, books)

    assert report.ok, report
    assert report.asked == ("tells/mail#1", "tells/mail#2")


# ---------------------------------------------------------------- careless: what it says


def test_a_charge_that_is_declared_a_read_is_named(books: Books) -> None:
    """Requirement 50."""
    report = tried(careless.charges_as_read, books)

    assert not report.ok
    assert rules(report) == {"unrecorded", "repeated"}
    assert {broken.point for broken in report.broken if broken.rule == "repeated"} >= {
        'charge_as_read#1: before return "receipt"',
        "charge_as_read#1: returned",
    }
    assert "charge_as_read is declared effect='read'" in whys(report, "repeated")
    assert 'charge_as_read {"order": "o-1"} was applied 2 times instead of once.' in str(report)


@pytest.mark.parametrize(
    ("workflow", "rule", "says"),
    [
        (careless.forgets_the_key, "repeated", "the provider was given no key. Send call.key"),
        (careless.makes_its_own_key, "repeated", "given another key, or none, the second time"),
        (careless.trusts_the_provider, "repeated", "the provider applied the same key twice"),
        (careless.tells_beside, "repeated", "It is no tool of this workflow"),
        (careless.reads_and_tells, "repeated", "a tool that is declared a read and changes something"),
        (careless.reads_under_another_name, "repeated", "more was applied under the name of charge than it was called"),
        (careless.publishes_unconditionally, "repeated", "Send a precondition that only the first can meet"),
        (careless.looks_in_the_wrong_place, "repeated", "its reconciler did not find what had been sent"),
        (careless.believes_too_much, "missing", "The reconciler of ship_believed said that it had happened"),
        (careless.never_knows, "stuck", "Does a reconciler always fail, or never know?"),
        (careless.draws_its_own_chance, "ending", "take time, chance and ids from run.now(), run.random()"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_mistake_is_named_and_what_to_do_about_it(
    books: Books, workflow: mp.Workflow[str, str], rule: str, says: str
) -> None:
    report = tried(workflow, books)

    assert rule in rules(report), report
    assert says in whys(report, rule)
    with pytest.raises(Unreliable, match=workflow.name):
        report.raise_if_broken()


def test_a_segment_that_writes_by_itself_is_found_already_undisturbed(tmp_path: Path) -> None:
    class OneBook:
        def account(self, name: str, /) -> Book:
            return Book(tmp_path / f"{name}.jsonl")

    def resources(account: Book) -> dict[type[Any], Any]:
        careless_log.path = account.path
        return {}

    class Log:
        path = tmp_path / "nowhere"

        def write(self, tool: str, **args: str) -> None:
            Book(self.path).write(tool, "", **args)

    careless_log = Log()
    report = tried(careless.writes_between_steps(careless_log), OneBook(), resources=resources)  # type: ignore[arg-type]

    assert [broken.point for broken in report.broken if broken.rule == "unrecorded"] == ["undisturbed"]
    assert any(broken.point == "after effect started writes/charge#1" for broken in report.broken), report
    assert "made again after a crash: code between steps" in whys(report, "repeated")


def test_what_only_the_process_remembered_shows_in_the_result(books: Books) -> None:
    report = tried(careless.remembers_in_memory, books)

    assert rules(report) == {"result"}
    assert "The result is 1 instead of 2." in str(report)
    assert "entered again from its first line" in whys(report, "result")


def test_a_result_that_is_never_the_same_is_said_once_and_can_be_compared_otherwise(books: Books) -> None:
    report = tried(careless.returns_chance, books)
    compared = tried(careless.returns_chance, books, equal=lambda one, other: one.split()[0] == other.split()[0])

    assert [(broken.point, broken.rule) for broken in report.broken] == [("undisturbed", "result")]
    assert "give equal=" in whys(report, "result")
    assert compared.ok, compared


# ---------------------------------------------------------------- what it cannot judge, it says


def test_a_run_that_waits_for_what_nobody_sends_says_which_option_to_give(books: Books) -> None:
    report = tried(careless.waits_for_a_word, books)
    given = tried(careless.waits_for_a_word, books, signals={"word": "go"})

    assert (report.points, rules(report)) == ((), {"ending"})
    assert "Give signals={name: value}." in str(report)
    assert given.ok, given


def test_a_ledger_that_saw_nothing_is_no_proof(tmp_path: Path) -> None:
    report = tried(one_charge, Books(tmp_path, honest=False))

    assert [broken.rule for broken in report.broken] == ["unseen"]
    assert "Let applied() return one line for each effect" in str(report)


def test_a_tool_that_hangs_is_ended_and_reported(books: Books) -> None:
    report = tried(careless.hangs, books, patience=1)

    assert not report.ok
    assert "it took too long, or hung" in str(report)


def test_an_error_in_the_test_itself_is_shown_with_its_traceback(books: Books) -> None:
    def no_resources(account: Book) -> dict[type[Any], Any]:
        raise ZeroDivisionError

    report = tried(one_charge, books, resources=no_resources)

    assert "ZeroDivisionError" in str(report)


def test_a_misspelt_option_is_refused(books: Books) -> None:
    with pytest.raises(TypeError, match="no option sed; there are"):
        tried(one_charge, books, sed=1)


# ---------------------------------------------------------------- seeds, and where it is called


def test_the_same_seed_tries_the_same_and_reports_the_same(books: Books) -> None:
    one, same, other = (tried(careless.trusts_the_provider, books, most=6, seed=seed) for seed in (7, 7, 8))

    assert one.points == same.points
    assert [(broken.point, broken.what) for broken in one.broken] == [
        (broken.point, broken.what) for broken in same.broken
    ]
    assert len(other.points) == 6
    assert other.points != one.points
    assert "(seed 7)" in str(one)


def test_the_test_s_own_chance_is_left_as_it_was(books: Books) -> None:
    random.seed(5)
    before = random.getstate()
    tried(one_charge, books, most=2)

    assert random.getstate() == before


def test_it_can_be_called_where_an_event_loop_runs(books: Books) -> None:
    async def test() -> tuple[Report, Report]:
        in_a_thread = await asyncio.to_thread(tried, one_charge, books, most=2)
        return in_a_thread, tried(one_charge, books, most=2)

    assert all(asyncio.run(test()))


def test_a_broken_try_leaves_its_record_to_be_looked_at(books: Books) -> None:
    report = crash_everywhere(careless.trusts_the_provider, "o-1", books, seed=1)
    (store,) = {broken.store for broken in report.broken}
    assert store is not None

    async def applied() -> list[str]:
        async with mp.App(f"sqlite:///{store}").client() as app:
            (run,) = await app.inspect.runs(Query())
            return [view.outcome for view in await app.inspect.effects(run.id)]

    try:
        assert asyncio.run(applied()) == ["confirmed"]
        assert f"milepost runs --store {store}" in str(report)
    finally:
        shutil.rmtree(store.parent)


@mp.workflow(version="1", tools=[careless.charge])
async def one_charge(run: mp.Run, order: str) -> str:
    return await careless.charge(order, 500)
