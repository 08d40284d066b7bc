"""The payment service, as a real process over HTTP: what it promises, and how it breaks what it never promised."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from milepost.cli.demo.clients import Payments
from milepost.cli.demo.faults import WELL_BEHAVED_FROM, Fault, payment_behaviour
from milepost.cli.demo.ledgers import Applied, unix_ms
from milepost.cli.demo.outside import Outside
from milepost.cli.demo.payments import VOUCHER_SHOWS_AFTER_MS
from tests.polling import eventually

SEED = 11


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with Outside(tmp_path_factory.mktemp("payments"), SEED) as running:
        yield running


@pytest.fixture
def payments(outside: Outside) -> Iterator[Payments]:
    with Payments(outside.payments_port) as client:
        yield client


def an_order(test: str, kind: str, *faults: Fault) -> str:
    """An order, of this test alone, whose first attempts meet exactly these faults."""
    names = (f"{test}-{number}" for number in count())
    return next(
        name
        for name in names
        if [payment_behaviour(SEED, kind, name, n + 1).fault for n in range(len(faults))] == list(faults)
    )


def applied_to(outside: Outside, order: str) -> list[Applied]:
    return [row for row in outside.applied() if row.order == order]


def test_the_same_key_and_body_move_money_once_and_get_the_same_receipt(outside: Outside, payments: Payments) -> None:
    order = an_order("same", "refund", Fault.NONE, Fault.NONE)

    receipts = [payments.refund(order, 500, key="same-key") for _ in range(2)]

    assert receipts[0] == receipts[1]
    assert [(row.cents, row.key) for row in applied_to(outside, order)] == [(500, "same-key")]


def test_the_same_key_with_another_body_is_refused_with_422(outside: Outside, payments: Payments) -> None:
    order = an_order("other", "refund", Fault.NONE)
    payments.refund(order, 500, key="other-key")

    with pytest.raises(httpx.HTTPStatusError) as refused:
        payments.refund(order, 501, key="other-key")

    assert refused.value.response.status_code == 422
    assert [row.cents for row in applied_to(outside, order)] == [500]


def test_another_key_moves_the_money_again(outside: Outside, payments: Payments) -> None:
    order = an_order("another", "refund", Fault.NONE, Fault.NONE)

    payments.refund(order, 500, key="another-1")
    payments.refund(order, 500, key="another-2")

    assert [row.attempt for row in applied_to(outside, order)] == [1, 2]


def test_a_lost_answer_is_applied_and_a_second_call_with_its_key_finds_it(outside: Outside, payments: Payments) -> None:
    order = an_order("lost", "refund", Fault.LOST_ANSWER, Fault.NONE)

    with pytest.raises(httpx.RemoteProtocolError):
        payments.refund(order, 700, key="lost-key")
    after_the_first = applied_to(outside, order)
    receipt = payments.refund(order, 700, key="lost-key")

    assert [row.receipt for row in after_the_first] == [receipt.receipt]
    assert applied_to(outside, order) == after_the_first


@pytest.mark.parametrize(
    ("fault", "status", "moved"),
    [(Fault.ERROR_AFTER, 500, 1), (Fault.ERROR_BEFORE, 500, 0), (Fault.BUSY, 503, 0)],
    ids=str,
)
def test_an_error_status_does_not_tell_whether_money_moved(
    outside: Outside, payments: Payments, fault: Fault, status: int, moved: int
) -> None:
    order = an_order(f"error-{fault}", "voucher", fault)

    with pytest.raises(httpx.HTTPStatusError) as failed:
        payments.voucher(order, 300)

    assert failed.value.response.status_code == status
    assert len(applied_to(outside, order)) == moved


def test_two_voucher_requests_are_two_vouchers(outside: Outside, payments: Payments) -> None:
    order = an_order("twice", "voucher", Fault.NONE, Fault.NONE)

    payments.voucher(order, 300)
    payments.voucher(order, 300)

    assert len(applied_to(outside, order)) == 2


def test_the_list_of_vouchers_lags_behind_the_ledger(outside: Outside, payments: Payments) -> None:
    order = an_order("lag", "voucher", Fault.NONE)
    payments.voucher(order, 300)
    (made,) = applied_to(outside, order)

    listed = eventually(lambda: payments.vouchers_of(order))

    assert unix_ms() >= made.applied_ms + VOUCHER_SHOWS_AFTER_MS
    assert [receipt.receipt for receipt in listed] == [made.receipt]


def test_a_request_past_its_moment_is_refused_and_never_applied(outside: Outside, payments: Payments) -> None:
    order = an_order("late", "voucher", Fault.NONE)

    with pytest.raises(httpx.HTTPStatusError) as late:
        payments.voucher(order, 300, apply_before_ms=unix_ms())

    assert late.value.response.status_code == 503
    assert applied_to(outside, order) == []


def test_a_refund_is_listed_by_its_order(payments: Payments) -> None:
    order = an_order("listed", "refund", Fault.NONE)
    receipt = payments.refund(order, 900, key="listed-key")

    assert payments.refunds_of(order) == [receipt]
    assert payments.refunds_of(f"{order}-nothing") == []


def test_an_order_is_served_well_once_it_was_tried_often(payments: Payments) -> None:
    order = an_order("often", "refund", Fault.ERROR_BEFORE, Fault.BUSY, Fault.LOST_ANSWER)
    for _ in range(WELL_BEHAVED_FROM - 1):
        with pytest.raises(httpx.HTTPError):
            payments.refund(order, 100, key="often-key")

    assert payments.refund(order, 100, key="often-key").cents == 100


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/refunds", {}, b'{"order":"A","cents":1}', 400),
        ("/refunds", {"Idempotency-Key": "k"}, b'{"order":"A","cents":0}', 400),
        ("/refunds", {"Idempotency-Key": "k"}, b'{"order":"A","cents":1,"more":1}', 400),
        ("/refunds", {"Idempotency-Key": "k"}, b"not json", 400),
        ("/vouchers", {"Apply-Before": "soon"}, b'{"order":"A","cents":1}', 400),
        ("/vouchers", {}, b" " * 20_000, 413),
        ("/charges", {}, b"{}", 404),
    ],
)
def test_what_cannot_be_understood_is_refused_before_anything_happens(
    outside: Outside, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    before = outside.applied()

    answer = httpx.post(f"http://127.0.0.1:{outside.payments_port}{path}", headers=headers, content=body)

    assert answer.status_code == status
    assert outside.applied() == before


def test_the_ledger_and_the_attempts_outlive_the_service(tmp_path: Path) -> None:
    order = an_order("outlive", "refund", Fault.LOST_ANSWER, Fault.NONE)
    with Outside(tmp_path, SEED) as first, Payments(first.payments_port) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.refund(order, 100, key="outlive-key")
        applied = first.applied()
    with Outside(tmp_path, SEED) as second, Payments(second.payments_port) as client:
        receipt = client.refund(order, 100, key="outlive-key")

        assert [row.receipt for row in applied] == [receipt.receipt]
        assert second.applied() == applied
        assert second.faults_met() == {"lost_answer": 1, "none": 1}
