"""Lease arithmetic. A lease says how long to leave a worker alone; it never says that the worker is dead.

A worker holds one lease for all its runs and renews it from a thread, so that a blocked event loop does not lose it.
Whoever finds it lapsed may claim the runs under the next epoch. Safety rests on the epoch alone: a worker that
wakes after its lease lapsed cannot append under the old epoch, and looks at its lease once more before it sends.

      |-- renewed --|-- renewed --|............lapses
      claim         1/3           2/3         | others may claim; MARGIN before it nothing is sent any more
"""

from __future__ import annotations

LEASE_MS = 30_000
MARGIN_MS = 1_000
KEPT_MS = 86_400_000


def renew_every_ms(lease_ms: int) -> int:
    """Return how often a lease is renewed: three chances before it lapses."""
    return max(1, lease_ms // 3)


def lapsed(lease_until: int, now: int) -> bool:
    """Say whether others may claim what the holder of this lease held."""
    return now >= lease_until


def needed_until(now: int, timeout_ms: int) -> int:
    """Return until when a lease must last for an attempt that starts now and may take `timeout_ms`."""
    return now + timeout_ms + MARGIN_MS


def may_send(lease_until: int, now: int) -> bool:
    """Say whether bytes may still leave under this lease."""
    return now + MARGIN_MS <= lease_until


def kept_until(started_at: int, lease_until: int, ended_at: int | None) -> int:
    """Return until when the row of a worker must be kept: it may be asked how long the worker's attempts may act.

    Under a lease bytes may leave until it lapses, and what they began may take a timeout more. Every attempt had a
    lease past its own timeout when it started, so none takes longer than from the worker's start to the lease's end. A
    worker that left sends nothing more, and has no lease that could be asked for. Moments are milliseconds since 1970.
    """
    if ended_at is not None:
        return ended_at + KEPT_MS
    return lease_until + max(KEPT_MS, lease_until - started_at)
