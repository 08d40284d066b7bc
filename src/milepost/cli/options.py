"""The options that many commands share, and the values people type."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import click

from milepost.core.duration import parse_ms

F = TypeVar("F", bound=Callable[..., Any])


def store_option(command: F) -> F:
    """Let a command be told its store."""
    return click.option("--store", envvar="MILEPOST_STORE", metavar="FILE|URL", help="The store; else the App's own.")(
        command
    )


def app_option(command: F) -> F:
    """Let a command be told its App."""
    return click.option("--app", envvar="MILEPOST_APP", metavar="MODULE:APP", help="The App, as seen from here.")(
        command
    )


def policy_option(command: F) -> F:
    """Let a command be told its policy."""
    return click.option("--policy", envvar="MILEPOST_POLICY", metavar="FILE", help="The policy; else the App's own.")(
        command
    )


def json_option(command: F) -> F:
    """Let a command answer in JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Answer, and say errors, in JSON.")(command)


def common(command: F) -> F:
    """Add what every command over a store has."""
    return store_option(app_option(json_option(command)))


def by_option(command: F) -> F:
    """Let a command say who acts."""
    return click.option("--by", default=None, metavar="NAME", help="Who says so; else the name of the system's user.")(
        command
    )


def signing(command: F) -> F:
    """Let a verb be signed."""
    return click.option(
        "--key", envvar="MILEPOST_KEY", metavar="NAME|FILE", help="What to sign with; its name is who says so."
    )(command)


def waiting(command: F) -> F:
    """Let a verb wait until a worker acted on it."""
    wait = click.option("--wait", is_flag=True, help="Wait until a worker has taken it and the run rests or ends.")
    return wait(timeout_option(command))


def timeout_option(command: F) -> F:
    """Bound a wait."""
    return click.option("--timeout", type=Span(), metavar="SPAN", help="How long to wait, such as 30s; else for ever.")(
        command
    )


def user(by: str | None) -> str:
    """Return who acts."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return "somebody"


class Json(click.ParamType[Any]):
    """A JSON value."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as (decoded,), so that null is told from nothing."""
        if isinstance(value, tuple):
            return value
        try:
            return (json.loads(value, parse_constant=_refuse),)
        except (ValueError, RecursionError) as error:
            self.fail(f"{value!r} is no JSON ({error}). A text is written with quotes: '\"text\"'.", param, ctx)


class Span(click.ParamType[str]):
    """A span of time."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the span as it was typed."""
        try:
            parse_ms(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return `name=value` options as a dict. Raises click.UsageError for one that is none, or is given twice."""
    result: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text}: write it like {option} name=value")
        if name in result:
            raise click.UsageError(f"{option} {name}: given twice")
        result[name] = value
    return result


def amounts(given: Iterable[str], option: str = "--budget") -> dict[str, Decimal | int]:
    """Return `unit=amount` options as exact amounts. Raises click.UsageError."""
    result: dict[str, Decimal | int] = {}
    for unit, text in pairs(option, given).items():
        try:
            result[unit] = Decimal(text)
        except InvalidOperation as error:
            raise click.UsageError(
                f"{option} {unit}={text}: write the amount as a number, such as 20 or 0.50"
            ) from error
    return result


def _refuse(constant: str) -> Any:
    msg = f"{constant} is no JSON value"
    raise ValueError(msg)
