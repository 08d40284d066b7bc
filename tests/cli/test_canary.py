"""A secret that tools are given, and tell wherever they can, is searched for in all that is left of it."""

import base64
import secrets
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.shop_floor import Shop
from tests.polling import eventually

PROGRAM = Path(__file__).with_name("leaking.py")
READING = (
    ("runs",), ("runs", "--needs-you"), ("show", "RUN"), ("journal", "RUN"), ("effects", "RUN", "--all"),
    ("plan", "RUN"), ("verify",), ("doctor",), ("switches",), ("approvals", "--all"), ("budget",), ("tools",),
    ("doctor", "--production"), ("diff", "RUN", "OTHER"), ("prune", "--before", "1d", "--dry-run"),
)  # fmt: skip


def forms(secret: str) -> tuple[bytes, ...]:
    """Return how a secret may be written down; in base64 (of a bundle) it may begin at any of three places."""
    plain = secret.encode()
    based = [base64.b64encode(b"x" * before + plain)[4 if before else 0 : -4] for before in range(3)]
    return (plain, quote(secret, safe="").encode(), plain.hex().encode(), *based)


@pytest.fixture
def canary(bare: Shop, monkeypatch: pytest.MonkeyPatch) -> str:
    secret = f"canary/{secrets.token_hex(12)}+="
    shutil.copy(PROGRAM, bare.folder / "leaking.py")
    monkeypatch.setenv("BANK_TOKEN", secret)
    monkeypatch.setenv("MILEPOST_APP", "leaking:app")
    bare.ok("init", "--store", "leaking.db")
    return secret


def test_a_secret_is_in_no_file_no_log_no_bundle_no_command_and_no_error(bare: Shop, canary: str) -> None:
    """Requirement 45. Database, write-ahead log, worker's log, events, seal, bundle, what each command says."""
    worker = bare.worker()
    runs = [bare.start("confiding", order) for order in ("fails", "waits")]
    eventually(lambda: bare.status(runs[0]) == "failed")
    eventually(lambda: bare.read("show", runs[1])["waits_for"] == "unknown")
    bare.ok("keys", "new", "ada", "--folder", "keys")
    bare.ok("seal", "--to", "store.seal", "--key", "keys/ada.key")
    bare.ok("export", *runs, "--to", "runs.bundle", "--key", "keys/ada.key")
    for name in ("leaking.db", "leaking.db-wal"):
        assert (bare.folder / name).stat().st_size, f"{name} holds something while the worker lives"
    left = {path.name: path.read_bytes() for path in bare.folder.rglob("*") if path.is_file()}
    worker.kill()
    worker.wait()

    said = {}
    for command in READING:
        args = [{"RUN": runs[0], "OTHER": runs[1]}.get(part, part) for part in command]
        for options in ((), ("--json",)):
            said[" ".join([*command, *options])] = bare.milepost(*args, *options).output.encode()
    said |= {f"show {run}": bare.ok("show", run).encode() for run in runs}

    entries = {line["entry"] for line in bare.read("journal", runs[0])}
    assert {"credential_used", "effect_failed", "finding_recorded", "read_failed", "run_stopped"} <= entries
    assert b"[secret BANK_TOKEN]" in left["leaking.db"] + left["leaking.db-wal"], "it was there to be told"
    assert b"[secret BANK_TOKEN]" in said[f"show {runs[0]}"]
    assert [name for name, data in {**left, **said}.items() if any(form in data for form in forms(canary))] == []
