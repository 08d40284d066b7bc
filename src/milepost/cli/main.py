"""The entry point of `milepost`: finds commands by name, loads the one asked for, and turns every error into one line.

Help must come at once. So a command is known here by the place of its function, and the text beside its name is read
from its source without running it; nothing but click is imported before a command is really called.
"""

from __future__ import annotations

import ast
import json
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from milepost import __version__
from milepost.cli import exits
from milepost.errors import MilepostError

GROUP = "milepost.commands"

# Section, then name and place of each command, in the order in which a person needs them.
OWN = {
    "Begin": {
        "init": "milepost.cli.init:init",
        "worker": "milepost.cli.worker:worker",
        "start": "milepost.cli.start:start",
    },
    "Look": {
        "runs": "milepost.cli.runs:runs",
        "show": "milepost.cli.show:show",
        "plan": "milepost.cli.plan:plan",
        "tools": "milepost.cli.tools:tools",
        "journal": "milepost.cli.journal:journal",
        "effects": "milepost.cli.effects:effects",
        "diff": "milepost.cli.diff:diff",
        "switches": "milepost.cli.freeze:switches",
        "queues": "milepost.cli.fleet:queues",
        "schedules": "milepost.cli.fleet:schedules",
    },
    "Decide": {
        "resolve": "milepost.cli.verbs:resolve",
        "approvals": "milepost.cli.approvals:approvals",
        "approve": "milepost.cli.approvals:approve",
        "deny": "milepost.cli.approvals:deny",
        "grant": "milepost.cli.verbs:grant",
        "revoke": "milepost.cli.revoke:revoke",
        "budget": "milepost.cli.budget:budget",
        "send": "milepost.cli.verbs:send",
        "cancel": "milepost.cli.verbs:cancel",
        "kill": "milepost.cli.verbs:kill",
        "retry": "milepost.cli.verbs:retry",
        "resume": "milepost.cli.resume:resume",
        "rewind": "milepost.cli.rewind:rewind",
        "fork": "milepost.cli.fork:fork",
        "freeze": "milepost.cli.freeze:freeze",
        "thaw": "milepost.cli.freeze:thaw",
        "stop": "milepost.cli.stop:stop",
    },
    "Check": {
        "check": "milepost.cli.check:check",
        "verify": "milepost.cli.verify:verify",
        "doctor": "milepost.cli.doctor:doctor",
        "policy": "milepost.cli.policy:policy",
    },
    "Keep": {
        "keys": "milepost.cli.keys:keys",
        "seal": "milepost.cli.seal:seal",
        "export": "milepost.cli.export:export",
        "import": "milepost.cli.export:import_",
        "prune": "milepost.cli.prune:prune",
        "db": "milepost.cli.db:db",
    },
}
EPILOG = f"\b\nExit codes:\n{exits.table()}"


class CommandUnavailable(MilepostError):
    """A command is registered, and what it needs is not installed."""

    code = "command_unavailable"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"milepost {name} cannot be loaded: {why}. Install what it needs: pip install 'milepost[{name}]'"
        )
        self.name = name
        self.why = why


class CommandLine(click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  the form of click
        """Return the names of all commands."""
        return [name for section in sections().values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one command. Raises CommandUnavailable where it is registered but cannot be imported."""
        own = {name: place for section in OWN.values() for name, place in section.items()}
        place = own.get(cmd_name) or registered().get(cmd_name)
        return None if place is None else load(cmd_name, place)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write every command with the first sentence of its help, in sections."""
        for title, section in sections().items():
            if section:
                with formatter.section(title):
                    formatter.write_dl([(name, first_sentence(place)) for name, place in section.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002  the form of click
        **extra: Any,
    ) -> Any:
        """Run a command and leave the process with its exit code."""
        given = list(sys.argv[1:] if args is None else args)
        called = {"prog_name": prog_name, "complete_var": complete_var, "standalone_mode": False, **extra}
        if not standalone_mode:
            return super().main(given, **called)
        try:
            code = super().main(given, **called)
        except BaseException as error:  # noqa: BLE001  the one place that says what went wrong, whatever it was
            code = answer(error, as_json="--json" in given)
        sys.exit(code if isinstance(code, int) else exits.OK)


@click.group(cls=CommandLine, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="milepost %(version)s")
def cli() -> None:
    """Run AI agents so that they can be killed at any instruction and resumed with one consistent result."""


def main() -> None:
    """Run the command line."""
    cli.main(prog_name="milepost")


# ---------------------------------------------------------------- finding commands


def registered() -> dict[str, str]:
    """Return the places of the commands that other surfaces registered, by name."""
    from importlib.metadata import entry_points  # costs as much as click; our own commands do without

    return {point.name: point.value for point in entry_points(group=GROUP)}


def sections() -> dict[str, dict[str, str]]:
    """Return every command's place by name, in sections; those of other surfaces come last."""
    own = {name for section in OWN.values() for name in section}
    return {**OWN, "More": {name: place for name, place in sorted(registered().items()) if name not in own}}


def load(name: str, place: str) -> click.Command:
    """Import a command."""
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute.split()[0])
    except (ImportError, AttributeError) as error:
        raise CommandUnavailable(name, str(error)) from error
    if not isinstance(found, click.Command):
        raise CommandUnavailable(name, f"{place} is no click command")
    return found


def first_sentence(place: str) -> str:
    """Return the first sentence of a command's docstring, read from its source; empty where there is no source."""
    module, _, attribute = place.partition(":")
    try:
        tree = ast.parse(source_of(module).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ""
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == attribute]
    text = ast.get_docstring(named[0] if named else tree) or ""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


def source_of(module: str) -> Path:
    """Return where a module's source stands, without importing the packages it is in. Raises ValueError, OSError."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(module)
    if not rest:
        return Path(spec.origin)
    place = Path(spec.origin).parent.joinpath(*rest)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


# ---------------------------------------------------------------- saying what went wrong


def answer(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong, and return the exit code. Raises SystemExit again."""
    match error:
        case SystemExit():
            raise error
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message())
        case click.ClickException() if as_json:
            report("usage", error.format_message(), error.exit_code, as_json=True)
        case click.ClickException():
            error.show()
        case click.Abort() | KeyboardInterrupt():
            report("interrupted", "interrupted", exits.INTERRUPTED, as_json=as_json)
        case MilepostError():
            report(error.code, str(error), exits.code_of(error), as_json=as_json, facts=vars(error))
        case OSError():
            report("os_error", f"{error}. Check the path and its owner.", exits.STORE, as_json=as_json)
        case _:
            traceback.print_exception(error)
            report("defect", exits.MEANINGS[exits.DEFECT], exits.DEFECT, as_json=as_json)
    return exits.code_of(error)


def report(code: str, message: str, exit_code: int, *, as_json: bool, facts: dict[str, Any] | None = None) -> None:
    """Write an error to stderr, as one line or as JSON."""
    if as_json:
        told = {"code": code, "message": message, "exit": exit_code, **(facts or {})}
        click.echo(json.dumps({"error": told}, default=str), err=True)
    else:
        click.secho(f"milepost: {' '.join(message.split())} [{code}]", fg="red", err=True)
