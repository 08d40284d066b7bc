"""`milepost policy`: reading a policy file as a worker would, before one does."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import msgspec

from milepost.cli.exits import FOUND_DAMAGE, OK
from milepost.cli.options import app_option, json_option, policy_option
from milepost.cli.printing import plain, say, say_json, table
from milepost.cli.settings import NoPolicyGiven, Settings
from milepost.core.policy import VIEWS, Request, Rule, unreachable
from milepost.definitions.rules import InvalidPolicy, Policy, PolicyFile, in_force, load
from milepost.definitions.tools import Effect, Risk
from milepost.errors import MilepostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from milepost.app import App
    from milepost.definitions.tools import Tool

_ARGUMENT = re.compile(r"\bargs\.([A-Za-z_]\w*)")


@click.group()
def policy() -> None:
    """Check a policy file, and try it on calls. Every command of it takes --json."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One finding of `check`. A note is worth knowing; nothing is wrong."""

    state: Literal["wrong", "note"]
    rule: str
    key: str
    why: str


@policy.command()
@click.argument("file", required=False)
@policy_option
@app_option
@json_option
def check(file: str | None, policy: str | None, app: str | None, *, as_json: bool) -> None:
    """Read a policy file strictly, and look for rules that can never decide anything.

    With an App, rules are held against its tools: names that no tool has, arguments that none takes, and tools that no
    rule allows. Ends with code 1 where something is wrong.
    """
    settings = Settings(None, app, file or policy)
    path = _policy_of(settings)
    remarks: list[Remark] = []
    try:
        found = load(path)
    except InvalidPolicy as error:
        remarks = [Remark("wrong", one.rule, one.key, one.why) for one in error.problems]
    else:
        remarks = [*_unreachable(found), *(_against(found, settings.app) if settings.named_app else ())]
    wrong = any(one.state == "wrong" for one in remarks)
    told = in_force(PolicyFile(path))
    if as_json:
        say_json({"policy": asdict(told), "ok": not wrong, "findings": [asdict(one) for one in remarks]})
    else:
        if remarks:
            rows = [(one.state, one.rule or "-", one.key or "-", one.why) for one in remarks]
            table(("state", "rule", "key", "why"), rows, styled="state")
        told_ok = "Nothing is wrong." if not told.error else ""
        say(plain(f"{told}." if not told.error else f"{path} cannot be used: nothing would be allowed."))
        say("Something is wrong." if wrong else told_ok)
    click.get_current_context().exit(FOUND_DAMAGE if wrong else OK)


def _unreachable(found: Policy) -> Iterator[Remark]:
    for rule, other in unreachable(found.rules):
        why = f"it never decides: {other.name!r} says {other.answer} to everything that it fits"
        yield Remark("wrong", repr(rule.name), "", why)


def tools_of(app: App) -> dict[str, list[Tool[..., Any]]]:
    """Return an App's tools by name. Two workflows may each have one of the same name."""
    found: dict[str, list[Tool[..., Any]]] = {}
    for tools in [*(workflow.tools for workflow in app.workflows.values()), app.tools]:
        for tool in tools.values():
            if tool not in found.setdefault(tool.name, []):
                found[tool.name].append(tool)
    return found


def _against(found: Policy, app: App) -> Iterator[Remark]:
    listed = tools_of(app)
    for rule in found.rules:
        for pattern in rule.tools:
            if not any(Rule("", "deny", tools=(pattern,)).fits(Request(name)) for name in listed):
                yield Remark("wrong", repr(rule.name), "tool", f"{pattern!r} fits no tool of the App")
        for pattern in rule.workflows:
            names = [*app.workflows, *([""] if app.tools else [])]
            if not any(Rule("", "deny", workflows=(pattern,)).fits(Request("", workflow=name)) for name in names):
                yield Remark("wrong", repr(rule.name), "workflow", f"{pattern!r} fits no workflow of the App")
        yield from _arguments(rule, [tool for tools in listed.values() for tool in tools])
    for name, tools in sorted(listed.items()):
        fitting = [rule.answer for tool in tools for rule in found.rules if _may_fit(rule, tool)]
        if not {"allow", "ask"}.intersection(fitting):
            yield Remark("note", "", "tool", f"{name}: no rule allows it or asks for it, so it can never start")


def _may_fit(rule: Rule, tool: Tool[..., Any]) -> bool:
    """Say whether a rule may fit a tool for some tenant and workflow."""
    anywhere = Rule(rule.name, rule.answer, rule.tools, rule.effects, rule.risks, rule.scopes)
    return anywhere.fits(Request(tool.name, effect=tool.effect, risk=tool.risk, scopes=tool.scopes))


def _arguments(rule: Rule, tools: list[Tool[..., Any]]) -> Iterator[Remark]:
    fitting = [tool for tool in tools if _may_fit(rule, tool)]
    for argument in sorted(set(_ARGUMENT.findall(rule.when or ""))):
        if fitting and not any(argument in tool.arguments.names for tool in fitting):
            names = ", ".join(sorted(tool.name for tool in fitting))
            yield Remark("wrong", repr(rule.name), "when", f"no tool that it fits takes {argument} (it fits {names})")


# ---------------------------------------------------------------- trying it


class BadFixtures(MilepostError):
    """A file of calls to try a policy on cannot be read, or has a case that says what cannot be understood."""

    code = "bad_fixtures"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f'{path}: {why}. Write each call under [[case]], with tool = "…" and expect = "allow".')
        self.path = path
        self.why = why


class Case(msgspec.Struct, forbid_unknown_fields=True, rename={"effect": "class"}):
    """A call, and the verdict that is expected of it. What is not said is as for a tool that declares nothing."""

    tool: str
    expect: Literal["allow", "ask", "deny", "default"]
    name: str = ""
    rule: str | None = None
    version: str = "1"
    effect: str | None = None
    risk: str | None = None
    scopes: list[str] | None = None
    tenant: str = ""
    workflow: str = ""
    segment: str = ""
    principal: str = ""
    args: dict[str, Any] = {}
    authority: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    provenance: dict[str, Any] = {}


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    """A file of them."""

    case: list[Case]


@policy.command(name="test")
@click.argument("fixtures")
@policy_option
@app_option
@json_option
def try_out(fixtures: str, policy: str | None, app: str | None, *, as_json: bool) -> None:
    """Ask a policy about the calls of a TOML or JSON file, and compare its verdicts with what the file expects.

    With an App, class, risk and scopes are those of its tools where a call does not say them. Ends with code 1 where a
    verdict is another one. What the policy does not answer is `default`.
    """
    settings = Settings(None, app, policy)
    found = load(_policy_of(settings))
    listed = tools_of(settings.app) if settings.named_app else {}
    tried = [_tried(found, case, listed.get(case.tool, [])) for case in _cases(fixtures)]
    failed = [one for one in tried if not one["ok"]]
    if as_json:
        say_json({"policy": found.path, "label": found.label, "ok": not failed, "cases": tried})
    else:
        rows = [("ok" if one["ok"] else "wrong", one["name"], one["expected"], one["got"], one["why"]) for one in tried]
        table(("state", "call", "expected", "verdict", "why"), rows, styled="state")
        say(f"{len(tried) - len(failed)} of {len(tried)} as expected, under {plain(found.label)}.")
    click.get_current_context().exit(FOUND_DAMAGE if failed else OK)


def _cases(path: str) -> list[Case]:
    try:
        text = Path(path).read_text("utf-8")
        said = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        cases = msgspec.convert(said, Cases).case
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise BadFixtures(path, str(error)) from error
    if not cases:
        why = "it has no case"
        raise BadFixtures(path, why)
    for case in cases:
        for key, given, known in (("class", case.effect, get_args(Effect)), ("risk", case.risk, get_args(Risk))):
            if given is not None and given not in known:
                why = f"case {case.name or case.tool}: {key} {given!r} is none of {', '.join(known)}"
                raise BadFixtures(path, why)
    return cases


def _tried(found: Policy, case: Case, tools: list[Tool[..., Any]]) -> dict[str, Any]:
    verdict = found.decide(_request(case, tools[0] if tools else None))
    got = "default" if verdict.waits else verdict.answer
    said = f"rule {verdict.rule!r}" if verdict.rule else verdict.why
    return {
        "name": case.name or case.tool,
        "expected": case.expect if case.rule is None else f"{case.expect} by {case.rule}",
        "got": got,
        "rule": verdict.rule,
        "why": said,
        "expires_ms": verdict.expires_ms,
        "ok": got == case.expect and case.rule in {None, verdict.rule},
    }


def _request(case: Case, tool: Tool[..., Any] | None) -> Request:
    declared = Request(case.tool) if tool is None else Request(
        tool.name, effect=tool.effect, risk=tool.risk, scopes=tool.scopes
    )  # fmt: skip
    authority = {"principal": case.principal, **({"tenant": case.tenant} if case.tenant else {}), "scopes": []}
    views: Mapping[str, Any] = {
        "args": case.args,
        "authority": {**authority, **case.authority},
        "budget": {"left": {}, "cost": {}, **case.budget},
        "provenance": {"after": [], **case.provenance},
    }
    return Request(
        case.tool,
        case.version,
        case.effect or declared.effect,
        case.risk or declared.risk,
        declared.scopes if case.scopes is None else frozenset(case.scopes),
        case.tenant,
        case.workflow,
        case.segment,
        case.principal,
        {name: partial(views.__getitem__, name) for name in VIEWS},
    )


def _policy_of(settings: Settings) -> str:
    """Return the policy file that is meant: the named one, else the App's own. Raises NoPolicyGiven, AppNotFound."""
    if settings.named_policy is not None:
        return settings.named_policy
    if settings.named_app is not None and settings.app.policy is not None:
        return settings.app.policy
    raise NoPolicyGiven
