"""Keys: what is signed is what is verified, by whom it was signed, and only for what they are trusted."""

import stat
from pathlib import Path

import pytest

from milepost.core.statement import APPROVAL, EXPORT, SEAL, domain_of, statement
from milepost.operations import keys, revoking
from milepost.operations.keys import KeyRefused, Operator, Signer, Trust, Untrusted

NOW = 1_800_000_000_000


@pytest.fixture
def ada(tmp_path: Path) -> Signer:
    keys.create("ada", tmp_path)
    return keys.read_private(tmp_path / "ada.key")


def trusting(signer: Signer, *may: str, **facts: int) -> Trust:
    return Trust({signer.name: Operator(signer.name, signer.public, frozenset(may), **facts)})


def why(trust: Trust, name: str, said: bytes, signature: str) -> str:
    with pytest.raises(Untrusted) as refused:
        keys.verify(trust, name, said, signature, NOW)
    assert refused.value.code == "untrusted"
    return refused.value.why


def test_a_statement_is_the_same_bytes_in_whatever_order_its_facts_are_given() -> None:
    one = statement(SEAL, {"b": 1, "a": {"d": [1, 2], "c": None}})

    assert one == statement(SEAL, {"a": {"c": None, "d": [1, 2]}, "b": 1})
    assert one == b'{"a":{"c":null,"d":[1,2]},"b":1,"domain":"milepost.seal.1"}'
    assert domain_of(one) == SEAL


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"domain":"other.1"}', b'{"domain":7}', b"\xff", b"[" * 9999])
def test_bytes_without_a_known_domain_are_no_statement_and_are_not_signed(ada: Signer, data: bytes) -> None:
    with pytest.raises(ValueError, match="statement"):
        domain_of(data)
    with pytest.raises(ValueError, match="statement"):
        keys.sign(ada, data)


def test_the_domain_of_a_statement_cannot_be_given_as_a_fact() -> None:
    with pytest.raises(ValueError, match="no fact"):
        statement(SEAL, {"domain": APPROVAL})
    with pytest.raises(ValueError, match="no domain"):
        statement("milepost.seal.2", {})


def test_a_signature_verifies_for_these_bytes_and_this_operator_alone(ada: Signer, tmp_path: Path) -> None:
    keys.create("bob", tmp_path)
    bob = keys.read_private(tmp_path / "bob.key")
    said = statement(APPROVAL, {"approval": "ap-1", "approved": True})
    signature = keys.sign(ada, said)
    trust = Trust({**trusting(ada, "approve").operators, **trusting(bob, "approve").operators})

    assert keys.verify(trust, "ada", said, signature, NOW).public == ada.public
    assert "another key" in why(trust, "bob", said, signature)
    assert "another key" in why(trust, "ada", said.replace(b"true", b"null"), signature)
    assert "another key" in why(trust, "ada", said, keys.sign(bob, said))
    for broken in ("", "not base64 é", signature[:-8], signature[4:]):
        assert "another key" in why(trust, "ada", said, broken)


def test_a_key_signs_only_what_it_is_trusted_for(ada: Signer) -> None:
    trust = trusting(ada, "seal")
    for domain, accepted in ((SEAL, True), (APPROVAL, False), (EXPORT, False)):
        said = statement(domain, {"x": 1})
        if accepted:
            assert keys.verify(trust, "ada", said, keys.sign(ada, said), NOW)
        else:
            assert "this needs" in why(trust, "ada", said, keys.sign(ada, said))


def test_an_approval_never_passes_for_a_seal(ada: Signer) -> None:
    trust = trusting(ada, "approve", "seal")
    signature = keys.sign(ada, statement(APPROVAL, {"x": 1}))

    assert "another key" in why(trust, "ada", statement(SEAL, {"x": 1}), signature)


def test_an_unlisted_an_expired_and_a_revoked_operator_are_refused(ada: Signer) -> None:
    said = statement(SEAL, {"x": 1})
    signature = keys.sign(ada, said)

    assert "no such operator" in why(Trust(), "ada", said, signature)
    assert "expired" in why(trusting(ada, "seal", expires=NOW), "ada", said, signature)
    assert "revoked" in why(trusting(ada, "seal", revoked=NOW + 10), "ada", said, signature)
    assert keys.verify(trusting(ada, "seal", expires=NOW + 1), "ada", said, signature, NOW)


def test_the_private_half_is_for_its_owner_alone_and_is_never_overwritten_nor_shown(tmp_path: Path) -> None:
    made = keys.create("ada", tmp_path / "keys")
    private, public = tmp_path / "keys" / "ada.key", tmp_path / "keys" / "ada.pub"
    before = private.read_bytes()

    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert keys.read_private(private).public == made.public
    assert b"PRIVATE" not in public.read_bytes()
    with pytest.raises(KeyRefused, match="never overwritten"):
        keys.create("ada", tmp_path / "keys")
    assert private.read_bytes() == before
    assert "PRIVATE" not in repr(keys.read_private(private))
    assert "Ed25519PrivateKey" not in repr(keys.read_private(private))


def test_a_key_whose_public_half_is_there_already_leaves_no_private_half_behind(tmp_path: Path) -> None:
    (tmp_path / "ada.pub").write_text("somebody's")

    with pytest.raises(KeyRefused):
        keys.create("ada", tmp_path)

    assert not (tmp_path / "ada.key").exists()
    assert (tmp_path / "ada.pub").read_text() == "somebody's"


@pytest.mark.parametrize("name", ["", "../ada", "a b", ".hidden", 'a"b', "a\nb"])
def test_a_name_that_could_leave_its_folder_or_its_line_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyRefused):
        keys.create(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_private_key_that_others_may_read_is_refused(ada: Signer, tmp_path: Path) -> None:
    (tmp_path / "ada.key").chmod(0o640)

    with pytest.raises(KeyRefused, match="chmod 600"):
        keys.read_private(tmp_path / "ada.key")


def test_a_file_that_is_no_key_is_refused_without_a_word_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "x.key"
    path.write_text("a-canary-that-is-secret")
    path.chmod(0o600)

    with pytest.raises(KeyRefused) as refused:
        keys.read_private(path)
    assert "canary" not in str(refused.value)


def test_a_trust_file_says_what_each_may_sign_until_when_and_who_was_revoked(tmp_path: Path, ada: Signer) -> None:
    path = tmp_path / "operators.toml"
    keys.add(path, Operator("ada", ada.public, frozenset()), ["seal", "approve"], NOW)
    keys.create("bob", tmp_path)
    keys.add(path, next(iter(keys.load(tmp_path / "bob.pub").operators.values())), ["export"], None)

    trust = keys.load(path)
    assert trust.operators["ada"] == Operator("ada", ada.public, frozenset({"approve", "seal"}), NOW)
    assert trust.operators["bob"].may == {"export"}

    path.write_text(path.read_text() + "revoked = true\n")
    assert keys.load(path).operators["bob"].revoked is not None
    path.write_text(path.read_text().replace("revoked = true", "revoked = 2030-01-01T00:00:00Z"))
    assert keys.load(path).operators["bob"].revoked == 1_893_456_000_000


def test_trust_is_not_changed_by_adding_a_name_again(tmp_path: Path, ada: Signer) -> None:
    path = tmp_path / "operators.toml"
    keys.add(path, Operator("ada", ada.public, frozenset()), ["seal"], None)
    before = path.read_text()

    with pytest.raises(KeyRefused, match="already"):
        keys.add(path, Operator("ada", ada.public, frozenset()), ["approve"], None)
    assert path.read_text() == before


GOOD = "ed25519:" + "A" * 43 + "="


@pytest.mark.parametrize(
    "text",
    [
        "[[operator",
        'operator = "ada"',
        '[[operator]]\nname = "ada"',
        f'[[operator]]\nname = "ada"\npublic = "{GOOD[:-9]}"',
        f'[[operator]]\nname = "ada"\npublic = "{GOOD}"\nmay = ["everything"]',
        f'[[operator]]\nname = "ada"\npublic = "{GOOD}"\nmay = "seal"',
        f'[[operator]]\nname = "ada"\npublic = "{GOOD}"\nexpires = "never"',
        f'[[operator]]\nname = "ada"\npublic = "{GOOD}"\nrevoked = "no"',
        f'[[operator]]\nname = "ada"\npublic = "{GOOD}"\nrevokd = true',
        f'[[operator]]\nname = "ada"\npublic = "{GOOD}"\n[[operator]]\nname = "ada"\npublic = "{GOOD}"',
        f'[other]\n[[operator]]\nname = "ada"\npublic = "{GOOD}"',
    ],
)
def test_a_trust_file_that_cannot_be_read_as_one_trusts_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "operators.toml"
    path.write_text(text)

    with pytest.raises(KeyRefused):
        keys.load(path)


def test_a_trust_file_that_others_may_write_proves_nothing(tmp_path: Path, ada: Signer) -> None:
    path = tmp_path / "operators.toml"
    keys.add(path, Operator("ada", ada.public, frozenset()), ["seal"], None)
    path.chmod(0o666)

    with pytest.raises(KeyRefused, match="chmod go-w"):
        keys.load(path)


@pytest.mark.parametrize(
    "name",
    [
        'eve\\"\\nmay = [\\"approve\\"]\\n[[operator]]\\nname = \\"eva',
        "eve\\nrevoked = false",
        "",
        "../eve",
        "e ve",
        "eve\\u202e",
    ],
)
def test_a_public_key_whose_name_could_write_more_than_itself_is_not_trusted(
    tmp_path: Path, ada: Signer, name: str
) -> None:
    """Whoever gives it away would say by its name what else the trust file holds, such as what it may sign."""
    given, place = tmp_path / "eve.pub", tmp_path / "operators.toml"
    given.write_text(f'[[operator]]\nname = "{name}"\npublic = "{ada.public}"\n')
    (operator,) = keys.load(given).operators.values()

    with pytest.raises(KeyRefused, match="a key's name is made of"):
        keys.add(place, operator, ["seal"], None)

    assert not place.exists()


def test_a_key_is_revoked_in_the_file_itself_where_a_link_leads_to_it(tmp_path: Path, ada: Signer) -> None:
    """Else a worker that reads the file by its own name would go on believing it."""
    real, link = tmp_path / "operators.toml", tmp_path / "link.toml"
    keys.add(real, Operator("ada", ada.public, frozenset()), ["approve"], None)
    link.symlink_to(real)

    revoking.revoke(link, "ada", 1_000)

    assert link.is_symlink()
    assert keys.load(real).operators["ada"].revoked == 1_000
