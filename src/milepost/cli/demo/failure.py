"""What the demo raises when it cannot run at all. A killed worker is no failure: it is the point."""

from milepost.errors import MilepostError


class DemoFailed(MilepostError):
    """A part of the demo did not start, or a worker did not get to its end. `part` says which, `log` where to look."""

    code = "demo_failed"

    def __init__(self, part: str, why: str, log: str) -> None:
        super().__init__(f"{part}: {why}. What it printed is in {log}.")
        self.part = part
        self.why = why
        self.log = log
