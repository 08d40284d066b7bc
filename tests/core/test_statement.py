"""What is signed: the same bytes everywhere, and no sentence passes for one of another kind."""

import pytest

from milepost.core.approval import Approval
from milepost.core.statement import APPROVAL, EXPORT, SEAL, domain_of, statement


def test_a_statement_is_the_same_bytes_whatever_the_order_of_its_facts() -> None:
    assert statement(SEAL, {"b": 1, "a": [2]}) == statement(SEAL, {"a": [2], "b": 1})


def test_the_domain_is_signed_with_the_facts() -> None:
    sentences = {statement(domain, {"run": "r"}) for domain in (APPROVAL, SEAL, EXPORT)}

    assert {domain_of(sentence) for sentence in sentences} == {APPROVAL, SEAL, EXPORT}


@pytest.mark.parametrize(("domain", "facts"), [("milepost.other.1", {}), (SEAL, {"domain": APPROVAL})])
def test_an_unknown_domain_and_facts_that_bring_their_own_are_refused(domain: str, facts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="domain of a statement"):
        statement(domain, facts)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"domain":1}', b'{"domain":"other"}', b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_statement_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="statement"):
        domain_of(data)


def test_an_answer_signs_what_it_is_bound_to_and_what_is_said_of_it() -> None:
    asked = Approval("ap-1", ":0", "1", "d" * 64, 5, tool="charge", effect="keyed", requester="bot", expires_at=9)
    said = asked.statement("store-1", "run-1", approved=True, by="ann", why="", at=7)
    asked.verdict, asked.by, asked.said_at = "approved", "ann", 7

    assert domain_of(said) == APPROVAL
    assert asked.said("store-1", "run-1") == said
    for other in (
        asked.statement("store-2", "run-1", approved=True, by="ann", why="", at=7),
        asked.statement("store-1", "run-2", approved=True, by="ann", why="", at=7),
        asked.statement("store-1", "run-1", approved=False, by="ann", why="", at=7),
        asked.statement("store-1", "run-1", approved=True, by="bob", why="", at=7),
        asked.statement("store-1", "run-1", approved=True, by="ann", why="yes", at=7),
    ):
        assert other != said


def test_an_approval_is_open_until_it_is_used_denied_or_closed() -> None:
    asked = Approval("ap-1", ":0", "1", "d" * 64, 5)

    assert asked.open
    asked.verdict = "approved"
    assert asked.open
    asked.verdict = "used"
    assert not asked.open
