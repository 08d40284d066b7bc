"""Grants and resolutions signed on the command line, a key that is revoked, and every signature looked at again."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from milepost.core import codec
from milepost.core.word_entries import WordSigned
from tests.cli.shop_floor import Shop, drive_all

TRUST = ("--trust", "operators.toml")


def trusting(shop: Shop, name: str, *may: str) -> str:
    """Make a key, and trust it; return where it is."""
    shop.ok("keys", "new", name, "--folder", "keys")
    shop.ok("keys", "trust", f"keys/{name}.pub", *[part for one in may for part in ("--may", one)], *TRUST)
    return f"keys/{name}.key"


def drive(shop: Shop) -> None:
    """Drive every run under the trust file."""
    app = shop.app()
    app.trust = Path("operators.toml")
    asyncio.run(drive_all(app))


def refused(shop: Shop, run: str) -> list[tuple[str, str]]:
    return [(one["kind"], one["code"]) for one in shop.read("show", run)["refused_answers"]]


def test_a_worker_with_a_trust_file_takes_signed_grants_and_no_others(shop: Shop) -> None:
    """Requirement 25. Requirement 72. And `verify` looks at the signature again."""
    ann = trusting(shop, "ann", "grant")
    run = shop.start("paying", "o-1")
    shop.ok("grant", run, "payments:charge", "--budget", "usd=5", "--by", "ann")
    drive(shop)
    assert shop.status(run) == "parked"
    assert refused(shop, run) == [("grant", "unsigned")]
    assert "refused" in shop.ok("show", run)

    shop.ok("grant", run, "payments:charge", "--budget", "usd=5", "--key", ann)
    drive(shop)

    assert shop.status(run) == "done"
    told = shop.read("verify", run, *TRUST)
    assert (told["sound"], told["words"]["held"], told["words"]["doubts"]) == (True, 1, [])
    assert "1 signatures of operators hold" in shop.ok("verify", run, *TRUST)


def test_a_worker_with_a_trust_file_takes_signed_resolutions_and_no_others(shop: Shop) -> None:
    """Requirement 32."""
    ann = trusting(shop, "ann", "resolve")
    run = shop.start("faxing", "ann")
    drive(shop)
    path = "faxing/fax#1"
    shop.ok("resolve", run, path, "--did-not-happen", "--why", "so I say", "--by", "ann")
    drive(shop)
    assert refused(shop, run) == [("resolve", "unsigned")]
    assert shop.ledger() == ["fax ann"]

    shop.ok("resolve", run, path, "--happened", '"sent"', "--why", "it is in the journal", "--key", ann)
    drive(shop)

    assert shop.status(run) == "done"
    assert shop.ledger() == ["fax ann"]
    assert shop.read("verify", *TRUST)["words"]["held"] == 1


def test_what_nobody_signed_is_named_by_run_and_entry_when_the_record_is_verified(shop: Shop) -> None:
    """Requirement 48. A worker without a trust file took what anybody said."""
    trusting(shop, "ann", "grant")
    run = shop.start("paying", "o-1")
    shop.ok("grant", run, "payments:charge", "--budget", "usd=5", "--by", "ann")
    shop.drive()
    assert shop.status(run) == "done"

    shop.ok("verify", run)
    found = shop.milepost("verify", *TRUST)
    assert found.exit_code == 1
    assert f"UNPROVEN  run {run}" in found.output
    told = json.loads(shop.milepost("verify", *TRUST, "--json").stdout)
    (doubt,) = told["words"]["doubts"]
    assert (told["sound"], doubt["run_id"], doubt["code"]) == (False, run, "unsigned")
    widened = [line["entry"] for line in shop.read("journal", run)].index("widened") + 1
    assert doubt["seq"] == widened


def test_a_trust_file_for_seals_alone_says_nothing_of_what_people_said(shop: Shop) -> None:
    trusting(shop, "ann", "seal")
    run = shop.start("paying", "o-1")
    shop.ok("grant", run, "payments:charge", "--budget", "usd=5", "--by", "ann")
    shop.drive()

    assert "words" not in shop.read("verify", *TRUST)


def test_a_key_is_revoked_in_the_trust_file_and_nothing_else_in_it_changes(shop: Shop) -> None:
    trusting(shop, "ann", "grant")
    trusting(shop, "bob", "grant")
    file = shop.folder / "operators.toml"
    file.write_text("# who may do what\n" + file.read_text() + "# the end\n")
    file.chmod(0o640)
    before = file.read_text().splitlines()

    said = shop.ok("keys", "revoke", "ann", *TRUST)

    assert "trusts ann" in said
    after = file.read_text().splitlines()
    assert [line for line in after if line not in before] == [line for line in after if line.startswith("revoked = 2")]
    assert [line for line in after if not line.startswith("revoked")] == before
    assert file.stat().st_mode & 0o777 == 0o640
    standing = {one["name"]: one["standing"] for one in shop.read("keys", "list", *TRUST)}
    assert standing == {"ann": "revoked", "bob": "ok"}
    assert shop.read("keys", "revoke", "ann", *TRUST)["revoked"] is not None  # a second time changes nothing
    assert file.read_text().splitlines() == after


@pytest.mark.parametrize("said", ["revoked = false\n", ""])
def test_a_key_that_was_said_not_to_be_revoked_is(shop: Shop, said: str) -> None:
    trusting(shop, "ann", "grant")
    file = shop.folder / "operators.toml"
    file.write_text(file.read_text() + said)

    shop.ok("keys", "revoke", "ann", *TRUST)

    assert [one["standing"] for one in shop.read("keys", "list", *TRUST)] == ["revoked"]


def test_a_key_that_is_not_listed_or_written_in_another_way_is_not_revoked_silently(shop: Shop) -> None:
    trusting(shop, "ann", "grant")
    assert shop.refused("keys", "revoke", "eve", *TRUST) == (2, "key_refused")
    (ann,) = shop.read("keys", "list", *TRUST)
    file = shop.folder / "operators.toml"
    file.write_text(f'operator = [{{ name = "ann", public = "{ann["public"]}", may = ["grant"] }}]\n')
    assert shop.refused("keys", "revoke", "ann", *TRUST) == (2, "key_refused")


def test_a_key_that_was_revoked_grants_nothing_more(shop: Shop) -> None:
    """Requirement 49."""
    ann = trusting(shop, "ann", "grant")
    run = shop.start("paying", "o-1")
    shop.ok("grant", run, "payments:charge", "--budget", "usd=5", "--key", ann)
    shop.ok("keys", "revoke", "ann", *TRUST)
    drive(shop)

    assert shop.status(run) == "parked"
    assert refused(shop, run) == [("grant", "revoked_signer")]


def test_the_entry_of_a_signed_word_is_read_back_as_it_was_signed() -> None:
    """The bytes that were signed are kept, not made anew."""
    said = b'{"b":1,  "a":[1,2]}'
    word = WordSigned(at=1, id="w", kind="grant", by="ann", said=msgspec.Raw(said), signature="s")
    read = codec.decode(codec.encode(word))

    assert isinstance(read, WordSigned)
    assert bytes(read.said) == said
