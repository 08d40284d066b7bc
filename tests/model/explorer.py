"""Breadth first through every state that a model can reach, so that the first trace to a broken rule is a shortest one.

A model says where it starts, what may happen next, and what must hold. A step that breaks a rule while it happens
raises Violation; a state that breaks one is found by `check`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Violation(Exception):
    """A rule of the model is broken. `during` names the step that broke it, where it was a step."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.during = ""


class Model(Protocol[S]):
    """What is explored."""

    def start(self) -> S: ...

    def steps(self, state: S) -> Iterator[tuple[str, S]]: ...

    def check(self, state: S, following: list[tuple[str, S]]) -> None: ...


@dataclass(frozen=True)
class Explored:
    """What an exploration saw: how much, and the shortest way to a broken rule if there is one."""

    states: int
    steps: int
    broken: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        seen = f"{self.states:,} states, {self.steps:,} steps"
        if not self.broken:
            return f"{seen}: every rule holds"
        return "\n".join([f"{seen}: {self.broken}", *(f"  {n:2} {step}" for n, step in enumerate(self.trace, start=1))])


def explore(model: Model[S], *, most: int) -> Explored:
    """Visit every state, `most` of them at most, and stop at the first broken rule.

    Raises OverflowError where there are more: a bound that cuts silently would prove less than it says.
    """
    try:
        start = model.start()
    except Violation as violation:
        return Explored(1, 0, violation.rule, (violation.during or "the start",))
    came: dict[S, tuple[S, str] | None] = {start: None}
    queue = deque([start])
    taken = 0
    while queue:
        state = queue.popleft()
        try:
            steps = list(model.steps(state))
            model.check(state, steps)
            for label, following in steps:
                taken += 1
                if following not in came:
                    came[following] = (state, label)
                    queue.append(following)
        except Violation as violation:
            last = (violation.during,) if violation.during else ()
            return Explored(len(came), taken, violation.rule, (*_way(came, state), *last))
        if len(came) > most:
            raise OverflowError(f"more than {most:,} states")
    return Explored(len(came), taken)


def _way(came: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    labels: list[str] = []
    before = came[state]
    while before is not None:
        state, label = before
        labels.append(label)
        before = came[state]
    return tuple(reversed(labels))
