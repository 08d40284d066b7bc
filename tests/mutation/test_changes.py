"""A mutant is known by its function and its change, and one that changes only words is told apart."""

import ast

import pytest

from mutation.changes import Found, Mutant, change, mutants_in, only_words

MUTATED = """
def lapsed(lease_until, now):
    return _trampoline()

def x_lapsed__mutmut_orig(lease_until, now):
    return now >= lease_until

def x_lapsed__mutmut_1(lease_until, now):
    return now > lease_until

class Ledger:
    def xǁLedgerǁgrant__mutmut_orig(self, more):
        self.granted = more
        raise Full(f"{more} is too much")

    def xǁLedgerǁgrant__mutmut_1(self, more):
        self.granted = None
        raise Full(f"{more} is too much")

    def xǁLedgerǁgrant__mutmut_2(self, more):
        self.granted = more
        raise Full(None)
"""


def test_a_mutant_is_named_by_its_function_and_its_change() -> None:
    made = dict(mutants_in("core/some.py", MUTATED))

    assert made == {
        "x_lapsed__mutmut_1": Found(Mutant("core/some.py", "lapsed", "return now [>=→>] lease_until"), False, (6, 6)),
        "xǁLedgerǁgrant__mutmut_1": Found(
            Mutant("core/some.py", "Ledger.grant", "self.granted = [more→None]"), False, (13, 13)
        ),
        "xǁLedgerǁgrant__mutmut_2": Found(
            Mutant("core/some.py", "Ledger.grant", "raise Full([f'{more} is too much'→None])"), True, (14, 14)
        ),
    }


@pytest.mark.parametrize(
    ("was", "now", "lines"),
    [
        ("    a = f(\n        1,\n        2,\n    )", "    a = f(\n        1,\n        3,\n    )", (2, 5)),
        ("    if a:\n        b()\n    c()", "    if not a:\n        b()\n    c()", (2, 2)),
        (
            "    try:\n        b()\n    except E:\n        c()",
            "    try:\n        b()\n    except F:\n        c()",
            (4, 4),
        ),
        ("    match a:\n        case 1:\n            b()", "    match a:\n        case 2:\n            b()", (3, 3)),
        ("    a()\n    b()\n    c()", "    a()\n    c()", (3, 3)),
        ("    a()  # one\n    # two\n    c()", "    a()  # one\n    # other\n    c()", (1, 4)),
    ],
)
def test_the_lines_of_a_mutant_are_those_of_the_statements_it_changes(
    was: str, now: str, lines: tuple[int, int]
) -> None:
    mutated = f"def x_f__mutmut_orig():\n{was}\n\ndef x_f__mutmut_1():\n{now}\n"

    assert [found.lines for _, found in mutants_in("m.py", mutated)] == [lines]


def test_the_same_change_of_two_lines_is_two_mutants() -> None:
    body = "    a = f(1)\n    b = 2\n    a = f(1)\n"
    mutated = (
        f"def x_f__mutmut_orig():\n{body}"
        f"def x_f__mutmut_1():\n{body.replace('1', '2', 1)}"
        f"def x_f__mutmut_2():\n    a = f(1)\n    b = 2\n    a = f(2)\n"
    )

    assert [found.mutant.change for _, found in mutants_in("m.py", mutated)] == ["a = f([1→2])", "a = f([1→2]) (2)"]


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("x = f(a, b)", "x = f(a)", "x = f(a[, b→])"),
        ("if a:\n    b\n    c", "if a:\n    c", "[b→]"),
        ("x = 1\ny = 2\nz = 3", "x = 9\ny = 2\nz = 4", "x = [1 / y = 2 / z = 3→9 / y = 2 / z = 4]"),
        ("x = -1", "x = +1", "x = [-→+]1"),
    ],
)
def test_a_change_is_shown_in_its_line(was: str, now: str, said: str) -> None:
    assert change(was, now) == said


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('why = "the run was lost"', 'why = "XXthe run was lostXX"'),
        ('why = "the run was lost"', "why = None"),
        ('raise E(f"{a} is, {b}")', "raise E(None)"),
        ('raise E(f"{a} is less than {b + 1}")', 'raise E(f"{a} is less than {b - 1}")'),
    ],
)
def test_other_words_for_people_are_only_words(was: str, now: str) -> None:
    assert only_words(ast.parse(was), ast.parse(now))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('code = "deadline"', 'code = "XXdeadlineXX"'),
        ('by.startswith("person ")', 'by.startswith("PERSON ")'),
        ('"; ".join(found)', '"XX; XX".join(found)'),
        ('f("some words", 1)', "f(None, 2)"),
        ('f("some words", 1)', "f(1)"),
        ('f(key="some words")', 'f(other="some words")'),
        ("a < b", "a <= b"),
        ('f"{run}/{step}"', 'f"{run}/{None}"'),
        ('e(f"{a} is {b}", 1)', 'e(f"{a} is {c}", 2)'),
        ('a = "some words"', "a = b"),
    ],
)
def test_what_a_program_may_read_is_more_than_words(was: str, now: str) -> None:
    assert not only_words(ast.parse(was), ast.parse(now))
