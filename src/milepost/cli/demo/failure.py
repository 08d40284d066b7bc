"""What the demo raises when it cannot run at all. A killed worker is no failure: it is the point."""

from pathlib import Path

from milepost.errors import MilepostError


class DemoFailed(MilepostError):
    """A part of the demo did not start, or a worker did not get to its end. `part` says which, `log` where to look."""

    code = "demo_failed"

    def __init__(self, part: str, why: str, log: str) -> None:
        super().__init__(f"{part}: {why}. What it printed is in {log}.")
        self.part = part
        self.why = why
        self.log = log


class NoDemoHere(MilepostError):
    """The `folder` cannot be used as it was asked."""

    code = "no_demo_here"

    def __init__(self, folder: Path, why: str, hint: str) -> None:
        super().__init__(f"{folder} {why}: {hint}.")
        self.folder = folder


class DemoPartsMissing(MilepostError):
    """The demo's own dependencies are not installed. `missing` names them."""

    code = "demo_parts_missing"

    def __init__(self, missing: list[str]) -> None:
        super().__init__(f"The demo needs {' and '.join(missing)}: pip install 'milepost[demo]'")
        self.missing = missing
