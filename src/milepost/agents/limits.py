"""What an agent may use, and what its model costs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from milepost.agents.messages import Usage
from milepost.definitions.call import amounts
from milepost.errors import InvalidDeclaration, InvalidValue

MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens: of input, of output, and of input that the provider had cached.

    Raises InvalidDeclaration for a float: money is Decimal or int.
    """

    input: Decimal | int
    output: Decimal | int
    cached: Decimal | int | None = None

    def __post_init__(self) -> None:
        _checked({"input": self.input, "output": self.output, "cached": self.cached}, "a price")

    def of(self, usage: Usage) -> Decimal:
        """Return what a request cost, in US dollars."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, usage.input - usage.cached)
        total = fresh * Decimal(self.input) + usage.cached * Decimal(cached) + usage.output * Decimal(self.output)
        return total / MILLION


@dataclass(frozen=True)
class Limits:
    """The most that one run of an agent may use: model calls, tokens (input and output), US dollars; None for any.

    Each is a unit of the run's budget, so it is checked before every model call, in the transaction that records it,
    and counted across crashes; at a limit the run parks, and `milepost grant RUN --budget turns=5` lets it go on.
    Hand `Agent.budget` over where a run is started: nothing is granted by being declared. Raises InvalidDeclaration.
    """

    turns: int | None = 20
    tokens: int | None = None
    usd: Decimal | int | None = None

    def __post_init__(self) -> None:
        if not _checked({"turns": self.turns, "tokens": self.tokens, "usd": self.usd}, "limits"):
            raise InvalidDeclaration("limits of an agent: give one of turns, tokens and usd, so that it has an end.")

    @property
    def budget(self) -> dict[str, Decimal | int]:
        """The limits as a run's budget."""
        units: dict[str, Decimal | int | None] = {"turns": self.turns, "tokens": self.tokens, "usd": self.usd}
        return {unit: amount for unit, amount in units.items() if amount is not None}


def _checked(given: dict[str, Decimal | int | None], what: str) -> dict[str, Decimal]:
    try:
        return amounts({name: amount for name, amount in given.items() if amount is not None}, what)
    except InvalidValue as error:
        raise InvalidDeclaration(str(error)) from error
