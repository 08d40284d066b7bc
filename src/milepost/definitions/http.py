"""What an httpx error or response proves about the request. httpx is recognised by name and never imported.

Only two things are proof. The request never left: name lookup, connection or TLS handshake failed, or no connection
came free. Or the server refused it before doing anything: 401 and 403, and 429, whose Retry-After is a floor. A 429
that says the account's money is spent is refused for good.

All else is unknown, and that is the point. A timeout or a reset while writing or reading says nothing about what
arrived (a kept-alive connection may die at any byte); a 502 or 504 comes from a proxy that does not know the origin; a
409, a 408 or a 425 may mean "still at it"; and a 400, 404, 405, 413 or 422 proves something only where the provider
promises to check a request before it acts on any part of it. Say so with `validated_first=True`.

The answer holds for one request. Inside an effect, leave redirects and client retries off: after a followed redirect or
a hidden retry, a failed connection proves nothing about the request before it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from milepost.errors import NotSent, Rejected

_NEVER_LEFT = {"ConnectError", "ConnectTimeout", "PoolTimeout"}
_REFUSED = {401, 403}
_CHECKED = {400, 404, 405, 413, 422}
_TOO_MANY = 429
MONEY_IS_SPENT = {
    "credit_balance_exhausted", "enforced_spend_limit_reached", "insufficient_quota",
    "organization_spend_limit_exceeded", "organization_usage_limit_exceeded", "project_spend_limit_exceeded",
}  # fmt: skip


def classify(what: object, /, *, validated_first: bool = False) -> NotSent | Rejected | None:
    """Return what an httpx exception or response proves: NotSent, Rejected, or None where the outcome is unknown.

    `validated_first` says that the provider checks a request whole before it acts on any part of it; then 400, 404,
    405, 413 and 422 are Rejected. Anything that does not come from httpx, and a response that is no error, gives None.
    """
    names = _httpx_names(what)
    if "HTTPStatusError" in names:
        return classify(getattr(what, "response", None), validated_first=validated_first)
    if "Response" in names:
        return _of_response(what, validated_first=validated_first)
    if names & _NEVER_LEFT:
        return NotSent(f"{type(what).__name__}: {what}")
    return None


def provider_failed(error: Exception) -> bool:
    """Say whether an error that a tool raised speaks against its provider, so that a breaker counts it.

    A refusal does not: a provider that says no, says who may not, or that a request is wrong, has answered. So any
    exception with an HTTP status from 400 to 499 does not count, except 429. Everything else does.
    """
    if isinstance(error, Rejected) or isinstance(classify(error), Rejected):
        return False
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    return not (isinstance(status, int) and 400 <= status < 500 and status != _TOO_MANY)  # noqa: PLR2004


def _httpx_names(what: object) -> set[str]:
    return {kind.__name__ for kind in type(what).__mro__ if kind.__module__.partition(".")[0] == "httpx"}


def _of_response(response: Any, *, validated_first: bool) -> NotSent | Rejected | None:
    status = response.status_code
    said = f"HTTP {status} {response.reason_phrase}".rstrip()
    if status in _REFUSED or (validated_first and status in _CHECKED):
        return Rejected(said)
    if status != _TOO_MANY:
        return None
    if spent := _codes(response) & MONEY_IS_SPENT:
        return Rejected(f"{said}: {min(spent)}")
    return NotSent(said, retry_after=_retry_after(response.headers))


def _codes(response: Any) -> set[str]:
    """Return the error codes in the body, as the two common shapes of model providers have them."""
    try:
        error = response.json()["error"]
    except Exception:  # noqa: BLE001 - no JSON, another shape, or a stream that nobody read: then there are no codes
        return set()
    if not isinstance(error, dict):
        return {error} if isinstance(error, str) else set()
    details = error.get("details")
    found = [error.get("code"), error.get("type"), details.get("error_code") if isinstance(details, dict) else None]
    return {code for code in found if isinstance(code, str)}


def _retry_after(headers: Any) -> timedelta | None:
    """Return how long the server wants to be left alone; a date counts from the server's own clock."""
    said = headers.get("retry-after", "").strip()
    try:
        if said.replace(".", "", 1).isdecimal():
            return timedelta(seconds=float(said))
        wait = _moment(said) - _moment(headers["date"])
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    return max(wait, timedelta(0))


def _moment(header: str) -> datetime:
    moment = parsedate_to_datetime(header)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
