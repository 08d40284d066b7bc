"""Fault 25: hostile rows in the file, arguments of 50 MB, halves of characters, and a secret to be found nowhere.

Who can write to the file can compute a chain anew, so hostile entries come with the right hash. The worker that reads
them has little memory: what grows without bound dies, and an answer other than a refusal is a problem.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from hashlib import sha256

import apsw

from faults.scenarios import baseline
from faults.scoreboard import Fault
from faults.stage import Stage, how, said
from faults.tools import TOKEN
from faults.worker import STORE_FAILED
from milepost.core.chain import link
from milepost.testing.world import Rules, Toxic

MEGABYTE = 1_000_000
MEMORY = 1_500 * MEGABYTE  # of address space, most of which nobody touches
MUCH = 50 * MEGABYTE
CANARY = "canary"
LAST = """SELECT j.row, j.run, coalesce(p.hash, x'') FROM mp_heads h JOIN mp_journal j ON j.row = h.row
LEFT JOIN mp_journal p ON p.row = j.previous WHERE j.run > 0"""
TRIGGERS = ("mp_journal_no_update", "mp_journal_no_delete", "mp_chunks_no_update")
PUT_BODY = "UPDATE mp_journal SET body = ?, hash = ? WHERE row = ?"
PUT_HEAD = "UPDATE mp_heads SET hash = ? WHERE run = ?"
PUT_CHUNK = "UPDATE mp_chunks SET body = ? WHERE row = (SELECT min(row) FROM mp_chunks)"
PUT_MAIL = "INSERT INTO mp_inbox (run, message_id, body) SELECT run, 'hostile', ? FROM mp_heads WHERE run > 0"
DEEP = 100_000


def hostile_input(stage: Stage) -> None:
    """Do what the seed means."""
    (hostile_entry, hostile_row, no_text, canary, hostile_entry, too_much)[stage.seed % 6](stage)


def bodies(stage: Stage) -> list[bytes]:
    """Return what an attacker may put in the place of an entry."""
    code = f"cposix\nsystem\n(S'touch {stage.folder / CANARY}'\ntR.".encode()
    return [
        code,  # what a pickle does when it is read
        b'{"entry":"claimed.1","at":1,"epoch":1,"owner":"' + b"x" * 40 * MEGABYTE + b'"}',
        b'{"entry":"claimed.1","at":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"entry":"claimed.1","at":1,"epoch":' + b"9" * 10_000 + b',"owner":"x"}',
        b'{"entry":"claimed.99","at":1,"epoch":2,"owner":"x"}',
        b'{"entry":"os.system","at":1,"args":["touch"]}',
        b'{"py/object":"os.system","entry":"claimed.1"}',
        b'{"entry":"claimed.1","at":1,"epoch":1,"owner":"\\ud83d"}',
        b'{"entry":"effect_confirmed.1","at":1,"step":"nowhere","attempt":1,"result":{"$ref":"../../etc/passwd"}}',
        b'{"entry":"effect_confirmed.1","at":1,"step":":0","attempt":7,"result":{"$ref":"' + b"0" * 64 + b'"}}',
        b'{"entry":"run_done.1","at":1,"boundary":null,"result":null}',
        stage.chance.randbytes(200),
        b"",
    ]


def waiting(stage: Stage) -> int:
    """Leave a run that was killed before its one call was sent; return how many requests had arrived."""
    among = baseline.points(stage, "one", "press")
    stage.result.must(stage.killed(among[baseline.sending(among)], "one", "press"), "the kill did not land")
    stage.ask(lambda store: store.counts())
    return len(stage.outside.requests())


def hostile_entry(stage: Stage) -> None:
    """Put hostile bytes in the place of the last entry, with the hash that they need."""
    sent = waiting(stage)
    choices = bodies(stage)
    body = choices[stage.seed // 6 % len(choices)]
    by_hand(stage, body)
    must_refuse(stage, sent, f"an entry {body[:60]!r}")


def hostile_row(stage: Stage) -> None:
    """Put hostile bytes into a chunk, or into the inbox."""
    sent = waiting(stage)
    body = stage.chance.choice(bodies(stage))
    connection = opened(stage)
    in_chunk = bool(stage.seed // 6 % 2)
    connection.execute(PUT_CHUNK if in_chunk else PUT_MAIL, (body,)).fetchall()
    connection.close()
    if in_chunk:
        must_refuse(stage, sent, f"a chunk {body[:60]!r}")
        return
    # A message that cannot be read is refused in the record, and the run goes on.
    stage.result.points += 1
    stage.done("one", "press")
    stage.result.must(not (stage.folder / CANARY).exists(), "code from a message was run")


def opened(stage: Stage) -> apsw.Connection:
    """Open the file as its owner can: without its triggers."""
    connection = apsw.Connection(str(stage.folder / "store.db"))
    for name in TRIGGERS:
        connection.execute(f"DROP TRIGGER {name}").fetchall()
    return connection


def by_hand(stage: Stage, body: bytes) -> None:
    """Write the last entry of a run anew, and its hash."""
    connection = opened(stage)
    (found,) = connection.execute(LAST).fetchall()
    row, run, before = found
    assert isinstance(before, bytes), "a hash is bytes"
    digest = link(before, body)
    connection.execute(PUT_BODY, (body, digest, row)).fetchall()
    connection.execute(PUT_HEAD, (digest, run)).fetchall()
    connection.close()


def must_refuse(stage: Stage, sent: int, what: str) -> None:
    """Check that a worker with little memory refuses what it finds: by a name of ours, and without sending anything."""
    ended = stage.work("one", "press", memory=MEMORY)
    stage.result.points += 1
    refused = ended.code == STORE_FAILED or how(ended) == "run_blocked"
    stage.result.must(refused, f"{what}: it ended with {how(ended)}")
    stage.result.must(len(stage.outside.requests()) == sent, f"{what}: something was sent")
    stage.result.must(not (stage.folder / CANARY).exists(), f"{what}: its code was run")


def no_text(stage: Stage) -> None:
    """Hand over, return and raise what is no text."""
    form = stage.chance.choice(["murmur", "raises", "returns"])
    stage.result.points += 1
    if form == "murmur":
        ended = stage.work("one", "murmur")
        stage.result.must(how(ended) == "run_failed", f"half a character as an argument: it ended with {how(ended)}")
        stage.result.must(not stage.outside.requests(), "it was sent")
        stage.judge("half a character as an argument")
        return
    stage.done("one", "babble", name=form)
    stage.result.must(len(stage.outside.lines()) == 1, f"applied {len(stage.outside.lines())} times")


def too_much(stage: Stage) -> None:
    """Hand over 50 MB."""
    stage.declare(hears_s=20.0)
    ended = stage.work("one", "swallow", name=str(MUCH), memory=MEMORY)
    stage.result.points += 1
    if how(ended) == "done":
        stage.result.must(said(ended)["result"] == str(MUCH), "it came out as something else")
    else:
        stage.result.must(how(ended) == "run_failed", f"50 MB: it ended with {how(ended)}")
        stage.result.must(not stage.outside.requests(), "it was sent, and then refused")
    stage.judge("50 MB")


def canary(stage: Stage) -> None:
    """Use a secret in calls whose answers are lost and whose worker is killed, and look for it in all that is left."""
    secret = f"{CANARY}-{secrets.token_hex(12)}"
    stage.outside.obey(Rules(script=(Toxic("drop"), Toxic("gateway", status=500))))
    life = stage.start("run", "one", "confide", "x", environment={TOKEN: secret})
    stage.until(stage.outside.lines, "the secret was used")
    if stage.chance.random() < 0.5:
        life.send(signal.SIGKILL)
    stage.ended(life)
    ended = stage.ended(stage.start("run", "one", "confide", "x", environment={TOKEN: secret}))
    stage.result.must(how(ended) == "done", f"it ended with {how(ended)}")
    used = sha256(secret.encode()).hexdigest()
    stage.result.met(said(ended).get("result") == used)
    shown = "".join(command(stage, *words) for words in (["runs"], ["journal", run_of(stage)], ["show", run_of(stage)]))
    stage.result.must(used[:8] in shown, "the commands show nothing of the run")
    left = [path for path in stage.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    stage.result.must(not left, f"the secret is in {[path.name for path in left]}")
    stage.result.must(secret not in shown, "the secret is in what the commands show")
    stage.judge("with a secret")


def run_of(stage: Stage) -> str:
    """Return the id of the run."""
    return stage.runs()[0].id


def command(stage: Stage, *words: str) -> str:
    """Return what a command of the package shows."""
    done = subprocess.run(
        [sys.executable, "-m", "milepost", *words, "--store", stage.url()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    stage.result.must(done.returncode == 0, f"milepost {words[0]} ended with {done.returncode}: {done.stderr[-200:]}")
    return done.stdout


FAULTS = (
    Fault(
        25,
        "hostile rows, 50 MB, half characters, a secret",
        "entries, chunks and messages by an attacker who can compute the chain, read with bounded memory; 50 MB and "
        "lone surrogates through tools; a secret in calls that are lost and killed",
        "refused by name, no code run, nothing sent; applied once; the secret in no file, log or command",
        hostile_input,
        tries=72,
        smoke=6,
    ),
)
