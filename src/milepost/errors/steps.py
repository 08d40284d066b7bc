"""What a tool may raise, what a segment may see, and programming mistakes, each naming the mend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.errors.tree import MilepostError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta


# ---------------------------------------------------------------- what a tool may raise to say what it knows


class NotSent(MilepostError):
    """Nothing left this machine: the attempt failed and may be tried again, after `retry_after` at the earliest."""

    code = "not_sent"

    def __init__(self, why: str, *, retry_after: str | timedelta | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.retry_after = retry_after


class Rejected(MilepostError):
    """The outside system refused before acting: the effect failed, and for good."""

    code = "rejected"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


# ---------------------------------------------------------------- what a segment may see


class StepFailed(MilepostError):
    """A step failed; recorded, and raised identically whenever the segment is re-entered."""

    code = "step_failed"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Denied(StepFailed):
    """A person denied the approval that this effect asked for, or a rule of the policy denies it."""

    code = "denied"


class InvalidArguments(MilepostError):
    """Arguments do not fit a tool's parameters. Nothing was recorded."""

    code = "invalid_arguments"

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(f"{tool}: {why}")
        self.tool = tool
        self.why = why

    def for_model(self) -> str:
        """Return the text to hand back to the model that made the arguments."""
        return (
            f"The arguments for {self.tool} are not valid: {self.why}. Nothing was done. Correct them and call again."
        )


class InvalidValue(MilepostError):
    """A value cannot be stored and read back as the type that was declared for it."""

    code = "invalid_value"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}. Declare a type that can hold it, or convert it before it is handed over.")
        self.what = what
        self.why = why


# ---------------------------------------------------------------- programming mistakes, each naming the mend


class NoRun(MilepostError):
    """A tool was called outside a run."""

    code = "no_run"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} was called outside a run, where nothing would be recorded. Call {tool}.direct(…) instead."
        )
        self.tool = tool


class NestedStep(MilepostError):
    """A tool was called inside a tool."""

    code = "nested_step"

    def __init__(self, tool: str, inside: str) -> None:
        super().__init__(
            f"{tool} was called inside {inside}. A tool is one recorded act: call {tool} from the segment, "
            f"or use {tool}.direct(…) to make it part of {inside}."
        )
        self.tool = tool
        self.inside = inside


class StrayTask(MilepostError):
    """A recorded call was made in an asyncio task that is no branch of the run."""

    code = "stray_task"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was called in an asyncio task that is no branch of the run, so its place in the record depends "
            "on timing. Use run.gather(…) or run.map(…); for a time limit use 'async with asyncio.timeout(…)', because "
            "asyncio.wait_for makes a task of its own before Python 3.12."
        )
        self.what = what


class NotAwaited(MilepostError):
    """A segment ended although it had made calls that it never awaited."""

    code = "not_awaited"

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"called but never awaited: {', '.join(paths)}. Nothing was sent. Add the missing 'await'.")
        self.paths = tuple(paths)


class InvalidDeclaration(MilepostError):
    """A tool, a workflow or an app is declared in a way that cannot be honoured."""

    code = "invalid_declaration"
