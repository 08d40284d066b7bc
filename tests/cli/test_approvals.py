"""What waits for a person's word is shown from the record, and the word is bound to what was shown."""

import json
from pathlib import Path

import pytest

from tests.cli.shop_floor import Shop
from tests.polling import eventually

HOSTILE = 'ann\u202e\nto = "bob"\u200b'


@pytest.fixture
def waiting(shop: Shop) -> tuple[str, str]:
    """A run that waits for an approval, and the approval."""
    run = shop.start("mailing", HOSTILE)
    shop.drive()
    (one,) = shop.read("approvals")
    return run, one["approval"]


def trusting(shop: Shop, name: str = "ann") -> Path:
    """Make a key, and a trust file that lets it approve."""
    shop.ok("keys", "new", name, "--folder", "keys")
    shop.ok("keys", "trust", f"keys/{name}.pub", "--may", "approve", "--trust", "operators.toml")
    return shop.folder / "keys" / f"{name}.key"


def test_the_listing_says_what_waits_and_for_what(shop: Shop, waiting: tuple[str, str]) -> None:
    run, approval = waiting
    (one,) = shop.read("approvals", run[:8])

    assert (one["approval"], one["run"], one["verdict"], one["tool"]) == (approval, run, "asked", "mail")
    assert (one["effect"], one["version"], one["signed"]) == ("irreversible", "1", False)
    assert one["args"] == {"to": HOSTILE}
    assert one["shown"] == ["to =", "  | ann⟨U+202E⟩", '  | to = "bob"⟨U+200B⟩']
    assert one["expires_at"] > one["asked_at"]
    told = shop.ok("approvals")
    assert approval in told
    assert "\u202e" not in told
    assert shop.read("approvals", "--all") == [one]


def test_what_waits_comes_first_and_what_is_over_only_with_all(shop: Shop) -> None:
    runs = [shop.start("mailing", name) for name in ("a", "b", "c")]
    shop.drive()
    by_run = {one["run"]: one["approval"] for one in shop.read("approvals")}
    shop.ok("approve", by_run[runs[0]], "--by", "ann")
    shop.ok("deny", by_run[runs[1]], "--why", "no", "--by", "ann")
    shop.drive()

    assert [one["approval"] for one in shop.read("approvals")] == [by_run[runs[2]]]
    every = shop.read("approvals", "--all")
    assert (every[0]["run"], sorted(one["verdict"] for one in every)) == (runs[2], ["asked", "denied", "used"])
    shop.ok("kill", runs[2], "--by", "ann")
    assert shop.ok("approvals").startswith("Nothing waits")


def test_what_is_approved_is_shown_line_by_line_before_it_is(shop: Shop, waiting: tuple[str, str]) -> None:
    """Requirement 20."""
    _, approval = waiting
    (one,) = shop.read("approvals")

    told = shop.ok("approve", approval, "--by", "ann")

    assert '    to =\n      | ann⟨U+202E⟩\n      | to = "bob"⟨U+200B⟩\n' in told
    assert one["digest"] in told
    assert told.index("to =") < told.index("Approved")


def test_an_approval_of_what_was_not_shown_is_refused(shop: Shop, waiting: tuple[str, str]) -> None:
    """Requirement 20."""
    run, approval = waiting
    (one,) = shop.read("approvals")

    assert shop.refused("approve", approval, "--by", "ann", "--digest", "ffff") == (5, "digest_differs")
    assert shop.refused("deny", approval, "--by", "ann", "--why", "no", "--digest", "ffff") == (5, "digest_differs")
    shop.ok("approve", approval, "--by", "ann", "--digest", one["digest"][:10])
    shop.drive()
    assert shop.status(run) == "done"


def test_who_started_a_run_may_not_approve_and_is_told_and_it_is_written_down(
    shop: Shop, waiting: tuple[str, str]
) -> None:
    run, approval = waiting
    me = shop.read("show", run)["authority"]["principal"]

    assert shop.refused("approve", approval, "--by", me) == (5, "self_approval")
    shop.drive()
    (refused,) = shop.read("show", run)["refused_answers"]
    assert (refused["code"], refused["by"], refused["approval"]) == ("self_approval", me, approval)
    assert "self_approval" in shop.ok("show", run)
    assert "self_approval" in shop.ok("journal", run)
    assert shop.ledger() == []


def test_a_worker_with_a_trust_file_takes_signed_answers_and_no_others(shop: Shop, waiting: tuple[str, str]) -> None:
    """Requirement 20. Requirement 25. In processes of their own."""
    run, approval = waiting
    key = trusting(shop)
    shop.worker("--trust", "operators.toml")
    shop.ok("approve", approval, "--by", "ann")
    eventually(lambda: bool(shop.read("show", run)["refused_answers"]), saying="it is refused")
    assert [one["code"] for one in shop.read("show", run)["refused_answers"]] == ["unsigned"]
    assert shop.ledger() == []

    told = shop.read("approve", approval, "--key", str(key))

    assert told["signed"] is True
    eventually(lambda: shop.status(run) == "done", saying="it is sent")
    (used,) = shop.read("approvals", "--all")
    assert (used["verdict"], used["by"]) == ("used", "ann")


def test_the_trust_file_may_be_named_in_pyproject(shop: Shop, waiting: tuple[str, str]) -> None:
    run, approval = waiting
    trusting(shop)
    (shop.folder / "pyproject.toml").write_text('[tool.milepost]\ntrust = "operators.toml"\napp = "shop:app"\n')
    shop.worker()
    shop.ok("approve", approval, "--by", "ann")
    eventually(lambda: bool(shop.read("show", run)["refused_answers"]), saying="it is refused")
    assert shop.ledger() == []


def test_the_doctor_says_whether_answers_are_signed(shop: Shop) -> None:
    def found(*args: str) -> tuple[str, str]:
        told = json.loads(shop.milepost("doctor", "--json", *args).stdout)
        (one,) = [one for one in told["findings"] if one["what"] == "approvals"]
        return one["state"], one["found"]

    unsigned = found("--app", "shop:app")
    trusting(shop)
    shop.ok("keys", "new", "bob", "--folder", "keys")
    shop.ok("keys", "trust", "keys/bob.pub", "--may", "seal", "--trust", "sealers.toml")

    assert unsigned == ("note", "answers are not signed: whoever can write to the store can approve")
    lacking = "signed, by ann; nobody is trusted to grant or resolve"
    assert found("--trust", "operators.toml") == ("note", lacking)
    shop.ok("keys", "trust", "keys/bob.pub", "--may", "grant", "--may", "resolve", "--trust", "operators.toml")
    assert found("--trust", "operators.toml") == ("ok", "signed, by ann")
    assert found("--trust", "sealers.toml")[0] == "wrong"
    assert found("--trust", "nothing.toml") == ("wrong", "key_refused")
