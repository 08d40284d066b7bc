"""Rules combine so that no order, no omission and no error lets a call through that a rule would stop."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.core.policy import ANSWERS, Answer, Request, Rule, Verdict, combine, unreachable

CHARGE = Request("charge", effect="keyed", risk="high", scopes=frozenset({"pay:charge", "pay:read"}), tenant="acme",
                 workflow="desk")  # fmt: skip


def rule(answer: Answer, name: str = "", **keys: Any) -> Rule:
    return Rule(name or answer, answer, **keys)


def verdict(*rules: Rule, holds: bool | str = True) -> Verdict:
    return combine(rules, lambda _: holds, "1+ab")


# ---------------------------------------------------------------- combining


def test_nothing_that_holds_is_the_default_denial() -> None:
    """Requirement 71. A capability that no rule names is not allowed, whatever it is."""
    said = verdict()

    assert said == Verdict("deny", "", "no rule allows it", "1+ab", explicit=False)
    assert said.waits
    assert combine((), lambda _: True).policy == ""


@pytest.mark.parametrize("order", list(permutations(ANSWERS)))
def test_deny_beats_ask_beats_allow_in_every_order(order: tuple[Answer, ...]) -> None:
    """Requirement 71."""
    said = [verdict(*(rule(answer) for answer in order if answer in kept)).answer for kept in KEPT]

    assert said == ["deny", "ask", "allow", "deny"]


KEPT: tuple[set[str], ...] = (set(ANSWERS), {"ask", "allow"}, {"allow"}, {"allow", "deny"})


def test_a_verdict_names_its_rule_its_reason_and_its_policy() -> None:
    said = verdict(rule("ask", "large", why="over 50 EUR", expires_ms=60_000))

    assert said == Verdict("ask", "large", "over 50 EUR", "1+ab", expires_ms=60_000)
    assert not said.waits


@pytest.mark.parametrize("answer", ["allow", "deny"])
def test_also_what_is_allowed_or_denied_says_why_and_by_which_policy(answer: Answer) -> None:
    assert verdict(rule(answer, "it", why="so it is")) == Verdict(answer, "it", "so it is", "1+ab")


def test_of_several_rules_that_ask_the_first_is_named_and_the_shortest_expiry_holds() -> None:
    said = verdict(rule("ask", "a"), rule("ask", "b", expires_ms=9), rule("ask", "c", expires_ms=5))

    assert (said.rule, said.expires_ms) == ("a", 5)


def test_of_several_rules_that_allow_the_first_is_named() -> None:
    assert verdict(rule("allow", "a"), rule("allow", "b")).rule == "a"


def test_a_condition_that_does_not_hold_takes_its_rule_out() -> None:
    said = verdict(rule("deny", when="no"), rule("allow"), holds=False)

    assert (said.answer, said.rule) == ("allow", "allow")


@pytest.mark.parametrize("answer", ["allow", "ask"])
def test_a_rule_that_cannot_be_answered_denies_by_default_whatever_the_others_say(answer: Answer) -> None:
    """Requirement 71. A missing amount is no small amount."""
    for rules in permutations((rule(answer, "unsure", when="x"), rule("allow"), rule("ask"))):
        said = verdict(*rules, holds="there is no cents")
        why = "rule 'unsure' cannot be answered: there is no cents"
        assert said == Verdict("deny", "", why, "1+ab", explicit=False)


def test_a_rule_that_denies_is_an_answer_also_where_another_cannot_be_answered() -> None:
    for rules in permutations((rule("allow", "unsure", when="x"), rule("deny", "never"))):
        said = verdict(*rules, holds="there is no cents")
        assert (said.answer, said.rule, said.explicit, said.waits) == ("deny", "never", True, False)


@given(st.lists(st.tuples(st.sampled_from(ANSWERS), st.sampled_from([True, False, "unsure"])), max_size=6), st.data())
def test_the_order_of_rules_never_matters_to_the_answer(
    kinds: list[tuple[Answer, bool | str]], data: st.DataObject
) -> None:
    rules = [rule(answer, str(place), when="x") for place, (answer, _) in enumerate(kinds)]
    shuffled = data.draw(st.permutations(rules))

    def holds(one: Rule) -> bool | str:
        return kinds[int(one.name)][1]

    first, second = combine(rules, holds), combine(shuffled, holds)

    assert (first.answer, first.explicit) == (second.answer, second.explicit)


@given(st.lists(st.tuples(st.sampled_from(ANSWERS), st.sampled_from([True, False, "unsure"])), max_size=6),
       st.sampled_from(["ask", "deny"]))  # fmt: skip
def test_a_further_rule_that_asks_or_denies_never_lets_more_through(
    kinds: list[tuple[Answer, bool | str]], added: Answer
) -> None:
    strictness = {"allow": 0, "ask": 1, "deny": 2}
    rules = [rule(answer, str(place), when="x") for place, (answer, _) in enumerate(kinds)]

    def holds(one: Rule) -> bool | str:
        return kinds[int(one.name)][1]

    before, after = combine(rules, holds), combine([*rules, rule(added)], holds)

    assert before.waits or strictness[after.answer] >= strictness[before.answer]


# ---------------------------------------------------------------- which rules fit


@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        ({}, True),
        ({"tools": ("charge",)}, True), ({"tools": ("refund", "ch*")}, True), ({"tools": ("*",)}, True),
        ({"tools": ("*rge",)}, True), ({"tools": ("c*g*",)}, True), ({"tools": ("charg",)}, False),
        ({"tools": ("CHARGE",)}, False), ({"tools": ("charge*d",)}, False),
        ({"effects": ("keyed", "read")}, True), ({"effects": ("read",)}, False),
        ({"risks": ("high",)}, True), ({"risks": ("low", "medium")}, False),
        ({"tenants": ("ac*",)}, True), ({"tenants": ("other",)}, False),
        ({"workflows": ("desk",)}, True), ({"workflows": ("",)}, False),
        ({"tools": ("charge",), "risks": ("low",)}, False),
    ],
)  # fmt: skip
def test_a_rule_fits_where_every_key_does(keys: dict[str, Any], *, fits: bool) -> None:
    assert rule("deny", **keys).fits(CHARGE) is fits


@pytest.mark.parametrize(
    ("answer", "scopes", "fits"),
    [
        ("allow", ("pay:read",), False), ("allow", ("pay:read", "pay:charge"), True), ("allow", ("pay:*",), True),
        ("ask", ("pay:read",), True), ("deny", ("pay:read",), True), ("deny", ("mail:*",), False),
    ],
)  # fmt: skip
def test_what_allows_must_name_every_scope_and_what_stops_any(
    answer: Answer, scopes: tuple[str, ...], *, fits: bool
) -> None:
    assert rule(answer, scopes=scopes).fits(CHARGE) is fits


def test_a_tool_without_scopes_is_named_by_no_rule_about_scopes() -> None:
    assert [rule(answer, scopes=("*",)).fits(Request("charge")) for answer in ANSWERS] == [False, False, False]


def test_a_run_without_a_tenant_is_fitted_by_what_names_any_and_by_no_other() -> None:
    assert rule("deny", tenants=("*",)).fits(Request("charge"))
    assert not rule("allow", tenants=("acme",)).fits(Request("charge"))


def test_calls_that_no_key_tells_apart_are_of_one_kind() -> None:
    assert CHARGE.kind == replace(CHARGE, segment="pay", principal="ann", version="2").kind
    assert CHARGE.kind != replace(CHARGE, tenant="other").kind


# ---------------------------------------------------------------- rules that decide nothing


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ({}, {"tools": ("charge",)}, True),
        ({"tools": ("ch*",)}, {"tools": ("charge", "chart*")}, True),
        ({"tools": ("ch*",)}, {"tools": ("charge", "mail")}, False),
        ({"tools": ("ch*",)}, {}, False),
        ({"tools": ("charge",)}, {"tools": ("*",)}, False),
        ({"effects": ("keyed", "read")}, {"effects": ("read",)}, True),
        ({"effects": ("read",)}, {"effects": ("keyed",)}, False),
        ({"effects": ("read",)}, {}, False),
        ({"risks": ("low",)}, {"risks": ("low",)}, True),
        ({"risks": ("low",)}, {"risks": ("low", "high")}, False),
        ({"scopes": ("pay:*",)}, {"scopes": ("pay:read",)}, True),
        ({"scopes": ("pay:*",)}, {}, False),
        ({"tenants": ("*",)}, {"tenants": ("acme",)}, True),
        ({"workflows": ("a",)}, {"workflows": ("b",)}, False),
        ({"when": "x"}, {"when": "x"}, True),
        ({"when": "x"}, {}, False),
        ({"when": "x"}, {"when": "y"}, False),
    ],
)  # fmt: skip
def test_a_rule_is_unreachable_where_a_stronger_one_covers_it(
    wide: dict[str, Any], narrow: dict[str, Any], *, covered: bool
) -> None:
    stronger, weaker = rule("deny", **wide), rule("allow", **narrow)

    assert unreachable([weaker, stronger]) == ([(weaker, stronger)] if covered else [])


def test_a_weaker_rule_makes_no_stronger_one_unreachable() -> None:
    assert unreachable([rule("allow"), rule("ask", tools=("a",)), rule("deny", tools=("b",))]) == []


def test_of_two_denials_the_narrower_or_else_the_later_one_decides_nothing() -> None:
    wide, narrow, again = rule("deny", "wide"), rule("deny", "narrow", tools=("a",)), rule("deny", "again")

    assert unreachable([narrow, wide, again]) == [(narrow, wide), (again, wide)]


def test_what_allows_by_scopes_is_never_taken_to_cover_what_stops_by_them() -> None:
    scopes = ("pay:*",)

    assert not rule("allow", scopes=scopes).covers(rule("deny", scopes=scopes))
    assert rule("deny", scopes=scopes).covers(rule("allow", scopes=scopes))
    assert rule("allow").covers(rule("deny", scopes=scopes))


NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba"])
TEXTS = st.sampled_from(["a", "ab", "a*", "*b", "*", "a*c", "b"])
KEYS = st.fixed_dictionaries({
    "answer": st.sampled_from(ANSWERS), "tools": st.lists(TEXTS, max_size=2).map(tuple),
    "effects": st.lists(st.sampled_from(["read", "keyed"]), max_size=1).map(tuple),
    "scopes": st.lists(TEXTS, max_size=2).map(tuple), "tenants": st.lists(TEXTS, max_size=1).map(tuple),
})  # fmt: skip
CALLS = st.builds(Request, tool=NAMES, effect=st.sampled_from(["read", "keyed"]), tenant=NAMES | st.just(""),
                  scopes=st.frozensets(NAMES, max_size=2))  # fmt: skip


@given(KEYS, KEYS, CALLS)
def test_a_rule_that_covers_another_fits_whatever_the_other_fits(
    first: dict[str, Any], second: dict[str, Any], call: Request
) -> None:
    wide, narrow = Rule("wide", **first), Rule("narrow", **second)

    assert not (wide.covers(narrow) and narrow.fits(call)) or wide.fits(call)
