"""Tools: what acts on the outside world, declared with what its author promises about it.

A declaration is checked when it is made, so that a promise that cannot be kept fails at import and not in the night.
Called inside a run, a tool is a recorded step; outside, it refuses.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, get_args, overload

from milepost.core.duration import Duration, parse_ms
from milepost.core.outcome import Facts
from milepost.core.retry import Retry
from milepost.definitions import signatures
from milepost.definitions.arguments import Arguments, Bound
from milepost.definitions.call import CURRENT, Call, Finding, Step, Tx, amounts
from milepost.definitions.secrets import from_environment
from milepost.definitions.values import Codec, encode
from milepost.errors import InvalidDeclaration, InvalidValue, NoRun

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Cost: TypeAlias = Mapping[str, Decimal | int]
Effect: TypeAlias = Literal["read", "keyed", "absolute", "queryable", "transactional", "irreversible"]
Risk: TypeAlias = Literal["low", "medium", "high", "critical"]

_NAME = re.compile(r"[\w.-]{1,64}")


def checked_name(name: Any, what: str) -> str:
    """Return the name. Raises InvalidDeclaration unless it can stand in a path: letters, digits, `_`, `-`, `.`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidDeclaration(f"{what} name {name!r}: use up to 64 letters, digits, '_', '-' or '.'.")
    return name


def checked_version(version: Any, what: str) -> str:
    """Return the version. Raises InvalidDeclaration unless it is text that says something."""
    if not isinstance(version, str) or not version.strip():
        raise InvalidDeclaration(f'version {version!r} of {what}: write it as text, such as version="1".')
    return version


def checked_texts(given: Iterable[Any], what: str) -> frozenset[str]:
    """Return the texts. Raises InvalidDeclaration for one bare text, which Python would take apart into letters."""
    texts = ("",) if isinstance(given, str) else tuple(given)
    if not all(isinstance(text, str) and text for text in texts):
        raise InvalidDeclaration(f'{what}: {given!r} is no list of names. Write it like ["one", "two"].')
    return frozenset(texts)


@dataclass(frozen=True)
class Reconciler:
    """What finds out whether an attempt of a tool happened."""

    fn: Callable[..., Any]
    is_async: bool
    takes_call: bool


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the decorator was given, as the user wrote it."""

    name: str | None = None
    version: str = "1"
    effect: Effect = "irreversible"
    key_ttl: Duration | None = None
    timeout: Duration = "60s"
    retry: Retry | None = None
    scopes: Iterable[str] = ()
    approval: bool | Callable[..., bool] = False
    cost: Cost | None = None
    volatile: Iterable[str] = ()
    once: str | Sequence[str] | None = None
    visible_within: Duration | None = None
    repeatable: bool = False
    risk: Risk = "low"
    compatible_with: Iterable[str] = ()


class Tool(Generic[P, R_co]):
    """A declared tool. Call it inside a run for a recorded step; see the `tool` decorator for what it declares.

    `parameters` is the JSON schema of its arguments, as models are given it. `taken` are its arguments where the
    signature of `fn` does not say them.
    """

    def __init__(
        self, fn: Callable[..., Any], options: Options, around: Mapping[str, Any], taken: Arguments | None = None
    ) -> None:
        self.name = checked_name(options.name or fn.__name__, "tool")
        what = f"tool {self.name}"
        signature = signatures.read(fn, what, around)
        self.fn = fn
        self.is_async = inspect.iscoroutinefunction(fn)
        self.takes: Literal["call", "tx"] | None = (
            "call" if signature.starts_with(Call) else "tx" if signature.starts_with(Tx) else None
        )
        parameters = signature.parameters[1:] if self.takes else signature.parameters
        self.description = inspect.getdoc(fn) or ""
        names = {parameter.name for parameter in parameters} if taken is None else {*taken.names}
        self._declare(options, what, names)
        self.arguments = Arguments(self.name, parameters, self.volatile) if taken is None else taken
        self.result: Codec[R_co] = Codec(signature.result, f"result of {self.name}")
        self.parameters: Mapping[str, Any] = self.arguments.schema
        self.fingerprint = signatures.fingerprint(fn)
        self.reconciler: Reconciler | None = None
        self.compensation: Tool[..., Any] | None = None
        self._cost: Callable[..., Cost] | None = None
        functools.update_wrapper(self, fn, updated=())

    def _declare(self, options: Options, what: str, names: set[str]) -> None:
        self.version = checked_version(options.version, what)
        self.compatible_with = checked_texts(options.compatible_with, f"compatible_with of {what}")
        self.effect: Effect = _one_of(options.effect, Effect, f"effect of {what}")
        self.risk: Risk = _one_of(options.risk, Risk, f"risk of {what}")
        self.timeout_ms = _span(options.timeout, f"timeout of {what}") or 0
        self.key_ttl_ms = _span(options.key_ttl, f"key_ttl of {what}")
        self.visible_ms = _span(options.visible_within, f"visible_within of {what}")
        self.retry = options.retry or Retry()
        self.scopes = checked_texts(options.scopes, f"scopes of {what}")
        self.approval = options.approval
        self.volatile = checked_texts(options.volatile, f"volatile of {what}")
        once = (options.once,) if isinstance(options.once, str) else tuple(options.once or ())
        checked_texts(once, f"once of {what}")
        self.once = once
        self.repeatable = options.repeatable
        self._fixed_cost = _declared_amounts(options.cost or {}, f"cost of {what}")
        self._check(what, names)

    def _check(self, what: str, names: set[str]) -> None:
        """Refuse promises that contradict each other, or that name what is not there."""
        unknown = sorted((self.volatile | set(self.once)) - names)
        for wrong, why in (
            (unknown, f"names {', '.join(unknown)}, which is no parameter of it"),
            (
                self.volatile & set(self.once),
                "has an argument that is both once= and volatile=: an identity cannot vary",
            ),
            (not self.timeout_ms, "has a timeout of zero: give it time to answer"),
            (self.effect != "keyed" and self.key_ttl_ms is not None, 'has a key_ttl, which only effect="keyed" uses'),
            (self.effect == "read" and self.once, "is a read: once= is for effects"),
            (self.effect == "read" and self.visible_ms is not None, "is a read: visible_within= is for effects"),
            (
                self.effect == "transactional" and self.takes != "tx",
                "is transactional: its first parameter must be a Tx",
            ),
            (
                self.effect == "transactional" and self.is_async,
                "is transactional: a plain def, which cannot wait inside it",
            ),
            (self.effect != "transactional" and self.takes == "tx", 'takes a Tx: declare it effect="transactional"'),
        ):
            if wrong:
                raise InvalidDeclaration(f"{what} {why}.")

    def __repr__(self) -> str:
        return f"<tool {self.name} version {self.version}, {self.effect}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Step[R_co]:
        """Make a step of the run; nothing is sent yet. Raises NoRun, NestedStep, StrayTask or InvalidArguments."""
        caller = CURRENT.get()
        if caller is None:
            raise NoRun(self.name)
        return caller.call(self, self.arguments.bind(args, kwargs))

    def from_json(self, arguments: str | Mapping[str, Any]) -> Step[R_co]:
        """Make a call with arguments that a model made. Raises InvalidArguments before anything is recorded."""
        caller = CURRENT.get()
        if caller is None:
            raise NoRun(self.name)
        return caller.call(self, self.arguments.from_json(arguments))

    def direct(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R_co]:
        """Call the bare function, without run or record; a `def` runs in a thread.

        Its Call has secrets from the environment and no resources. Raises InvalidDeclaration for a transactional tool.
        """
        if self.takes == "tx":
            raise InvalidDeclaration(f"tool {self.name} works inside the store's own transaction. Call it in a run.")
        leading = (self._direct_call(),) if self.takes else ()
        answer: Awaitable[R_co] = (
            self.fn(*leading, *args, **kwargs)
            if self.is_async
            else asyncio.to_thread(self.fn, *leading, *args, **kwargs)
        )
        return answer

    def _direct_call(self) -> Call:
        def no_resource(kind: type[Any]) -> Any:
            raise InvalidDeclaration(
                f"{self.name}.direct(…) asked for the resource {kind.__qualname__}, which only an app opens. Call it "
                "in a run, or move what needs the resource into a function that takes it."
            )

        deadline = datetime.now(UTC) + timedelta(milliseconds=self.timeout_ms)
        return Call(key="direct", attempt=1, deadline=deadline, secrets=from_environment, resources=no_resource)

    @overload
    def reconcile(
        self: Tool[P, R], fn: Callable[Concatenate[Call, P], Awaitable[Finding[R]] | Finding[R]], /
    ) -> Callable[Concatenate[Call, P], Awaitable[Finding[R]] | Finding[R]]: ...
    @overload
    def reconcile(
        self: Tool[P, R], fn: Callable[P, Awaitable[Finding[R]] | Finding[R]], /
    ) -> Callable[P, Awaitable[Finding[R]] | Finding[R]]: ...
    def reconcile(self, fn: Any, /) -> Any:
        """Declare how to find out whether an attempt happened. It takes the tool's parameters, after an optional Call.

        An exception in it means *still unknown*. Raises InvalidDeclaration where it cannot be called so, or is never
        asked.
        """
        if self.effect in {"read", "transactional"}:
            raise InvalidDeclaration(
                f"tool {self.name} is a {self.effect}: its outcome is never unknown, drop the reconciler."
            )
        if self.reconciler is not None:
            raise InvalidDeclaration(f"tool {self.name} has two reconcilers. Keep one.")
        around = signatures.around_caller(0)
        signature = signatures.read(fn, f"reconciler of {self.name}", around, bag=self.arguments.bag)
        takes_call = signature.starts_with(Call)
        rest = replace(signature, parameters=signature.parameters[takes_call:])
        self.arguments.must_fit(rest, self.name, "the reconciler")
        self.reconciler = Reconciler(fn, inspect.iscoroutinefunction(fn), takes_call)
        return fn

    def compensate(self: Tool[P, R], tool: Tool[[R], Any], /) -> Tool[[R], Any]:
        """Declare the tool that undoes this one, given its result. Raises InvalidDeclaration if it takes more."""
        taken: Any = getattr(tool, "arguments", None)
        if not isinstance(taken, Arguments) or not taken.positional or {*taken.required} - {taken.positional[0]}:
            raise InvalidDeclaration(
                f"what undoes {self.name} must be a tool with one parameter: the result of {self.name}."
            )
        self.compensation = tool
        return tool

    def cost(self, fn: Callable[P, Cost], /) -> Callable[P, Cost]:
        """Declare what a call costs at worst, from its arguments, per unit. Raises InvalidDeclaration."""
        if self._fixed_cost or self._cost or inspect.iscoroutinefunction(fn):
            raise InvalidDeclaration(
                f"tool {self.name} needs one cost: cost={{…}}, or one plain def with @{self.name}.cost."
            )
        around = signatures.around_caller(0)
        signature = signatures.read(fn, f"cost of {self.name}", around, bag=self.arguments.bag)
        self.arguments.must_fit(signature, self.name, "the cost")
        self._cost = fn
        return fn

    @property
    def fixed_cost(self) -> Mapping[str, Decimal]:
        """What every call costs per unit, where that does not depend on its arguments."""
        return self._fixed_cost

    @property
    def costed(self) -> bool:
        """Whether a call needs a budget."""
        return bool(self._fixed_cost) or self._cost is not None

    def cost_of(self, bound: Bound) -> dict[str, Decimal]:
        """Return the worst case of a call per unit, {} where it is free. Raises InvalidValue for what is no amount."""
        if self._cost is None:
            return self._fixed_cost
        return amounts(bound.call(self._cost), f"cost of {self.name}")

    def needs_approval(self, bound: Bound) -> bool:
        """Tell whether a person must approve a call. A rule that errs, or says no clear False, asks."""
        if not callable(self.approval):
            return self.approval is not False
        try:
            return bound.call(self.approval) is not False
        except Exception:  # noqa: BLE001 - a user's rule may raise anything; denied until a person says otherwise
            return True

    def once_of(self, bound: Bound) -> str | None:
        """Return a call's business identity as canonical JSON, a list of values; None where none is declared."""
        return encode([bound.value(name) for name in self.once]).decode() if self.once else None

    @property
    def facts(self) -> Facts:
        """What the outcome table needs to know."""
        return Facts(
            effect=self.effect, key_ttl_ms=self.key_ttl_ms, visible_ms=self.visible_ms,
            reconcilable=self.reconciler is not None, timeout_ms=self.timeout_ms, tries=self.retry.attempts,
            version=self.version,
        )  # fmt: skip


def with_compensations(tools: Mapping[str, Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """Return listed tools and what undoes them. To list a tool is to list its compensation, for undoing alone."""
    undo = {tool.compensation.name: tool.compensation for tool in tools.values() if tool.compensation is not None}
    return {**undo, **tools}


class _Decorator(Protocol):
    @overload
    def __call__(self, fn: Callable[Concatenate[Tx, P], R], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], R], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(fn: Callable[Concatenate[Call, P], Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
@overload
def tool(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
@overload
def tool(fn: Callable[Concatenate[Call, P], R], /) -> Tool[P, R]: ...
@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    version: str = "1",
    effect: Effect = "irreversible",
    key_ttl: Duration | None = None,
    timeout: Duration = "60s",
    retry: Retry | None = None,
    scopes: Iterable[str] = (),
    approval: bool | Callable[..., bool] = False,
    cost: Cost | None = None,
    volatile: Iterable[str] = (),
    once: str | Sequence[str] | None = None,
    visible_within: Duration | None = None,
    repeatable: bool = False,
    risk: Risk = "low",
    compatible_with: Iterable[str] = (),
) -> _Decorator: ...
def tool(fn: Any = None, /, **options: Any) -> Any:
    """Declare a tool: a `def` (run in a thread) or an `async def`, with an optional first parameter `call: Call`.

    * `effect`: what may be done when nobody knows whether a call happened. `read`: call again. `keyed`: the provider
      drops a second call with the same `call.key`, for `key_ttl`. `absolute`: doing it again changes nothing more.
      `queryable`: its `@tool.reconcile` can find out. `transactional`: it writes to the store itself (first parameter
      `tx: Tx`). `irreversible`, the default: a person decides.
    * `visible_within`: how long after a quiet attempt "not found" may be wrong; without it, absence proves nothing.
    * `timeout`, `retry`: for one attempt, and for failures that are certain.
    * `scopes`, `approval`, `cost`, `risk`: what the caller must be allowed, and what it costs at worst.
    * `once`: the argument(s) that name a business identity, for which no run starts the tool twice.
    * `volatile`: arguments outside a call's identity. `repeatable`: an attached run may repeat it at once.
    * `name`, `version`: how it stands in the record; a version says that behaviour changed. `compatible_with`: older
      versions for which this one may stand in; never for an effect of theirs whose outcome is unknown.

    Raises InvalidDeclaration for what cannot be honoured.
    """
    if fn is not None:
        return Tool(fn, Options(), signatures.around_caller(0))
    declared = Options(**options)
    return lambda fn: Tool(fn, declared, signatures.around_caller(0))


def _one_of(given: Any, known: Any, what: str) -> Any:
    if given not in get_args(known):
        raise InvalidDeclaration(f"{what}: {given!r} is none of {', '.join(get_args(known))}.")
    return given


def _span(given: Duration | None, what: str) -> int | None:
    try:
        return None if given is None else parse_ms(given)
    except (TypeError, ValueError) as error:
        raise InvalidDeclaration(f"{what}: {error}.") from error


def _declared_amounts(given: Cost, what: str) -> dict[str, Decimal]:
    try:
        return amounts(given, what)
    except (InvalidValue, TypeError, ValueError) as error:
        raise InvalidDeclaration(str(error)) from error


def checked_reconciler(tool: Tool[..., Any]) -> None:
    """Raise InvalidDeclaration for a queryable tool that nobody can ask."""
    if tool.effect == "queryable" and tool.reconciler is None:
        why = f"tool {tool.name} is queryable but has no reconciler: declare one with @{tool.name}.reconcile"
        raise InvalidDeclaration(why)
