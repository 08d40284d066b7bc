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
