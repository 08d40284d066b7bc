"""What a program lacks before it should act in production. Each reason has a code that does not change.

  durability              the store does not stand as a commit needs it (doctor says what)
  no_policy               no file of rules decides; scopes, `approval=` and budgets do
  policy_unreadable       a file is named and cannot be used: everything would wait
  policy_open             others may write the policy file: they make the rules
  unsafe_tool             an irreversible tool that nobody is asked about: neither its approval= nor a rule of a policy
  missing_reconciler      what a lost answer did cannot be found out, so a person is woken for each one
  no_visibility_bound     it can be found out whether it happened, but never that it did not
  no_key_ttl              a keyed tool whose provider promises nothing: its key is never sent again
  no_seal                 a cut tail or an older copy of the store would not be noticed
  unsigned_approvals      whoever can write to the store can approve
  secrets_in_environment  secrets come from the process's environment, where a crash dump and each child see them

None of them is wrong by itself. In production each is to be decided, so a worker with `--production` starts only where
there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.errors import Refused

if TYPE_CHECKING:
    from milepost.definitions.tools import Tool
    from milepost.stores.api import Check

DURABILITY = ("library", "journal mode", "synchronous", "migrations", "modes", "disk")


@dataclass(frozen=True, slots=True)
class Unready:
    """One reason: its code, what it is about (a tool, a check, or nothing), why, and what to do."""

    code: str
    about: str
    why: str
    todo: str

    def __str__(self) -> str:
        return f"{self.code}{f' ({self.about})' if self.about else ''}: {self.why}"


@dataclass(frozen=True, slots=True)
class Setup:
    """How a program is set up: `policy` is None, or "" for one that can be used, or why it cannot."""

    tools: tuple[Tool[..., Any], ...]
    policy: str | None
    sealed: bool
    signed: bool
    own_secrets: bool
    policy_open: bool = False


class NotReady(Refused):
    """The program lacks what production needs; `reasons` are all of it."""

    code = "not_ready"

    def __init__(self, reasons: Iterable[Unready]) -> None:
        self.reasons = tuple(reasons)
        lines = "\n".join(f"  {reason}. {reason.todo}" for reason in self.reasons)
        super().__init__(f"not ready for production, {len(self.reasons)} reasons:\n{lines}")


def unready(setup: Setup, checks: Iterable[Check]) -> list[Unready]:
    """Return every reason why a program should not act in production yet; `checks` are those of its store."""
    found = [Unready("durability", one.name, one.found, one.todo) for one in checks if _matters(one)]
    found += _rules(setup)
    for tool in setup.tools:
        found += _of_tool(tool, ruled=setup.policy == "")
    if not setup.sealed:
        todo = "milepost seal --to FILE, kept elsewhere, then worker --seal FILE"
        found.append(Unready("no_seal", "", "a rollback to an older copy would not be noticed", todo))
    if not setup.signed:
        todo = "milepost keys new NAME, milepost keys trust FILE, then worker --trust FILE"
        found.append(Unready("unsigned_approvals", "", "whoever can write to the store can approve", todo))
    if not setup.own_secrets:
        todo = "give the App a provider: App(…, secrets=…)"
        found.append(Unready("secrets_in_environment", "", "each child and each crash dump sees them", todo))
    return found


def _matters(check: Check) -> bool:
    return not check.ok and check.name in DURABILITY


def _rules(setup: Setup) -> Iterator[Unready]:
    if setup.policy is None:
        yield Unready("no_policy", "", "no file of rules decides", "App(policy=FILE) or worker --policy FILE")
    elif setup.policy:
        yield Unready("policy_unreadable", "", setup.policy, "milepost policy check FILE")
    if setup.policy_open:
        todo = "close it: chmod go-w FILE; best is a folder that neither worker nor agent can write to"
        yield Unready("policy_open", "", "others may write the policy file: they make the rules", todo)


def _of_tool(tool: Tool[..., Any], *, ruled: bool) -> Iterator[Unready]:
    asked = tool.approval is not False or ruled
    if tool.effect == "irreversible" and not asked:
        todo = "declare approval=, or ask by a policy"
        yield Unready("unsafe_tool", tool.name, "it is irreversible and nobody is asked", todo)
    if tool.effect == "keyed" and tool.key_ttl_ms is None:
        yield Unready("no_key_ttl", tool.name, "how long the key is known is not said", "declare key_ttl=")
    if tool.effect in {"keyed", "absolute", "queryable"}:
        if tool.reconciler is None:
            todo = f"write @{tool.name}.reconcile"
            yield Unready("missing_reconciler", tool.name, "what a lost answer did cannot be found out", todo)
        elif tool.visible_ms is None:
            todo = "declare visible_within="
            yield Unready("no_visibility_bound", tool.name, "not found never counts as did not happen", todo)
