"""`milepost start`."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from milepost.cli import options
from milepost.cli.delivering import NO_WORKER, look, until_ended
from milepost.cli.describing import run_json
from milepost.cli.exits import NO_RESULT, OK
from milepost.cli.opening import opened, wait_for
from milepost.cli.options import common, timeout_option
from milepost.cli.printing import compact, plain, say, say_json, short
from milepost.cli.settings import Settings
from milepost.core.authority import Authority
from milepost.core.duration import parse_ms
from milepost.errors import UnknownWorkflow
from milepost.operations.inspection import Inspector

if TYPE_CHECKING:
    from milepost.app import App
    from milepost.cli.delivering import Next
    from milepost.definitions.workflows import Workflow
    from milepost.stores.api import RunRow, Store


@click.command()
@click.argument("workflow")
@click.argument("given", metavar="[INPUT-JSON]", default="null")
@click.option("--key", help="Makes the start idempotent: the same key and input are the same run.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="What the run may do. Repeatable.")
@click.option("--principal", metavar="NAME", help="For whom it acts; else the name of the system's user.")
@click.option("--tenant", metavar="NAME", help="Of which tenant.")
@click.option("--expires", type=options.Span(), metavar="SPAN", help="How long the authority lasts, such as 24h.")
@click.option(
    "--budget", "budgets", multiple=True, metavar="UNIT=AMOUNT", help="What it may spend, such as usd=5. Repeatable."
)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--deadline", metavar="SPAN|MOMENT", help="After it nothing starts: 2h, or 2030-01-31T12:00+00:00.")
@click.option("--queue", metavar="NAME", help="Where it waits for its turn; else where its workflow says.")
@click.option("--priority", type=int, default=0, show_default=True, help="Of its queue, the highest goes first.")
@click.option("--group", metavar="NAME", help="Whose it is, for limits by group.")
@click.option("--begins", metavar="SPAN|MOMENT", help="It begins then: 10m, or 2030-01-31T12:00+00:00.")
@click.option("--wait", is_flag=True, help="Wait for the result, and print it.")
@timeout_option
@common
def start(
    workflow: str,
    given: str,
    key: str | None,
    scopes: tuple[str, ...],
    principal: str | None,
    tenant: str | None,
    expires: str | None,
    budgets: tuple[str, ...],
    tags: tuple[str, ...],
    deadline: str | None,
    queue: str | None,
    priority: int,
    group: str | None,
    begins: str | None,
    timeout: str | None,
    store: str | None,
    app: str | None,
    *,
    wait: bool,
    as_json: bool,
) -> None:
    """Start a run durably; a worker drives it.

    INPUT-JSON is the workflow's input; - reads it from standard input.
    """
    settings = Settings(store, app)
    if settings.named_store is not None:
        with opened(settings.named_store):
            pass  # a store that was named must be there: a misspelt path makes no second one
    started = {
        "key": key,
        "authority": Authority(options.user(principal), scopes=scopes, tenant=tenant, expires=expires),
        "budget": options.amounts(budgets),
        "tags": options.pairs("--tag", tags),
        "deadline": _moment("--deadline", deadline),
        "queue": queue,
        "priority": priority,
        "group": group,
        "begins": _moment("--begins", begins),
    }
    run_id = wait_for(_start(settings.app, workflow, sys.stdin.read() if given == "-" else given, started))
    with opened(settings.url) as store_:
        code = wait_for(_follow(store_, run_id, timeout, wait=wait, as_json=as_json))
    click.get_current_context().exit(code)


async def _start(app: App, name: str, given: str, started: dict[str, Any]) -> str:
    workflow = app.workflows.get(name)
    if workflow is None:
        raise UnknownWorkflow(name)
    value = _input(workflow, given)
    async with app.client():
        return (await app.start(workflow, value, **started)).id


def _input(workflow: Workflow[Any, Any], given: str) -> Any:
    """Return the input as the workflow's type. Raises click.BadParameter, InvalidValue."""
    try:
        json.loads(given)
    except (ValueError, RecursionError) as error:
        text = f"{given[:80]!r} is no JSON ({error}). A text is written with quotes: '\"text\"'."
        raise click.BadParameter(text, param_hint="INPUT-JSON") from error
    return workflow.input.read(given.encode("utf-8", "surrogateescape"))


async def _follow(store: Store, run_id: str, timeout: str | None, *, wait: bool, as_json: bool) -> int:
    if not wait:
        next_ = await look(store, run_id)
        if as_json:
            say_json({"run": run_id, **next_.json()})
        else:
            say(f"Run {run_id}")
            say(plain(_who(next_)))
        return OK
    return await _result(store, await until_ended(store, run_id, timeout), as_json=as_json)


async def _result(store: Store, row: RunRow, *, as_json: bool) -> int:
    result = (await Inspector(store).detail(row.id)).result if row.status == "done" else None
    if as_json:
        say_json({**run_json(row), "result": result})
    elif row.status == "done":
        say(compact(result, 100_000))
    else:
        say(plain(f"Run {short(row.id)} is {row.status}: {row.why}"))
        if row.ask:
            say(plain(row.ask))
    return OK if row.status == "done" else NO_RESULT


def _who(next_: Next) -> str:
    if next_.row.status != "ready":
        return next_.said()
    if next_.living:
        worker = next_.living[0].id
        return f"A worker is running ({worker}) and drives it if its App has the workflow {next_.row.workflow!r}."
    return NO_WORKER


def _moment(option: str, given: str | None) -> str | datetime | None:
    """Return what an option says as a span or as a moment. Raises click.BadParameter."""
    if given is None:
        return None
    try:
        parse_ms(given)
    except ValueError as no_span:
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            raise click.BadParameter(str(no_span), param_hint=option) from no_span
        return moment.astimezone() if moment.tzinfo is None else moment
    return given
