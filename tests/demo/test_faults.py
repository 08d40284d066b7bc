"""The plan by which the outside world misbehaves: repeatable, varied, and bounded."""

import subprocess
import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from milepost.cli.demo.chance import draw, draw_between
from milepost.cli.demo.faults import WELL_BEHAVED_FROM, Fault, mail_behaviour, payment_behaviour

SEEDS = st.integers(min_value=0, max_value=2**31)
NAMES = st.text(min_size=1, max_size=12)


def test_another_process_plans_the_same_faults() -> None:
    program = (
        "from milepost.cli.demo.faults import mail_behaviour, payment_behaviour\n"
        "print([payment_behaviour(3, 'refund', f'A-{n}', 1) for n in range(50)])\n"
        "print([mail_behaviour(3, f'T-{n}', 1) for n in range(50)])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert said.splitlines() == [
        str([payment_behaviour(3, "refund", f"A-{n}", 1) for n in range(50)]),
        str([mail_behaviour(3, f"T-{n}", 1) for n in range(50)]),
    ]


def test_another_seed_another_kind_and_another_attempt_are_planned_apart() -> None:
    def plan(seed: int, kind: str, attempt: int) -> list[Fault]:
        return [payment_behaviour(seed, kind, f"A-{n}", attempt).fault for n in range(100)]

    plans = [plan(1, "refund", 1), plan(2, "refund", 1), plan(1, "voucher", 1), plan(1, "refund", 2)]

    assert len({tuple(one) for one in plans}) == 4


def test_every_fault_is_met_often_enough_to_be_seen_in_one_demo() -> None:
    met = Counter(payment_behaviour(seed, "refund", f"A-{n}", 1).fault for seed in range(20) for n in range(100))

    assert set(met) == set(Fault)
    assert all(100 * count / 2_000 >= 4 for count in met.values())
    assert sum(mail_behaviour(seed, f"T-{n}", 1).drops for seed in range(20) for n in range(48)) >= 48


@given(seed=SEEDS, order=NAMES, attempt=st.integers(min_value=WELL_BEHAVED_FROM, max_value=1_000))
def test_after_enough_attempts_the_outside_behaves(seed: int, order: str, attempt: int) -> None:
    assert payment_behaviour(seed, "refund", order, attempt).fault is Fault.NONE
    assert not mail_behaviour(seed, order, attempt).drops


@given(seed=SEEDS, order=NAMES, attempt=st.integers(min_value=1, max_value=9))
def test_delays_are_bounded(seed: int, order: str, attempt: int) -> None:
    payment = payment_behaviour(seed, "voucher", order, attempt)
    mail = mail_behaviour(seed, order, attempt)

    assert 0 < payment.before_ms <= 200
    assert 0 < payment.after_ms <= 500
    assert 0 < mail.before_ms + mail.after_ms <= 100


@given(least=st.integers(-50, 50), span=st.integers(0, 50), about=NAMES)
def test_a_draw_stays_between_its_ends(least: int, span: int, about: str) -> None:
    assert 0 <= draw(about) < 1
    assert least <= draw_between(least, least + span, about) <= least + span


def test_words_of_a_draw_are_told_apart() -> None:
    assert draw("ab", "c") != draw("a", "bc")
