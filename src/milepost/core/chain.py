"""The hash chain of a run: `hash = sha256(previous hash + exact bytes stored)`.

The genesis binds the store and the run, so that an entry moved between runs or stores does not verify. A chain alone
does not show a tail that was cut off together with the head that is kept in `heads`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from milepost.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable


def genesis(store_id: str, run_id: str) -> bytes:
    """Return the hash that stands before the first entry of a run."""
    return sha256(f"milepost\0{store_id}\0{run_id}".encode()).digest()


def link(previous: bytes, body: bytes) -> bytes:
    """Return the hash of an entry whose exact stored bytes are `body`."""
    return sha256(previous + body).digest()


def verify(
    run_id: str, previous: bytes, first_seq: int, stored: Iterable[tuple[int, bytes, bytes]], head: bytes
) -> int:
    """Check consecutive entries `(seq, body, hash)` that follow `previous`, up to `head`; return how many there were.

    Raises Damaged for the first entry that is missing, out of place or changed, and for a head that differs.
    """
    seq = first_seq
    for found_seq, body, found_hash in stored:
        if found_seq != seq:
            raise Damaged(run_id, f"entry {seq} is missing, {found_seq} stands in its place", seq=seq)
        previous = link(previous, body)
        if previous != found_hash:
            raise Damaged(run_id, "its bytes do not match its hash", seq=seq)
        seq += 1
    if previous != head:
        raise Damaged(run_id, "the last entry is not the one that the head names", seq=seq - 1)
    return seq - first_seq


def step_key(store_id: str, run_id: str, visit: int, step: str, generation: int) -> str:
    """Return the idempotency key of an effect: the same for every attempt of it, different for every other effect."""
    place = f"{store_id}\0{run_id}\0{visit}\0{step}\0{generation}"
    return sha256(place.encode()).hexdigest()[:48]
