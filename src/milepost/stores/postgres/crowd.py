"""Workers that meet: all see the same runs that are due, want the first of them, and all but one come second.

Who came second looks for a while from a random place on, so that workers add up instead of following each other. Who
was first keeps the order of turns; so does everybody a few looks after the others have gone. Priorities stand above.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from milepost.errors import EpochLost
from milepost.stores.api import Claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.stores.api import Operation

FADES = 0.8  # how much of having met is left after a batch of claims that nobody disputed
CROWDED = 0.2


class Crowd:
    """How many of the claims of this process came second, lately."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()  # noqa: S311  who comes second is no secret
        self._share = 0.0

    def met(self, operations: Sequence[Operation], answers: Sequence[Any]) -> None:
        """Take in what became of a batch."""
        claims = [
            type(answer) is EpochLost for one, answer in zip(operations, answers, strict=True) if type(one) is Claim
        ]
        if claims:
            self._share = max(sum(claims) / len(claims), self._share * FADES)

    def apart(self) -> int | None:
        """Return where to begin among what is due, in thousandths of it; None for the order of turns."""
        return self._chance.randrange(1000) if self._share > CROWDED else None
