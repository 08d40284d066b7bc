"""`milepost keys`: the keys that operators sign with, and whom a store's people trust."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli import options
from milepost.cli.opening import now_ms
from milepost.cli.options import json_option
from milepost.cli.printing import iso, plain, say, say_json, table
from milepost.core.duration import parse_ms
from milepost.operations import keys as operators
from milepost.operations import revoking
from milepost.stores.encryption import write as write_keys

DEFAULT_TRUST = "operators.toml"


@click.group()
def keys() -> None:
    """Make the keys that operators sign with, and say whom to trust. Each command takes --json.

    A private key never leaves its file. Keep trust files where no worker and no agent can write.
    """


def folder_option(command: options.F) -> options.F:
    """Let a command be told where keys are kept."""
    return click.option(
        "--folder", type=click.Path(file_okay=False, path_type=Path), help="Where keys are kept; else MILEPOST_KEYS."
    )(command)


def trust_option(command: options.F) -> options.F:
    """Let a command be told whom to trust."""
    return click.option(
        "--trust", envvar="MILEPOST_TRUST", type=click.Path(dir_okay=False, path_type=Path),
        help="The trust file: whose signatures count.",
    )(command)  # fmt: skip


def key_option(command: options.F) -> options.F:
    """Let a command be told what to sign with."""
    return click.option(
        "--key", envvar="MILEPOST_KEY", metavar="NAME|FILE", required=True, help="The private key to sign with."
    )(command)


@keys.command()
@click.argument("name")
@folder_option
@json_option
def new(name: str, folder: Path | None, *, as_json: bool) -> None:
    """Make a key pair. An existing key is never overwritten, and the private half is never shown."""
    place = folder or operators.home()
    made = operators.create(name, place)
    public = place / f"{name}.pub"
    if as_json:
        say_json({"name": name, "fingerprint": made.fingerprint, "public": made.public, "file": public})
        return
    say(f"Made key {plain(name)}, {made.fingerprint}. Its private half stays in {place / name}.key.")
    say(f"Give {public} to whoever has to trust it:")
    say(f"  milepost keys trust {public} --may approve")


@keys.command("list")
@folder_option
@trust_option
@json_option
def list_(folder: Path | None, trust: Path | None, *, as_json: bool) -> None:
    """List the keys of this machine, or with --trust the operators of a trust file."""
    if trust is not None:
        found = [(one, False) for one in operators.load(trust).operators.values()]
    else:
        found = operators.listed(folder or operators.home())
    if as_json:
        say_json(
            [
                {
                    "name": one.name,
                    "fingerprint": one.fingerprint,
                    "public": one.public,
                    "private": private,
                    "may": sorted(one.may),
                    "expires": iso(one.expires),
                    "revoked": iso(one.revoked),
                    "standing": standing(one),
                }
                for one, private in found
            ]
        )
    elif not found:
        say("No keys here. Make one: milepost keys new NAME")
    elif trust is not None:
        shown = [(one.name, one.fingerprint, ", ".join(sorted(one.may)), standing(one)) for one, _ in found]
        table(("name", "key", "may sign", "standing"), shown, styled="standing")
    else:
        rows = [(one.name, one.fingerprint, "both halves" if private else "public half") for one, private in found]
        table(("name", "key", "here"), rows)


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--may", multiple=True, type=click.Choice(operators.MAY), required=True, help="What it may sign.")
@click.option("--expires", type=options.Span(), metavar="SPAN", help="For how long it is trusted, such as 90d.")
@trust_option
@json_option
def trust(file: Path, may: tuple[str, ...], expires: str | None, trust: Path | None, *, as_json: bool) -> None:
    """Add the public key in FILE to the trust file. To take that back: milepost keys revoke NAME."""
    place = trust or Path(DEFAULT_TRUST)
    given = list(operators.load(file).operators.values())
    if len(given) != 1:
        raise operators.KeyRefused(file, f"it holds {len(given)} keys, and one is added at a time")
    until = None if expires is None else now_ms() + parse_ms(expires)
    added = operators.add(place, given[0], may, until)
    if as_json:
        told = {"name": added.name, "fingerprint": added.fingerprint, "may": sorted(added.may), "expires": iso(until)}
        say_json({**told, "trust": place})
        return
    say(f"{place} trusts {plain(added.name)}, {added.fingerprint}, to {', '.join(sorted(added.may))}.")


@keys.command()
@click.argument("name")
@trust_option
@json_option
def revoke(name: str, trust: Path | None, *, as_json: bool) -> None:
    """Take back the trust in an operator's key, whatever it signed and whenever.

    Each worker that reads this trust file believes nothing of it any more, from now on.
    """
    place = trust or Path(DEFAULT_TRUST)
    gone = revoking.revoke(place, name, now_ms())
    if as_json:
        told = {"name": gone.name, "fingerprint": gone.fingerprint, "revoked": iso(gone.revoked)}
        say_json({**told, "trust": place})
        return
    say(f"{place} trusts {plain(gone.name)}, {gone.fingerprint}, no more (revoked {iso(gone.revoked)}).")


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--id", "key_id", default="k1", show_default=True, metavar="ID", help="The name of the new key.")
@click.option("--rotate", is_flag=True, help="Add a key to an existing file; what is written from now on takes it.")
@json_option
def payload(file: Path, key_id: str, *, rotate: bool, as_json: bool) -> None:
    """Make a key file for encrypted payloads: App(encryption=…) or MILEPOST_ENCRYPTION.

    Without it nothing that was encrypted is ever read again: keep a copy where the store is not.
    """
    write_keys(file, key_id, rotate=rotate)
    if as_json:
        say_json({"file": file, "current": key_id, "rotated": rotate})
        return
    done = "Added" if rotate else "Made"
    say(f"{done} key {plain(key_id)} in {file}. Keep a copy where the store is not.")


def standing(one: operators.Operator) -> str:
    """Say in a word how a trusted key stands."""
    if one.revoked is not None:
        return "revoked"
    return "expired" if one.expires is not None and one.expires <= now_ms() else "ok"
