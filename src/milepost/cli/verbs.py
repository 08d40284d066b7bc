"""What a person does to runs. Each verb is one message or one transaction; none needs a worker's cooperation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from milepost.cli import options
from milepost.cli.delivering import look, tell, until_rested
from milepost.cli.opening import find_run, opened, operator, wait_for
from milepost.cli.options import by_option, common, signing, waiting
from milepost.cli.printing import plain, say, say_json, short
from milepost.cli.settings import Settings
from milepost.definitions.call import Finding, did_not_happen, happened, rejected
from milepost.operations import keys

if TYPE_CHECKING:
    from milepost.operations.verbs import Operator
    from milepost.stores.api import Store

SAID = {"happened": "happened", "did_not_happen": "did not happen", "rejected": "was rejected"}
Act = Callable[["Operator", str], Awaitable[str]]


def _deliver(
    act: Act,
    find: Callable[[Store], Awaitable[str]],
    verb: str,
    common_: dict[str, Any],
) -> None:
    """Perform a verb and say what happened. `act` returns in a sentence what it did."""
    where, wait, timeout = Settings(common_["store"], common_["app"]), common_["wait"], common_["timeout"]

    async def work(store: Store) -> None:
        run_id = await find(store)
        done = await act(operator(store), run_id)
        next_ = await until_rested(store, run_id, timeout) if wait else await look(store, run_id)
        tell(done, next_, {"verb": verb, "done": done}, as_json=common_["as_json"])

    with opened(where.url) as store:
        wait_for(work(store))


def _run(prefix: str) -> Callable[[Store], Awaitable[str]]:
    return lambda store: find_run(store, prefix)


@click.command()
@click.argument("run")
@click.argument("path")
@click.option("--happened", "value", type=options.Json(), metavar="JSON", help="It happened: what the tool returned.")
@click.option("--did-not-happen", "absent", is_flag=True, help="It did not happen, and may be sent again.")
@click.option("--rejected", "refused", is_flag=True, help="The outside system refused it, for good.")
@click.option("--why", required=True, help="How you know. It is recorded.")
@signing
@by_option
@waiting
@common
def resolve(
    run: str, path: str, value: Any, why: str, key: str | None, by: str | None, *, absent: bool, refused: bool,
    **common_: Any,
) -> None:  # fmt: skip
    """Settle an effect whose outcome nobody knows, once you found out.

    PATH is the step as `milepost effects` shows it. Look at the outside system first: what you say is believed.
    """
    if (value is not None) + absent + refused != 1:
        raise click.UsageError("say one of --happened JSON, --did-not-happen, --rejected")
    signer = None if key is None else keys.find_private(key)
    finding: Finding[Any] = happened(value[0]) if value is not None else rejected(why) if refused else did_not_happen()

    async def act(verbs: Operator, run_id: str) -> str:
        await verbs.resolve(run_id, path, finding, by=options.user(by), why=why, signer=signer)
        return f"Told run {short(run_id)} that {path} {SAID[finding.answer]}."

    _deliver(act, _run(run), "resolve", common_)


@click.command()
@click.argument("run")
@click.argument("scopes", nargs=-1)
@click.option(
    "--budget", "budgets", multiple=True, metavar="UNIT=AMOUNT", help="More money, or any unit, such as usd=20."
)
@click.option("--why", default="", help="Recorded.")
@signing
@by_option
@waiting
@common
def grant(
    run: str, scopes: tuple[str, ...], budgets: tuple[str, ...], why: str, key: str | None, by: str | None,
    **common_: Any,
) -> None:  # fmt: skip
    """Give a run further scopes, or more of a budget."""
    if not scopes and not budgets:
        raise click.UsageError("say what to grant: SCOPE…, or --budget usd=20")
    budget = options.amounts(budgets)
    signer = None if key is None else keys.find_private(key)

    async def act(verbs: Operator, run_id: str) -> str:
        await verbs.grant(run_id, by=options.user(by), scopes=scopes, budget=budget, why=why, signer=signer)
        return f"Granted {', '.join([*scopes, *budgets])} to run {short(run_id)}."

    _deliver(act, _run(run), "grant", common_)


@click.command()
@click.argument("run")
@click.argument("name")
@click.argument("value", type=options.Json(), metavar="JSON")
@click.option("--id", "id_", metavar="ID", help="The same id a second time is the same signal.")
@by_option
@waiting
@common
def send(run: str, name: str, value: Any, id_: str | None, by: str | None, **common_: Any) -> None:
    """Send a run a signal that it waits for, or will."""

    async def act(verbs: Operator, run_id: str) -> str:
        fresh = await verbs.send(run_id, name, value[0], id=id_, by=options.user(by))
        return f"Sent {name} to run {short(run_id)}." if fresh else f"Signal {id_} was sent before: nothing was added."

    _deliver(act, _run(run), "send", common_)


@click.command()
@click.argument("run")
@click.option("--why", default="", help="Recorded.")
@by_option
@waiting
@common
def cancel(run: str, why: str, by: str | None, **common_: Any) -> None:
    """Let a run start nothing new and end once what is in flight has finished."""

    async def act(verbs: Operator, run_id: str) -> str:
        await verbs.cancel(run_id, by=options.user(by), why=why or f"cancelled by {options.user(by)}")
        return f"Asked run {short(run_id)} to stop."

    _deliver(act, _run(run), "cancel", common_)


@click.command()
@click.argument("run")
@click.option("--why", default="", help="Told to the run you retry, and recorded.")
@by_option
@waiting
@common
def retry(run: str, why: str, by: str | None, **common_: Any) -> None:
    """Enter the failed segment of a run again, keeping its finished steps."""

    async def act(verbs: Operator, run_id: str) -> str:
        await verbs.retry(run_id, by=options.user(by), why=why)
        return f"Run {short(run_id)} will be entered again."

    _deliver(act, _run(run), "retry", common_)


@click.command()
@click.argument("run")
@click.option("--why", default="", help="Recorded.")
@by_option
@common
def kill(run: str, why: str, by: str | None, store: str | None, app: str | None, *, as_json: bool) -> None:
    """Stop a run and its descendants now, whoever holds them; list what may still happen.

    No worker has to agree. After it returns, nothing that had not started will start.
    """

    async def work(store_: Store) -> tuple[str, list[tuple[str, str]]]:
        run_id = await find_run(store_, run)
        return run_id, await operator(store_).kill(
            run_id, by=options.user(by), why=why or f"killed by {options.user(by)}"
        )

    with opened(Settings(store, app).url) as opened_:
        run_id, left = wait_for(work(opened_))
    if as_json:
        say_json({"verb": "kill", "run": run_id, "unknown": [{"run": of, "path": path} for of, path in left]})
        return
    say(f"Killed run {short(run_id)}. Nothing new will start.")
    if left:
        say("In flight at that moment, so unknown until a worker or you find out:")
        for of, path in left:
            say(f"  {short(of)}  {plain(path)}    milepost effects {short(of)}")
