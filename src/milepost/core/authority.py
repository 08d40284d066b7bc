"""Who a run acts for, and whether that suffices. Deny by default: a scope that is not listed is not held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from milepost.core.duration import Duration, parse_ms, to_ms

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


@dataclass(frozen=True, slots=True, init=False)
class Authority:
    """Principal, tenant, scopes and expiry of a run.

    `expires` is a span from the start of the run, or a moment with a time zone. Raises ValueError for either malformed.
    """

    principal: str
    scopes: frozenset[str]
    tenant: str | None
    expires_in_ms: int | None
    expires_at: int | None

    def __init__(
        self,
        principal: str,
        *,
        scopes: Iterable[str] = (),
        tenant: str | None = None,
        expires: Duration | datetime | None = None,
    ) -> None:
        object.__setattr__(self, "principal", principal)
        object.__setattr__(self, "scopes", frozenset([scopes] if isinstance(scopes, str) else scopes))
        object.__setattr__(self, "tenant", tenant)
        moment = expires is not None and hasattr(expires, "tzinfo")
        object.__setattr__(self, "expires_at", to_ms(expires) if moment else None)  # type: ignore[arg-type]
        span = None if moment or expires is None else parse_ms(expires)  # type: ignore[arg-type]
        object.__setattr__(self, "expires_in_ms", span)

    def granted(self, now: int) -> Granted:
        """Return the authority as it is recorded for a run that starts at `now`."""
        until = self.expires_at if self.expires_in_ms is None else now + self.expires_in_ms
        return Granted(self.principal, tuple(sorted(self.scopes)), self.tenant, until)


class Granted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The authority that a run holds, as it stands in the record. `expires_at` is in milliseconds since 1970."""

    principal: str = ""
    scopes: tuple[str, ...] = ()
    tenant: str | None = None
    expires_at: int | None = None

    def widened(self, scopes: Iterable[str]) -> Granted:
        """Return this authority with further scopes."""
        return msgspec.structs.replace(self, scopes=tuple(sorted({*self.scopes, *scopes})))

    def narrowed(self, scopes: Iterable[str]) -> Granted:
        """Return this authority without these scopes."""
        return msgspec.structs.replace(self, scopes=tuple(sorted(set(self.scopes).difference(scopes))))


def expired(authority: Granted, now: int) -> bool:
    """Say whether nothing may start under an authority any more at `now` (milliseconds since 1970)."""
    return authority.expires_at is not None and now >= authority.expires_at


def missing_scopes(authority: Granted, needed: Iterable[str], now: int) -> tuple[str, ...]:
    """Return the scopes that are needed and not held; all of them once the authority has expired."""
    if expired(authority, now):
        return tuple(sorted(needed))
    missing = [scope for scope in needed if scope not in authority.scopes]
    return tuple(sorted(set(missing))) if missing else ()
