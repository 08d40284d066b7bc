"""The forms of a run that a user meets. The runtime and the app subclass them; nothing here does anything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload
from uuid import UUID

from milepost.core.duration import Duration
from milepost.definitions.call import Outcome, Step
from milepost.definitions.tools import Tool
from milepost.definitions.workflows import Workflow
from milepost.errors import Waiting

P = ParamSpec("P")
T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - "input", as in the documentation
R_co = TypeVar("R_co", covariant=True)


# How far a call of an attached run came: `failed` is for good, `open` is all that may still change.
Recorded: TypeAlias = Literal["confirmed", "failed", "open"]


@dataclass(frozen=True)
class RunView:
    """A run as the store has it now. `waiting` says what a parked run waits for."""

    id: str
    state: Any
    status: Literal["ready", "running", "parked", "blocked", "done", "failed", "cancelled", "killed"]
    waiting: Waiting | None


class Handle(ABC, Generic[R_co]):
    """A started run, from outside. `id` names it in every command."""

    id: str

    @abstractmethod
    async def result(self, *, timeout: Duration | None = None) -> R_co:
        """Wait for the run's end and return its result.

        Raises RunFailed, RunCancelled or RunKilled where it ended otherwise, and TookTooLong after `timeout`; the run
        goes on.
        """

    @abstractmethod
    async def status(self) -> RunView:
        """Return where the run stands."""

    @abstractmethod
    def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Follow the run: its journal entries, progress and emitted events, until it ends."""


class Run(ABC):
    """A run, as its segments see it. A call takes its place in the branch when it is made, not when it is awaited."""

    id: str
    key: str | None

    @abstractmethod
    def now(self) -> datetime:
        """Return the time (aware, UTC), recorded: the same again on re-entry."""

    @abstractmethod
    def random(self) -> float:
        """Return a random number in [0, 1), recorded."""

    @abstractmethod
    def uuid(self) -> UUID:
        """Return a random UUID, recorded."""

    @abstractmethod
    def sleep(self, how_long: Duration | datetime) -> Awaitable[None]:
        """Wait for a span, or until a moment, across any restart."""

    @overload
    def receive(self, name: str, kind: type[T]) -> Awaitable[T]: ...
    @overload
    def receive(self, name: str, kind: type[T], *, timeout: Duration) -> Awaitable[T | None]: ...
    @abstractmethod
    def receive(self, name: str, kind: type[T], *, timeout: Duration | None = None) -> Awaitable[T | None]:
        """Wait for a signal of this name and return its value; None where `timeout` ends first."""

    @overload
    def gather(self, a: Awaitable[T], b: Awaitable[T2], /) -> Awaitable[tuple[T, T2]]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def gather(self, a: Awaitable[T], b: Awaitable[T2], c: Awaitable[T3], /) -> Awaitable[tuple[T, T2, T3]]: ...
    @overload
    def gather(self, *all: Awaitable[T]) -> Awaitable[list[T]]: ...
    @abstractmethod
    def gather(self, *all: Awaitable[Any]) -> Awaitable[Any]:
        """Run several at once, each in a branch of its own, and return their results in order.

        All settle first; then one failure is raised as itself, several as an ExceptionGroup.
        """

    @abstractmethod
    def map(self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int = 20) -> Awaitable[list[R]]:
        """Call `fn` on each item, `limit` at once, each in a branch of its own; settles as `gather` does."""

    @overload
    def start(
        self,
        workflow: Workflow[None, R],
        /,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> Awaitable[Handle[R]]: ...
    @overload
    def start(
        self,
        workflow: Workflow[I, R],
        input: I,
        /,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> Awaitable[Handle[R]]: ...
    @abstractmethod
    def start(
        self,
        workflow: Workflow[Any, R],
        input: Any = None,
        /,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> Awaitable[Handle[R]]:
        """Start a child run. Awaiting its `result()` parks this run until the child ends.

        `queue`, `priority` and `group` are those of `App.start`.
        """

    @abstractmethod
    def emit(self, event: object) -> None:
        """Send a diagnostic event to whoever follows the run. It decides nothing and may be lost."""

    @abstractmethod
    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show how far the run is. Diagnostic, as `emit` is."""


class AttachedRun(Run):
    """A run whose control flow lives in a host of its own. Steps are named by the host's own ids."""

    @abstractmethod
    def call(self, id: str, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        """Call a tool under an id of the host; a recorded id gives its outcome. Raises Parked where it must wait."""

    @abstractmethod
    async def attempt(self, id: str, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """Call a tool and return Confirmed, Failed or Waiting; never raises for waiting."""

    @abstractmethod
    async def look(self, id: str, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[R] | None:
        """Return what `attempt` would return without beginning anything, None where it would begin an attempt now.

        Where a person has to approve the call first, that person is asked by this.
        """

    @abstractmethod
    def recorded(self, id: str) -> Recorded | None:
        """Tell how far the call under this id came; None for an id that was not used."""

    @abstractmethod
    def earlier(self, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> tuple[str, Recorded] | None:
        """Return the id of an effect of this tool with equal arguments that has not failed, and how far it came.

        Of several it is one that is open, else the latest. None where there is none. Raises InvalidArguments.
        """

    @abstractmethod
    async def checkpoint(self, state: object = None) -> None:
        """Write a checkpoint with the host's own state. Raises InvalidValue for a state that cannot be read back."""

    @abstractmethod
    async def finish(self, result: object = None) -> None:
        """End the run with a result. Raises Parked while a call is under way, or its outcome is unknown."""
