"""What a tool meets at run time: its call, its findings, and the caller behind it.

`CURRENT` is the one context variable. Inside a run it holds the branch whose next index a tool call takes; inside a
tool it holds a `CallScope`, which refuses; outside a run it holds None. Stray tasks inherit it: the runtime's caller
compares itself with the task that calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Protocol, TypeAlias, TypeVar

from milepost.core import tracing
from milepost.core.duration import Duration, parse_ms
from milepost.errors import InvalidValue, NestedStep, Waiting

if TYPE_CHECKING:
    from milepost.definitions.arguments import Bound
    from milepost.definitions.tools import Tool

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_ASK_AGAIN = "30s"
_ZERO = Decimal(0)
_AMOUNTS = (int, Decimal)


class Step(Awaitable[R_co], Generic[R_co]):
    """A call of a tool that took its place in the record. Await it for the result; `path` is how it is shown.

    Awaiting raises StepFailed (or Denied) where the step failed, and Diverged where the record says something else.
    """

    __slots__ = ("path",)

    path: str


class Caller(Protocol):
    """Who makes steps: a branch of a run."""

    def call(self, tool: Tool[..., Any], bound: Bound, /) -> Step[Any]:
        """Take the next place of the branch for this call."""
        ...


class CallScope:
    """The caller inside a tool: it refuses, because a tool is one recorded act."""

    __slots__ = ("tool_name",)

    def __init__(self, tool_name: str) -> None:
        self.tool_name = tool_name

    def call(self, tool: Tool[..., Any], bound: Bound, /) -> Step[Any]:  # noqa: ARG002 - the protocol's form
        """Raise NestedStep."""
        raise NestedStep(tool.name, self.tool_name)


CURRENT: ContextVar[Caller | None] = ContextVar("milepost_caller", default=None)


class Call:
    """One attempt of a tool, as the tool sees it: the optional first parameter.

    `key` is the idempotency key, the same in every attempt; `attempt` counts from 1; `deadline` is when the timeout
    ends (aware, UTC).
    """

    __slots__ = ("_of", "_resources", "_secrets", "attempt", "deadline", "key", "noted", "spending")

    def __init__(
        self, *, key: str, attempt: int, deadline: datetime, secrets: Callable[[str], str],
        resources: Callable[[type[Any]], Any], of: tuple[str, int, str] | None = None,
    ) -> None:  # fmt: skip
        self.key = key
        self.attempt = attempt
        self.deadline = deadline
        self.noted: str | None = None
        self.spending: dict[str, Decimal] = {}
        self._secrets = secrets
        self._resources = resources
        self._of = of

    @property
    def traceparent(self) -> str:
        """The W3C header that makes what another system does part of the run's trace; empty outside a run.

        Send it as `traceparent`. It is made from the run, the step and the attempt, so every process makes the same.
        """
        if self._of is None:
            return ""
        run_id, visit, step = self._of
        return tracing.traceparent(tracing.trace_of(run_id), tracing.attempt_span(run_id, visit, step, self.attempt))

    def secret(self, name: str) -> str:
        """Return a secret from the app's provider; by default the environment variable `name`.

        It never enters the record: do not return it, or put it into an error. Raises SecretMissing.
        """
        return self._secrets(name)

    def resource(self, kind: type[T]) -> T:
        """Return what the app opened for this type, such as a client. Raises InvalidDeclaration where it opens none."""
        found: T = self._resources(kind)
        return found

    def note(self, external_id: str) -> None:
        """Keep the outside system's own id of what was done, for the record and for whoever looks it up there."""
        self.noted = external_id

    def spent(self, **units: Decimal | int) -> None:
        """Say what the attempt really cost, per unit; several sayings add up. Raises InvalidValue for a float."""
        for unit, amount in amounts(units, "spent").items():
            self.spending[unit] = self.spending.get(unit, Decimal(0)) + amount


def amounts(given: Any, what: str) -> dict[str, Decimal]:
    """Return amounts per unit as Decimals. Raises InvalidValue for floats, which do not add up, and below zero."""
    checked = {}
    for unit, amount in dict(given).items():
        if type(amount) is Decimal and amount.is_finite() and amount >= _ZERO:  # as most are, and each call asks
            checked[unit] = amount
            continue
        if isinstance(amount, bool) or not isinstance(amount, _AMOUNTS):
            raise InvalidValue(
                f"{what}[{unit!r}]", f"{amount!r} is no int or Decimal, and other numbers do not add up exactly"
            )
        if not (isinstance(amount, int) or amount.is_finite()) or amount < 0:
            raise InvalidValue(f"{what}[{unit!r}]", f"{amount} is no amount: it must be zero or more")
        checked[unit] = amount if type(amount) is Decimal else Decimal(amount)
    return checked


class Tx(Protocol):
    """The store's own transaction, handed to a `transactional` tool as its first parameter.

    What it writes and the step's outcome commit together or not at all. Milepost's own tables are closed to it.
    """

    def execute(self, sql: str, args: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        ...


@dataclass(frozen=True, slots=True)
class Finding(Generic[R_co]):
    """What a reconciler, or a person, found out about an attempt. Made by the five functions below.

    `value` is the result that happened, or what was found in conflict; `why` the reason; `ask_again_ms` when to ask
    again.
    """

    answer: Literal["happened", "did_not_happen", "rejected", "still_unknown", "conflict"]
    value: R_co | None = None
    why: str = ""
    ask_again_ms: int | None = None


def happened(value: T) -> Finding[T]:
    """It happened, and this is the result that the tool would have returned."""
    return Finding("happened", value)


def did_not_happen() -> Finding[Never]:
    """It is not there. Believed only after the tool's `visible_within`, and never at once."""
    return Finding("did_not_happen")


def rejected(why: str) -> Finding[Never]:
    """The outside system saw it and refused: failed, and for good."""
    return Finding("rejected", why=why)


def still_unknown(*, ask_again: Duration = _ASK_AGAIN) -> Finding[Never]:
    """Nobody can tell yet; ask again after this span. Raises ValueError for a malformed span."""
    return Finding("still_unknown", ask_again_ms=parse_ms(ask_again))


def conflict(found: object) -> Finding[Never]:
    """It is there more than once, or with other arguments: a person decides, and the tool is held until then."""
    return Finding("conflict", why=f"found {found!r}"[:2_000])


@dataclass(frozen=True, slots=True)
class Confirmed(Generic[R_co]):
    """An attached run's step happened; `value` is its result."""

    value: R_co


@dataclass(frozen=True, slots=True)
class Failed:
    """An attached run's step did not happen, and is not tried again; `why` is the reason."""

    why: str


Outcome: TypeAlias = Confirmed[R] | Failed | Waiting
