"""Keys on the command line: made once, never shown, trusted for what was said."""

import stat

import pytest

from tests.cli.shop_floor import Shop


def test_a_key_is_made_listed_and_trusted_without_its_private_half_being_shown(bare: Shop) -> None:
    said = bare.ok("keys", "new", "ada", "--folder", "keys")
    private = (bare.folder / "keys" / "ada.key").read_text()

    assert stat.S_IMODE((bare.folder / "keys" / "ada.key").stat().st_mode) == 0o600
    assert "milepost keys trust" in said
    trusted = bare.ok("keys", "trust", "keys/ada.pub", "--may", "seal", "--may", "export", "--expires", "90d")
    assert "operators.toml trusts ada" in trusted
    listed = bare.ok("keys", "list", "--folder", "keys") + bare.ok("keys", "list", "--trust", "operators.toml")
    secret = "".join(private.splitlines()[1:-1])
    for shown in (said, trusted, listed, (bare.folder / "operators.toml").read_text()):
        assert secret not in shown
        assert "PRIVATE" not in shown
    assert bare.read("keys", "list", "--folder", "keys")[0]["private"]
    [one] = bare.read("keys", "list", "--trust", "operators.toml")
    assert (one["name"], one["may"], one["standing"]) == ("ada", ["export", "seal"], "ok")
    assert one["expires"] is not None


def test_an_existing_key_is_never_overwritten(bare: Shop) -> None:
    bare.ok("keys", "new", "ada", "--folder", "keys")
    before = (bare.folder / "keys" / "ada.key").read_bytes()

    assert bare.refused("keys", "new", "ada", "--folder", "keys") == (2, "key_refused")
    assert (bare.folder / "keys" / "ada.key").read_bytes() == before


def test_a_private_key_is_no_public_one_and_trust_says_for_what(bare: Shop) -> None:
    bare.ok("keys", "new", "ada", "--folder", "keys")

    assert bare.refused("keys", "trust", "keys/ada.key", "--may", "seal") == (2, "key_refused")
    assert bare.refused("keys", "trust", "keys/ada.pub") == (2, "usage")
    assert bare.refused("keys", "trust", "keys/ada.pub", "--may", "everything") == (2, "usage")
    assert not (bare.folder / "operators.toml").exists()


def test_a_key_file_for_payloads_encrypts_what_every_command_writes(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "where the store is not" in shop.ok("keys", "payload", "payload.keys")
    assert stat.S_IMODE((shop.folder / "payload.keys").stat().st_mode) == 0o600
    monkeypatch.setenv("MILEPOST_ENCRYPTION", "payload.keys")
    run = shop.start("mailing", "a-canary")
    shop.drive()
    shop.ok("kill", run, "--why", "another-canary")
    shop.ok("keys", "payload", "payload.keys", "--rotate", "--id", "k2")
    other = shop.start("buy", "a-canary")
    shop.drive()

    assert (shop.status(run), shop.status(other)) == ("killed", "done")
    assert shop.read("effects", other, "--all")[0]["args"]["order"] == "a-canary"
    shop.ok("verify")
    for path in shop.folder.glob("shop.db*"):
        assert not path.is_file() or b"canary" not in path.read_bytes()

    monkeypatch.delenv("MILEPOST_ENCRYPTION")
    assert shop.refused("journal", run) == (4, "key_missing")
    assert shop.refused("kill", run)[1] in {"key_missing", "wrong_status"}
    assert shop.refused("start", "buy", '"x"') == (4, "key_missing")
    told = shop.read("verify")
    assert told["sound"]
    assert {one["hidden"] for one in told["runs"]} == {"k1", "k2"}
    assert "checked by its chain alone" in shop.milepost("verify").output


def test_without_the_extra_each_command_that_signs_says_what_to_install(bare: Shop) -> None:
    """A path entry in front makes `cryptography` a module that cannot be imported, as where it is not installed."""
    (bare.folder / "cryptography.py").write_text("raise ImportError('no module named cryptography')\n")

    (bare.folder / "a.key").write_text("")
    (bare.folder / "a.key").chmod(0o600)
    writing = ("--to", "x", "--key", "a.key")
    for command in (("keys", "new", "b"), ("seal", *writing), ("export", "r", *writing)):
        ran = bare.process(*command, env=bare.environment())
        assert ran.returncode == 2, command
        assert "pip install 'milepost[crypto]'" in ran.stderr
        assert "Traceback" not in ran.stderr
    bare.ok("init", "--store", "shop.db")
    assert bare.process("verify", "--store", "shop.db", env=bare.environment()).returncode == 0
    assert bare.process("prune", "--before", "1d", "--store", "shop.db", env=bare.environment()).returncode == 0
