"""What every process of a soak knows: where the store, the outside world and the weather are, and the seed."""

import os
from pathlib import Path

import msgspec

from faults.tools import Setup

WHERE = "SOAK_SCENE"
VERSION = "SOAK_VERSION"
OLD, NEW = "1", "2"
LEASE = "10s"
DESK = "desk"  # the queue of the workflow that is migrated: one worker serves it, old or new, never both
SLOW = "slow"  # the queue with limits
SLOW_TOGETHER = 3
SLOW_PER_GROUP = 1
POOL = "tenant:shop"


class Scene(msgspec.Struct, frozen=True):
    """One soak. `setup` says how tools reach the outside world."""

    folder: str
    store: str
    seed: int
    setup: Setup

    @property
    def outage(self) -> Path:
        """While this file stands, one provider is away."""
        return Path(self.folder) / "outage"

    @property
    def told(self) -> Path:
        """The runs whose start was acknowledged, a line each: `ID KEY`."""
        return Path(self.folder) / "started"

    @property
    def orders(self) -> Path:
        """What the people of the soak are to do now."""
        return Path(self.folder) / "orders.json"


class Orders(msgspec.Struct, frozen=True):
    """What the people do now: start runs, signal the desk, and make trouble.

    `plenty` is that nobody has to wait for the shared budget: else it is raised too slowly for all, and who is of low
    priority may wait for as long as others come.
    `round` numbers the orders; the people answer with a file of that name once they follow them.
    """

    round: int = 0
    starts: bool = True
    signals: bool = True
    trouble: bool = True
    plenty: bool = False


def write(path: Path, value: object) -> None:
    """Write a file so that a reader sees the old one or the new one whole."""
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(value))
    part.replace(path)


def read() -> Scene:
    """Return the scene that this process was started in."""
    return msgspec.json.decode(Path(os.environ[WHERE]).read_bytes(), type=Scene)
