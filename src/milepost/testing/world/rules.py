"""How the outside world treats one account: its clock, how long it knows keys, how late it shows, and what goes wrong.

The rules of an account are a small JSON file that a test may rewrite at any time; each service and the proxy read it
anew for each exchange. So one world serves many tests, each in an account of its own.

What goes wrong with an exchange is a `Toxic`. A test either scripts them, one for each exchange that changes something
(in order; after the script all goes well), or lets a seed choose. A seeded choice depends on the seed, on what is
asked for and on how often it was asked, never on the order in which things come: so a seed that failed fails again. It
is bounded: from the fourth time on the same thing is treated well, else a loop of retries might prove nothing.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal["none", "delay", "drop", "reset", "trickle", "late", "gateway", "truncate"]
KINDS: tuple[Kind, ...] = ("none", "delay", "drop", "reset", "trickle", "late", "gateway", "truncate")
WELL_BEHAVED_FROM = 3
SPAN = 2**64


class Toxic(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the proxy does to one exchange.

    delay     the answer comes `ms` later drop      the request passes, and its answer is never heard: silence until
    the client gives up reset     the connection is reset; before the request passed, or, if `forward`, after it was
    applied trickle   the answer comes one byte each `ms` late      the client hears nothing, and the request passes
    only `ms` later by the account's clock gateway   an answer with `status` that the origin never gave; the request
    passes first if `forward` truncate  the request passes, and its answer ends in the middle of the body
    """

    kind: Kind = "none"
    ms: int = 0
    status: int = 502
    forward: bool = True

    @property
    def applies(self) -> bool:
        """Whether the origin sees the request at all."""
        return self.kind not in {"gateway", "reset"} or self.forward

    @property
    def name(self) -> str:
        """A short name for tables."""
        match self.kind:
            case "gateway":
                return f"{self.status} {'after' if self.forward else 'without'} the origin"
            case "reset":
                return f"reset {'after' if self.forward else 'before'} the origin"
            case "delay" | "trickle" | "late":
                return f"{self.kind} {self.ms} ms"
            case _:
                return self.kind


FINE = Toxic()
# What a seed draws from, and how often out of a hundred: the rest of the exchanges is left alone.
SEEDED: tuple[tuple[int, Toxic], ...] = (
    (7, Toxic("delay", ms=30)),
    (7, Toxic("drop")),
    (6, Toxic("reset", forward=True)),
    (6, Toxic("reset", forward=False)),
    (4, Toxic("trickle", ms=2)),
    (6, Toxic("gateway", status=502, forward=True)),
    (6, Toxic("gateway", status=504, forward=False)),
    (4, Toxic("gateway", status=500, forward=True)),
    (4, Toxic("truncate")),
)


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of one account. Spans are in milliseconds.

    `clock_ms` is how far its clock is ahead of the machine's; `shows_after_ms` how late a list shows what was applied;
    `knows_keys_ms` how long an idempotency key is remembered. `script` or `seed` say what goes wrong; a seed `spares`
    the exchanges in whose name (such as `POST irreversible/press/x`, `MAIL ann@example.test`) one of the words is.
    """

    clock_ms: int = 0
    shows_after_ms: int = 0
    knows_keys_ms: int = 86_400_000
    script: tuple[Toxic, ...] = ()
    seed: int | None = None
    spares: tuple[str, ...] = ()

    def now(self) -> int:
        """Return the account's time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000 + self.clock_ms

    def toxic(self, what: str, number: int, changing: int) -> Toxic:
        """Return what is done to an exchange: the `number`-th of its kind, the `changing`-th that changes anything."""
        if self.seed is None:
            return self.script[changing] if changing < len(self.script) else FINE
        if number >= WELL_BEHAVED_FROM or any(word in what for word in self.spares):
            return FINE
        return seeded(self.seed, what, number)


def draw(*about: str | int) -> float:
    """Return a number in [0, 1) that depends on `about` alone: the same in any process and in any order."""
    digest = hashlib.sha256("\x1f".join(map(str, about)).encode()).digest()
    return int.from_bytes(digest[:8]) / SPAN


def seeded(seed: int, what: str, number: int) -> Toxic:
    """Return the toxic that a seed chooses for the `number`-th exchange of a kind."""
    place = draw(seed, what, number) * 100
    for share, toxic in SEEDED:
        if place < share:
            return toxic
        place -= share
    return FINE


def read(folder: Path, account: str) -> Rules:
    """Return the rules of an account; those of a world that works, if none were written."""
    try:
        return msgspec.json.decode((folder / f"{account}.rules").read_bytes(), type=Rules)
    except FileNotFoundError:
        return Rules()


def write(folder: Path, account: str, rules: Rules) -> None:
    """Write the rules of an account, so that a reader sees the old ones or the new ones whole."""
    path = folder / f"{account}.rules"
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(rules))
    part.replace(path)
