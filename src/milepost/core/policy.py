"""Explicit rules over what a tool may do, and how the answers of several rules become one verdict.

A rule says *allow*, *ask* (a person) or *deny*, names the calls that it fits by what their tool declares and who the
run acts for, and may have a condition on the call itself. What a condition means is not known here: whoever can answer
it hands the answer in.

How answers combine, in this order:

  1. a rule that fits, and holds, and says deny: denied. Nothing else can change that.
  2. a rule that fits and cannot be answered (a field is missing, a comparison of unlike things): denied *by default*,
     whatever the other rules say. So the order of rules in a file never matters, and a rule is never skipped.
  3. a rule that holds and says ask: a person is asked.
  4. a rule that holds and says allow: allowed.
  5. nothing held: denied by default.

The two denials are not the same. A rule that says deny is an answer, and final for that call. The default is the lack
of an answer: the call waits until there is one, and nothing of the run is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Answer = Literal["allow", "ask", "deny"]
ANSWERS: tuple[Answer, ...] = ("allow", "ask", "deny")
VIEWS = ("args", "authority", "budget", "provenance")
ANY = "*"


class Request(msgspec.Struct, frozen=True, gc=False):
    """One call that is about to be made, as rules see it.

    `effect` is the tool's class; `scopes` are those that the tool declares. `views` gives what conditions are about, by
    the names in VIEWS, and is asked only for those that a condition names.
    """

    tool: str
    version: str = "1"
    effect: str = "irreversible"
    risk: str = "low"
    scopes: frozenset[str] = frozenset()
    tenant: str = ""
    workflow: str = ""
    segment: str = ""
    principal: str = ""
    views: Mapping[str, Callable[[], Any]] = {}

    @property
    def kind(self) -> Kind:
        """What decides which rules fit: the same for very many calls."""
        return (self.tool, self.effect, self.risk, self.scopes, self.tenant, self.workflow)


Kind = tuple[str, str, str, frozenset[str], str, str]


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What the rules say of one call.

    `rule` names the rule that decided, empty where none did; `policy` is its policy's version and fingerprint. A denial
    without `explicit` is the default. `expires_ms` bounds how long an approval that a rule asks for may be used.
    """

    answer: Answer
    rule: str = ""
    why: str = ""
    policy: str = ""
    explicit: bool = True
    expires_ms: int | None = None

    @property
    def waits(self) -> bool:
        """Whether the call must wait until there is another answer."""
        return self.answer == "deny" and not self.explicit


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. An empty key fits everything. In `tools`, `scopes`, `tenants` and `workflows` a `*` is any text.

    `scopes` are about what the tool declares. A rule that allows fits where it names *every* scope of the tool, one
    that asks or denies where it names *any* of them: so that naming too little never lets more through.
    """

    name: str
    answer: Answer
    tools: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    when: str | None = None
    why: str = ""
    expires_ms: int | None = None

    def fits(self, request: Request) -> bool:
        """Say whether this rule is about this call, before its condition is looked at."""
        return (
            _named(self.tools, request.tool)
            and (not self.effects or request.effect in self.effects)
            and (not self.risks or request.risk in self.risks)
            and self._fits_scopes(request.scopes)
            and _named(self.tenants, request.tenant)
            and _named(self.workflows, request.workflow)
        )

    def _fits_scopes(self, declared: frozenset[str]) -> bool:
        if not self.scopes:
            return True
        each = [_named(self.scopes, scope) for scope in declared]
        return bool(each) and (all(each) if self.answer == "allow" else any(each))

    def covers(self, other: Rule) -> bool:
        """Say whether this rule fits, and holds for, every call that the other one fits and holds for.

        It may miss some that do; it never claims one that does not.
        """
        return (
            self.when in {None, other.when}
            and _covers(self.tools, other.tools)
            and _within(self.effects, other.effects)
            and _within(self.risks, other.risks)
            and self._covers_scopes(other)
            and _covers(self.tenants, other.tenants)
            and _covers(self.workflows, other.workflows)
        )

    def _covers_scopes(self, other: Rule) -> bool:
        if self.answer == "allow" and other.answer != "allow" and self.scopes:
            return False  # it wants every scope named, the other one is content with any
        return _covers(self.scopes, other.scopes)


def combine(rules: Iterable[Rule], holds: Callable[[Rule], bool | str], policy: str = "") -> Verdict:
    """Return the verdict of the rules that fit a call.

    `holds` answers the condition of a rule: whether it holds, or why that cannot be said.
    """
    asking: list[Rule] = []
    allowing: Rule | None = None
    unanswered = ""
    for rule in rules:
        answer = True if rule.when is None else holds(rule)
        if isinstance(answer, str):
            unanswered = unanswered or f"rule {rule.name!r} cannot be answered: {answer}"
        elif not answer:
            continue
        elif rule.answer == "deny":
            return Verdict("deny", rule.name, rule.why, policy)
        elif rule.answer == "ask":
            asking.append(rule)
        else:
            allowing = allowing or rule
    if unanswered:
        return Verdict("deny", "", unanswered, policy, explicit=False)
    if asking:
        spans = [rule.expires_ms for rule in asking if rule.expires_ms is not None]
        return Verdict("ask", asking[0].name, asking[0].why, policy, expires_ms=min(spans, default=None))
    if allowing is not None:
        return Verdict("allow", allowing.name, allowing.why, policy)
    return Verdict("deny", "", "no rule allows it", policy, explicit=False)


def unreachable(rules: Sequence[Rule]) -> list[tuple[Rule, Rule]]:
    """Return each rule that can never decide anything, with the rule that always decides before it.

    That other is one whose answer is stronger (deny beats ask beats allow) and which covers it. Of two denials that
    cover each other it is the later one that decides nothing.
    """
    found = []
    for place, rule in enumerate(rules):
        for other_place, other in enumerate(rules):
            stronger = ANSWERS.index(other.answer) > ANSWERS.index(rule.answer)
            same = other.answer == rule.answer == "deny" and other_place != place
            if same and rule.covers(other):
                same = other_place < place
            if (stronger or same) and other.covers(rule):
                found.append((rule, other))
                break
    return found


@lru_cache(maxsize=4_096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split(ANY)), re.DOTALL)


def _matches(pattern: str, text: str) -> bool:
    return pattern in {ANY, text} or (ANY in pattern and _pattern(pattern).fullmatch(text) is not None)


def _named(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(_matches(pattern, text) for pattern in patterns)


def _covers(wider: tuple[str, ...], narrower: tuple[str, ...]) -> bool:
    """Say whether what `narrower` names is named by `wider`. Only `*` matches `*`, so patterns are texts here."""
    if not wider:
        return True
    return bool(narrower) and all(_named(wider, pattern) for pattern in narrower)


def _within(wider: tuple[str, ...], narrower: tuple[str, ...]) -> bool:
    return not wider or (bool(narrower) and set(narrower) <= set(wider))
