"""What an App declares for a fleet of workers: limits of queues, and schedules. Declared before the app is entered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeVar, get_args, overload

from milepost.core.authority import Authority
from milepost.core.budget import amounts
from milepost.core.duration import Duration
from milepost.core.queues import Limit, Serving
from milepost.core.schedules import CatchUp
from milepost.definitions import queues
from milepost.definitions.schedules import Cron, Schedule
from milepost.definitions.tools import Cost, checked_name
from milepost.definitions.workflows import Workflow
from milepost.errors import InvalidDeclaration, UnknownWorkflow
from milepost.runtime.engine import Engine

I = TypeVar("I")  # noqa: E741 - "input", as in the documentation


class Fleet(ABC):
    """Declarations of an App that hold for all workers that run it."""

    _engine: Engine | None

    def __init__(self) -> None:
        self._limits: list[Limit] = []
        self._schedules: dict[str, Schedule] = {}

    @property
    @abstractmethod
    def workflows(self) -> Mapping[str, Workflow[Any, Any]]:
        """The registered workflows by name."""

    @abstractmethod
    def _need_engine(self) -> Engine: ...

    def limit(
        self,
        queue: str,
        /,
        *,
        by: Literal["queue", "group"] = "queue",
        together: int | None = None,
        starts: int | None = None,
        per: Duration | None = None,
        while_waiting: bool = False,
    ) -> None:
        """Limit a queue, or with `by="group"` each of its groups, whatever the number of workers.

        `together` is how many runs may go at once. A run that waits, for time, a person or a signal, lets others go
        meanwhile; with `while_waiting=True` it keeps its place from its first step until it has ended. `starts` is how
        many runs may begin within `per`. Several limits hold at once. They are counted from the runs' own rows in the
        transaction that takes a run, so all workers must declare the same. Raises InvalidDeclaration.
        """
        self._refuse_late(f"limit of queue {queue!r}")
        self._limits.append(queues.limit(queue, by, together, starts, per, while_waiting=while_waiting))

    @overload
    def schedule(
        self,
        workflow: Workflow[None, Any],
        cron: str,
        /,
        *,
        key: str | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "latest",
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> None: ...
    @overload
    def schedule(
        self,
        workflow: Workflow[I, Any],
        cron: str,
        input: I | Callable[[datetime], I],
        /,
        *,
        key: str | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "latest",
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> None: ...
    def schedule(
        self,
        workflow: Workflow[Any, Any],
        cron: str,
        input: Any = None,
        /,
        *,
        key: str | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "latest",
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> None:
        """Start a workflow at the times of a cron expression (minute, hour, day, month, weekday) in a time zone.

        Each tick starts one run, whatever the number of workers: its key is `key` (else the workflow's name) and the
        moment. `input` may be a function of that moment. What passed while no worker ran is caught up with one run for
        the `latest` tick, one for `all` of them, or `none`. Needs the extra `cron`. Raises InvalidDeclaration,
        InvalidValue for an input that cannot be stored, UnknownWorkflow, ExtraMissing.
        """
        name = checked_name(workflow.name if key is None else key, "schedule")
        self._refuse_late(f"schedule {name!r}")
        if self.workflows.get(workflow.name) is not workflow:
            raise UnknownWorkflow(workflow.name)
        if name in self._schedules:
            why = f"two schedules are named {name!r}. Give one of them another key=."
            raise InvalidDeclaration(why)
        if catch_up not in get_args(CatchUp):
            why = f"schedule {name!r}: catch_up={catch_up!r}. Write latest, all or none."
            raise InvalidDeclaration(why)
        made = input if callable(input) else None
        if made is None:
            workflow.input.write(input)
        self._schedules[name] = Schedule(
            name, workflow, Cron(cron, tz), made or (lambda _: input), catch_up, authority or Authority(""),
            amounts(budget), dict(tags or {}), queues.place(queue or workflow.queue, priority, group, None),
        )  # fmt: skip

    def _refuse_late(self, what: str) -> None:
        if self._engine is not None:
            why = f"{what}: declare it before the app is entered"
            raise InvalidDeclaration(why)

    def _serving(self, names: tuple[str, ...] | None) -> Serving:
        return Serving(names and tuple(map(queues.checked_queue, names)), tuple(self._limits))
