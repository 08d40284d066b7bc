"""Workflows: versioned definitions made of segments, and the words with which a segment ends."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Never, Protocol, TypeVar, overload

from milepost.core.queues import DEFAULT
from milepost.core.retry import Retry
from milepost.definitions import signatures
from milepost.definitions.tools import Tool, checked_name, checked_texts, checked_version
from milepost.definitions.values import Codec, encode
from milepost.errors import InvalidDeclaration

if TYPE_CHECKING:
    from milepost.definitions.run import Run

T = TypeVar("T")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - "input", as in the documentation
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Next(Generic[R_co]):
    """How a segment ends: with a state for another segment, a result, or a failure. See `go`, `done` and `fail`."""

    segment: str | None
    state: Any
    result: R_co | None
    failure: str | None = None


def go(segment: Segment[S, R], state: S, /) -> Next[R]:
    """Write a checkpoint, then enter `segment` with `state`."""
    return Next(segment.name, state, None)


def done(result: T) -> Next[T]:
    """End the run with a result."""
    return Next(None, None, result)


def fail(why: str) -> Next[Never]:
    """End the run as failed, for the reason that people will read."""
    return Next(None, None, None, why)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text that a workflow's behaviour rests on, named in its manifest. Made by `prompt`."""

    name: str
    text: str
    version: str = "1"

    @property
    def fingerprint(self) -> str:
        """The sha256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def prompt(name: str, text: str, *, version: str = "1") -> Prompt:
    """Declare a prompt, so that a run knows which text it was begun with.

    Another text under the same `version` is only told; another version must be declared compatible by the workflow.
    Raises InvalidDeclaration for a bad name or version.
    """
    return Prompt(checked_name(name, "prompt"), text, checked_version(version, f"prompt {name}"))


class Segment(Generic[S, R_co]):
    """The bounded unit between two checkpoints: `fn(run, state)`, with the type of its state as `state`.

    `requires(state)` must hold on entry and `ensures(state, next)` before the checkpoint is written; `retry` re-enters
    it.
    """

    def __init__(
        self,
        fn: Callable[[Run, Any], Coroutine[Any, Any, Next[Any]]],
        state: Codec[Any],
        *,
        name: str,
        fingerprint: str,
        ensures: Callable[..., bool] | None = None,
        requires: Callable[..., bool] | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.name = name
        self.fn = fn
        self.state = state
        self.fingerprint = fingerprint
        self.ensures = ensures
        self.requires = requires
        self.retry = retry

    def __repr__(self) -> str:
        return f"<segment {self.name}>"


class Workflow(Generic[I, R]):
    """A registered, versioned definition made of segments; the first one that is declared is the first to be entered.

    `tools` is manifest and allow-list in one; `models` names the model that answers in each role, as part of the
    manifest alone. `compatible_with` names older versions whose waiting runs this one may resume. `queue` is where its
    runs stand unless their start says otherwise. Raises InvalidDeclaration for types that cannot be stored, and for
    names that are used twice.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        input: type[I],
        result: type[R],
        tools: Sequence[Tool[..., Any]] = (),
        prompts: Sequence[Prompt] = (),
        compatible_with: Iterable[str] = (),
        models: Mapping[str, str] | None = None,
        queue: str = DEFAULT,
    ) -> None:
        self.name = checked_name(name, "workflow")
        self.version = checked_version(version, f"workflow {name}")
        self.input: Codec[I] = Codec(input, f"input of {name}")
        self.result: Codec[R] = Codec(result, f"result of {name}")
        self.tools: dict[str, Tool[..., Any]] = _by_name(tools, Tool, f"tools of {name}")
        self.prompts: dict[str, Prompt] = _by_name(prompts, Prompt, f"prompts of {name}")
        self.compatible_with = checked_texts(compatible_with, f"compatible_with of {name}")
        self.models = _checked_models(models or {}, name)
        self.queue = checked_name(queue, "queue")
        self.segments: dict[str, Segment[Any, R]] = {}
        self.migrations: dict[str, Callable[[str, Any], Next[R]]] = {}
        self._leads_to: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<workflow {self.name} version {self.version}>"

    @property
    def first(self) -> Segment[Any, R]:
        """The segment that a new run enters. Raises InvalidDeclaration where none is declared."""
        for segment in self.segments.values():
            return segment
        raise InvalidDeclaration(f"workflow {self.name} has no segment. Declare one with @{self.name}.segment.")

    @property
    def fingerprint(self) -> str:
        """The sha256 over the segments' sources and the types of input, result and states, in hex. It only warns."""
        parts = [self.input.fingerprint, self.result.fingerprint]
        for segment in self.segments.values():
            parts += [segment.name, segment.fingerprint, segment.state.fingerprint]
        return hashlib.sha256(encode(parts)).hexdigest()

    def migration(
        self, *, from_: str, to: str | None = None
    ) -> Callable[[Callable[[str, Any], Next[R]]], Callable[[str, Any], Next[R]]]:
        """Declare how a run of version `from_` goes on here, from a boundary.

        The function gets the segment that the run would enter and its state as plain JSON data, and says what is next
        with `go`; `fail` blocks the run with your reason. It must be a plain `def` without effects.

        It leads to version `to`: by default to the next older version that has a migration (numbers in versions count
        as numbers), else to this one; so that those from "1" and from "2" are applied one after the other. Raises
        InvalidDeclaration for a second one from the same version.
        """
        checked_version(from_, f"migration of {self.name}")
        if from_ in self.migrations or from_ == self.version:
            raise InvalidDeclaration(
                f"workflow {self.name} cannot migrate from {from_!r}: declare each older version once."
            )

        def declare(fn: Callable[[str, Any], Next[R]]) -> Callable[[str, Any], Next[R]]:
            if inspect.iscoroutinefunction(fn):
                raise InvalidDeclaration(
                    f"the migration of {self.name} from {from_!r} must be a plain def: it may not wait."
                )
            self.migrations[from_] = fn
            if to is not None:
                self._leads_to[from_] = checked_version(to, f"migration of {self.name}")
            return fn

        return declare

    def migration_paths(self) -> dict[str, tuple[str, ...]]:
        """Return, for each older version with a migration, the versions it is led through: itself first, today's last.

        Raises InvalidDeclaration for a migration that leads nowhere, or in a circle.
        """
        older = sorted(self.migrations, key=_in_order)
        following = dict(zip(older, [*older[1:], self.version], strict=False)) | self._leads_to
        paths: dict[str, tuple[str, ...]] = {}
        for start in older:
            path = [start]
            while path[-1] != self.version:
                step = following.get(path[-1])
                if step is None or step in path:
                    raise InvalidDeclaration(
                        f"the migration of {self.name} from {start!r} leads to {path[-1]!r} and no further. Declare "
                        f"one from {path[-1]!r}, or leave to= out."
                    )
                path.append(step)
            paths[start] = tuple(path)
        return paths

    @overload
    def segment(self, fn: Callable[[Run, S], Coroutine[Any, Any, Next[R]]], /) -> Segment[S, R]: ...
    @overload
    def segment(
        self,
        *,
        ensures: Callable[[S, Next[R]], bool] | None = None,
        requires: Callable[[S], bool] | None = None,
        retry: Retry | None = None,
    ) -> Callable[[Callable[[Run, S], Coroutine[Any, Any, Next[R]]]], Segment[S, R]]: ...
    def segment(self, fn: Any = None, *, ensures: Any = None, requires: Any = None, retry: Retry | None = None) -> Any:
        """Declare a segment: `async def name(run, state) -> Next`. The type of its state is the annotation of `state`.

        Raises InvalidDeclaration for another form, and where the first segment's state is not the workflow's input.
        """
        options = {"ensures": ensures, "requires": requires, "retry": retry}
        if fn is not None:
            return self._add(fn, signatures.around_caller(0), options)
        return lambda fn: self._add(fn, signatures.around_caller(0), options)

    def _add(self, fn: Callable[..., Any], around: Mapping[str, Any], options: dict[str, Any]) -> Segment[Any, R]:
        name, parameters = _segment_form(fn, around, f"workflow {self.name}")
        if len(parameters) != 2:  # noqa: PLR2004
            raise InvalidDeclaration(f"segment {name} of {self.name} takes (run, state): give it both parameters.")
        state: Codec[Any] = Codec(parameters[1].kind, f"state of segment {name} of {self.name}")
        if name in self.segments:
            raise InvalidDeclaration(f"workflow {self.name} has two segments named {name}. Rename one.")
        if not self.segments and Any not in {state.kind, self.input.kind} and state.kind != self.input.kind:
            raise InvalidDeclaration(
                f"the first segment of {self.name} takes {state.kind!r}, its input is {self.input.kind!r}. Make them "
                "the same."
            )
        segment: Segment[Any, R] = Segment(fn, state, name=name, fingerprint=signatures.fingerprint(fn), **options)
        self.segments[name] = segment
        return segment


class _WorkflowDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[[Run], Coroutine[Any, Any, R]], /) -> Workflow[None, R]: ...
    @overload
    def __call__(self, fn: Callable[[Run, I], Coroutine[Any, Any, R]], /) -> Workflow[I, R]: ...


def workflow(
    *,
    version: str,
    name: str | None = None,
    tools: Sequence[Tool[..., Any]] = (),
    prompts: Sequence[Prompt] = (),
    compatible_with: Iterable[str] = (),
    models: Mapping[str, str] | None = None,
    queue: str = DEFAULT,
) -> _WorkflowDecorator:
    """Declare a workflow of one segment: `async def name(run)` or `async def name(run, input)`, returning the result.

    Input and result are typed by the annotations. Raises InvalidDeclaration as Workflow does.
    """

    def declare(fn: Callable[..., Any]) -> Workflow[Any, Any]:
        around = signatures.around_caller(0)
        called, parameters = _segment_form(fn, around, "a workflow")
        if len(parameters) not in {1, 2}:
            raise InvalidDeclaration(
                f"workflow {called} takes (run) or (run, input): a run has one input; use a dataclass."
            )
        result = signatures.read(fn, called, around).result
        input_kind = parameters[1].kind if len(parameters) > 1 else NoneType
        made: Workflow[Any, Any] = Workflow(
            name or called, version=version, input=input_kind, result=result, tools=tools, prompts=prompts,
            compatible_with=compatible_with, models=models, queue=queue,
        )  # fmt: skip

        @functools.wraps(fn)
        async def enter(run: Run, given: Any) -> Next[Any]:
            return done(await (fn(run, given) if len(parameters) > 1 else fn(run)))

        made.segments[called] = Segment(enter, made.input, name=called, fingerprint=signatures.fingerprint(fn))
        return made

    return declare


def _segment_form(
    fn: Callable[..., Any], around: Mapping[str, Any], what: str
) -> tuple[str, tuple[signatures.Parameter, ...]]:
    if not inspect.iscoroutinefunction(fn):
        raise InvalidDeclaration(f"{what}: {fn!r} must be an 'async def' whose first parameter is the run.")
    name = checked_name(fn.__name__, "segment")
    return name, signatures.read(fn, f"segment {name}", around).parameters


def _checked_models(given: Any, name: str) -> dict[str, str]:
    named = isinstance(given, Mapping) and all(
        isinstance(text, str) and text for pair in given.items() for text in pair
    )
    if not named:
        raise InvalidDeclaration(f'models of {name}: {given!r} is no mapping. Write it like {{"triage": "a-model"}}.')
    return dict(given)


def _in_order(version: str) -> list[tuple[int, int, str]]:
    """Return what sorts versions as people count: "2" before "10", "1.9" before "1.10"."""
    parts = re.findall(r"\d+|\D+", version)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _by_name(given: Iterable[T], kind: type[T], what: str) -> dict[str, T]:
    named: dict[str, T] = {}
    for one in given:
        if not isinstance(one, kind):
            made_by = "Decorate it with @mp.tool" if kind is Tool else "Make it with mp.prompt(…)"
            raise InvalidDeclaration(f"{what}: {one!r} is no {kind.__name__}. {made_by}.")
        name: str = getattr(one, "name", "")
        if named.setdefault(name, one) is not one:
            raise InvalidDeclaration(f"{what}: two are named {name}. Rename one, or list it once.")
    return named
