"""`milepost worker`: a process that drives runs until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli import options
from milepost.cli.opening import opened, wait_for
from milepost.cli.options import common, policy_option
from milepost.cli.printing import iso, plain
from milepost.cli.probes import address_of, answering
from milepost.cli.production import demand
from milepost.cli.settings import Settings
from milepost.cli.supervisor import reporting, supervise
from milepost.core.duration import parse_ms
from milepost.runtime.worker import TOGETHER
from milepost.stores.places import local_of, place_of

if TYPE_CHECKING:
    from milepost.app import App

log = logging.getLogger("milepost.cli")
LEVELS = ["debug", "info", "warning", "error"]


class Address(click.ParamType[str]):
    """A host and a port."""

    name = "address"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it was given."""
        try:
            address_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


@click.command()
@click.option(
    "--concurrency", "--together", "together", type=click.IntRange(min=1), default=TOGETHER, show_default=True,
    help="At most so many runs at once.",
)  # fmt: skip
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Take runs from it alone. Repeatable; else all.")
@click.option(
    "--grace", type=options.Span(), default="10s", show_default=True, help="How long the first signal lets work finish."
)
@click.option(
    "--frozen", type=options.Span(), default="60s", show_default=True, help="Without a sign of life it is killed then."
)
@click.option(
    "--still", type=options.Span(), default="15m", show_default=True, help="A run not written to for so long is logged."
)
@click.option(
    "--metrics", envvar="MILEPOST_METRICS", type=Address(), metavar="HOST:PORT",
    help="Answer /live, /ready and /metrics there.",
)  # fmt: skip
@click.option("--supervisor/--no-supervisor", "supervised", default=True, help="Watch it from a process around it.")
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What is logged to stderr."
)
@click.option(
    "--seal", envvar="MILEPOST_SEAL", type=click.Path(dir_okay=False, path_type=Path),
    help="Drive nothing unless the store agrees with this seal.",
)  # fmt: skip
@click.option(
    "--trust", envvar="MILEPOST_TRUST", type=click.Path(dir_okay=False, path_type=Path),
    help="The trust file: whose signatures count. With it, approvals must be signed.",
)  # fmt: skip
@click.option("--production", is_flag=True, help="Start only where `doctor --production` finds nothing.")
@policy_option
@common
def worker(
    together: int, queues: tuple[str, ...], grace: str, frozen: str, still: str, metrics: str | None, log_level: str,
    seal: Path | None, trust: Path | None, policy: str | None, store: str | None, app: str | None, *, supervised: bool,
    production: bool, as_json: bool,
) -> None:  # fmt: skip
    """Drive the runs of an App until SIGTERM or SIGINT.

    The first signal starts nothing new, lets what is in flight finish, and gives every run back. The second ends the
    process at once: what was in flight is unknown then, and found out by the next worker. So is SIGKILL, at any time.

    A process around it kills it, and starts it again, where it hangs: without a sign of life, or with a call of a
    killed run that does not let go.
    """
    _configure_logging(log_level, as_json=as_json)
    settings = Settings(store, app, policy, trust)
    if settings.named_store is not None:
        with opened(settings.named_store):
            pass  # a store that was named must be there: a misspelt path makes no second one
    if production:
        demand(settings, seal=seal, trust=trust)
    if supervised:
        given = ["--concurrency", str(together), "--grace", grace, "--still", still, "--log-level", log_level]
        given += [word for queue in queues for word in ("--queue", queue)]
        paths = [
            ("--metrics", metrics),
            ("--seal", seal),
            ("--trust", trust),
            ("--policy", policy),
            ("--store", store),
            ("--app", app),
        ]
        given += [word for name, value in paths if value for word in (name, str(value))]
        given += ["--json"] if as_json else []
        code = supervise(given, grace_s=parse_ms(grace) / 1000, frozen_s=parse_ms(frozen) / 1000)
        click.get_current_context().exit(code)
    served = settings.app
    served.seal = seal or served.seal
    wait_for(_serve(served, together, queues, grace, still, metrics))


async def _serve(app: App, together: int, queues: tuple[str, ...], grace: str, still: str, metrics: str | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, stop, number, grace)
    names = ", ".join(sorted(app.workflows)) or "no workflows"
    log.info("worker %d drives %s on %s", os.getpid(), names, place_of(app.store))
    await app.serve(
        stop, together=together, grace=grace, queues=queues or None, supervised=reporting(local_of(app.store)),
        observed=None if metrics is None else answering(*address_of(metrics), stop, _answers), still=still,
    )  # fmt: skip
    log.info("worker %d has given every run back", os.getpid())


def _answers(port: int) -> None:
    log.info("worker %d answers /live, /ready and /metrics on port %d", os.getpid(), port)


def _signalled(stop: asyncio.Event, number: int, grace: str) -> None:
    name = signal.Signals(number).name
    if stop.is_set():
        log.warning("%s again: leaving at once; what is in flight becomes unknown", name)
        os._exit(128 + number)
    log.info("%s: finishing what is in flight, for at most %s", name, grace)
    stop.set()


class _Lines(logging.Formatter):
    """Log records as lines that cannot act on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record; a traceback keeps its lines."""
        first, *more = super().format(record).split("\n")
        return "\n".join([plain(first), *(plain(line) for line in more)])


class _JsonLines(logging.Formatter):
    """Log records as JSON, one a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record."""
        told = {"at": iso(int(record.created * 1000)), "level": record.levelname.lower(), "logger": record.name}
        told["message"] = record.getMessage()
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)


def _configure_logging(level: str, *, as_json: bool) -> None:
    """Log to stderr, unless the environment's own configuration stands already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else _Lines("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
