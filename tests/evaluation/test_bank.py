"""The bank of the evaluation offers what the tools' classes say, no more; its ledger tells what truly happened."""

import json
from pathlib import Path

import pytest

from evaluation.bank import Books, RefusedError
from tests.evaluation import tiny_suite

PAY = tiny_suite.PAY.args
ORDER = tiny_suite.ORDER.args


@pytest.fixture
def books(tmp_path: Path) -> Books:
    books = Books(tmp_path / "bank.db", tiny_suite)
    books.open_account("ann", tiny_suite.initial_environment(tiny_suite.PAYING))
    return books


def test_a_payment_that_is_sent_twice_is_paid_twice(books: Books) -> None:
    for _ in range(2):
        books.call("ann", "send_money", PAY, "ref-1", None)

    assert json.loads(books.statement("ann")["environment"])["balance"] == 92
    assert len(books.found("ann", "ref-1")) == 2


def test_a_standing_order_that_is_sent_twice_is_set_up_once(books: Books) -> None:
    answers = [books.call("ann", "schedule_transaction", ORDER, "ref-1", None) for _ in range(2)]

    assert answers[0] == answers[1]
    assert [line["reference"] for line in books.statement("ann")["ledger"]] == ["ref-1"]


def test_an_update_is_refused_once_the_record_has_moved(books: Books) -> None:
    books.call("ann", "update_password", {"password": "new"}, "ref-1", 1)

    with pytest.raises(RefusedError, match="at version 2, not 1") as refusal:
        books.call("ann", "update_password", {"password": "newer"}, "ref-2", 1)

    assert refusal.value.status == 412
    assert books.statement("ann")["version"] == 2
    assert books.found("ann", "ref-2") == []


def test_what_the_bank_cannot_execute_changes_nothing(books: Books) -> None:
    before = books.statement("ann")

    with pytest.raises(RefusedError, match="no function rob") as refusal:
        books.call("ann", "rob", {}, "ref-1", None)

    assert refusal.value.status == 422
    assert books.statement("ann") == before


def test_a_look_is_not_in_the_ledger(books: Books) -> None:
    assert books.call("ann", "get_balance", {}, "", None) == 100
    assert books.statement("ann")["ledger"] == []
