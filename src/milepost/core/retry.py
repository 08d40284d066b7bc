"""Bounded, jittered retries whose next moment is data, so that a restart does not forget it.

Full jitter between half the bound and the bound; a provider's Retry-After is a floor. Chance is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.core.duration import Duration, parse_ms


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often, and after how long, something that is known to have failed is tried again.

    `attempts` counts all tries, the first included; `first` is the bound of the first wait, doubled for each further
    one up to `most`. Raises ValueError where no try would be left or a span is malformed.
    """

    attempts: int
    first_ms: int
    most_ms: int

    def __init__(self, attempts: int = 3, *, first: Duration = "1s", most: Duration = "60s") -> None:
        if attempts < 1:
            msg = f"Retry(attempts={attempts}) leaves no try at all: attempts counts the first one too"
            raise ValueError(msg)
        object.__setattr__(self, "attempts", attempts)
        object.__setattr__(self, "first_ms", parse_ms(first))
        object.__setattr__(self, "most_ms", parse_ms(most))

    def delay_ms(self, attempt: int, chance: float, *, floor_ms: int = 0) -> int | None:
        """Return how long to wait after try number `attempt` failed, or None when no try is left.

        `chance` is a number in [0, 1); `floor_ms` is what the provider asked for.
        """
        if attempt >= self.attempts:
            return None
        bound: int = min(self.most_ms, self.first_ms << min(attempt - 1, 40))
        return max(floor_ms, round(bound * (0.5 + chance / 2)))
