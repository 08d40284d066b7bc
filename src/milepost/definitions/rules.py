"""Policy files: rules written in TOML, read strictly, kept until the file changes.

    version = "2026-11-29"

    [[rule]]
    name = "small payments"
    verdict = "allow"
    tool = "charge"
    when = "args.cents <= 5000"

A file is taken whole or not at all. What is not understood (an unknown key, a condition that does not compile, a rule
without a verdict) makes it invalid, and under a file that is invalid, or cannot be read, nothing is allowed. Every
decision looks whether the file is another one than before, so that today's policy holds at once, also for runs that
wait.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, get_args

from milepost.core.duration import parse_ms
from milepost.core.policy import ANSWERS, Kind, Request, Rule, Verdict, combine
from milepost.definitions.comparisons import Comparisons
from milepost.definitions.conditions import About, Condition, Refused
from milepost.definitions.tools import Effect, Risk
from milepost.errors import MilepostError

KINDS_KEPT = 4_096
NAME_MAX = 64
_LISTS = {"tool": "tools", "class": "effects", "risk": "risks", "scopes": "scopes", "tenant": "tenants",
          "workflow": "workflows"}  # fmt: skip
_TEXTS = ("name", "verdict", "when", "why", "expires")
_CHOICES = {"class": get_args(Effect), "risk": get_args(Risk)}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a policy file: in which rule (empty: in none), at which key, and why."""

    rule: str
    key: str
    why: str

    def __str__(self) -> str:
        place = ": ".join(part for part in (f"rule {self.rule}" if self.rule else "", self.key) if part)
        return f"{place}: {self.why}" if place else self.why


class InvalidPolicy(MilepostError):
    """A policy file cannot be read, or says what cannot be honoured. Nothing is allowed under it."""

    code = "invalid_policy"

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        told = "; ".join(map(str, problems))
        super().__init__(f"{path}: {told}. Nothing is allowed under it. Mend it: milepost policy check {path}")
        self.path = path
        self.problems = tuple(problems)


class _Fitting(NamedTuple):
    """The rules that fit a kind of call, the views they name, and each one's verdict where comparisons answer them."""

    rules: tuple[Rule, ...]
    names: frozenset[str]
    quick: tuple[tuple[Verdict, Comparisons | None], ...] | None
    costs: bool  # whether one of them asks for the budget


COST = ("budget", "cost")
_REACHED = (("args",), ("budget", "left"), COST)


def _within_reach(comparisons: Comparisons) -> bool:
    """Say whether all that is compared are arguments, and amounts in units of the budget."""
    return all(part.path[:-1] in _REACHED for part in comparisons.parts)


class Policy:
    """The rules of one file, ready to be asked. `fingerprint` is the sha256 of its bytes, in hex."""

    def __init__(self, path: str, version: str, fingerprint: str, rules: Sequence[Rule]) -> None:
        self.path = path
        self.version = version
        self.fingerprint = fingerprint
        self.rules = tuple(rules)
        self.conditions = {rule.name: Condition(rule.when) for rule in rules if rule.when is not None}
        self._fitting: dict[Kind, _Fitting] = {}
        self.label = f"{version}+{fingerprint[:16]}"  # how it stands in the record

    def decide(self, request: Request) -> Verdict:
        """Return the verdict on a call. Never raises for what a rule, a view or the library does."""
        rules, names, *_ = self._fitting.get(request.kind) or self._find(request)
        about = About(request, names) if names else None

        def holds(rule: Rule) -> bool | str:
            nonlocal about
            about = about or About(request, ())
            return self.conditions[rule.name].holds(about)

        return combine(rules, holds, self.label)

    def quickly(self, kind: Kind, find: Callable[[tuple[str, ...]], Any]) -> Verdict | None:
        """Return what `decide` would, for a kind of call that it was asked about before; None where that has to say it.

        So it is where a person has to be asked, where no rule holds, and where one needs more than to compare what
        `find` finds with a constant: an argument, or an amount in a unit of the budget. None found is not there.
        """
        fitting = self._fitting.get(kind)
        if fitting is None or fitting.quick is None:
            return None
        if fitting.costs:
            try:
                find(COST)
            except Exception:  # noqa: BLE001  a user's own function; why that cannot be said is said by `decide`
                return None
        allowed = None
        for verdict, comparisons in fitting.quick:
            if comparisons is not None:
                held = comparisons.hold(find)
                if held is None:
                    return None
                if not held:
                    continue
            if verdict.answer == "deny":
                return verdict
            allowed = allowed or verdict
        return allowed

    def _find(self, request: Request) -> _Fitting:
        rules = tuple(rule for rule in self.rules if rule.fits(request))
        names = frozenset[str]().union(*(self.conditions[rule.name].names for rule in rules if rule.when is not None))
        if len(self._fitting) >= KINDS_KEPT:  # tenants come and go
            self._fitting.clear()
        self._fitting[request.kind] = found = _Fitting(rules, names, self._quick(rules), "budget" in names)
        return found

    def _quick(self, rules: Sequence[Rule]) -> tuple[tuple[Verdict, Comparisons | None], ...] | None:
        found = []
        for rule in rules:
            plain = None if rule.when is None else self.conditions[rule.name].plain
            if rule.answer == "ask" or (rule.when is not None and (plain is None or not _within_reach(plain))):
                return None
            found.append((Verdict(rule.answer, rule.name, rule.why, self.label), plain))
        return tuple(found)


class PolicyFile:
    """A policy as an app is given it: a path, read again whenever the file is another one than before."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.turns = 0
        self._seen: object = None
        self._read: Policy | InvalidPolicy | None = None

    @property
    def label(self) -> str:
        """How today's policy stands in the record; one that cannot be read is `unreadable`."""
        found = self.current()
        return "unreadable" if isinstance(found, InvalidPolicy) else found.label

    def current(self) -> Policy | InvalidPolicy:
        """Return today's policy, or why there is none. `turns` counts how often it became another one."""
        try:
            stat = os.stat(self.path)  # noqa: PTH116  each decision looks at it, and a Path takes half as long again
            seen: object = (stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_dev)
        except (OSError, ValueError) as error:
            seen = str(error)
        if self._read is None or seen != self._seen:
            self._seen = seen
            self.turns += 1
            try:
                self._read = load(self.path)
            except InvalidPolicy as error:
                self._read = error
        return self._read

    def decide(self, request: Request) -> Verdict:
        """Return the verdict of today's policy: the default denial where there is none that can be read."""
        return self.decided(self.current(), request)

    @staticmethod
    def decided(policy: Policy | InvalidPolicy, request: Request) -> Verdict:
        """Return the verdict of what was `current`."""
        if isinstance(policy, InvalidPolicy):
            return Verdict("deny", "", str(policy.problems[0]), "", explicit=False)
        return policy.decide(request)


@dataclass(frozen=True, slots=True)
class InForce:
    """Which policy decides now, for people: `error` says why a file that was named cannot be used."""

    name: str
    path: str = ""
    version: str = ""
    fingerprint: str = ""
    rules: int = 0
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"{self.path} cannot be used, so nothing is allowed: {self.error}"
        if not self.path:
            return f"{self.name}: what its tool's scopes and approval= ask for, and nothing else, stops a call"
        return f"{self.path}, version {self.version}, {self.rules} rules, fingerprint {self.fingerprint[:16]}"


def in_force(file: PolicyFile | None) -> InForce:
    """Describe the policy in force: the file's, or the default where none is named."""
    if file is None:
        return InForce("default")
    policy = file.current()
    name = Path(file.path).stem
    if isinstance(policy, InvalidPolicy):
        return InForce(name, file.path, error="; ".join(map(str, policy.problems)))
    return InForce(name, file.path, policy.version, policy.fingerprint, len(policy.rules))


# ---------------------------------------------------------------- reading


def load(path: str | os.PathLike[str]) -> Policy:
    """Read a policy file. Raises InvalidPolicy, with everything that is wrong with it."""
    place = os.fspath(path)
    try:
        data = Path(place).read_bytes()
        said = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise InvalidPolicy(place, [Problem("", "", f"it cannot be read: {error.strerror or error}")]) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InvalidPolicy(place, [Problem("", "", f"it is no TOML: {error}")]) from error
    reader = _Reader()
    version, rules = reader.file(said)
    if reader.problems:
        raise InvalidPolicy(place, reader.problems)
    return Policy(place, version, sha256(data).hexdigest(), rules)


class _Reader:
    """Turns what TOML says into rules, and notes what is wrong instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.rule = ""

    def file(self, said: Mapping[str, Any]) -> tuple[str, list[Rule]]:
        for key in sorted(set(said) - {"version", "rule"}):
            self._wrong(key, "there is no such key (there are version and [[rule]])")
        version = said.get("version")
        if not isinstance(version, str) or not version.strip() or "+" in version or len(version) > NAME_MAX:
            how = f"as text without + and of at most {NAME_MAX} characters"
            self._wrong("version", f'{version!r}: say which version this is, {how}: version = "1"')
        tables = said.get("rule", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._wrong("rule", "write each rule under a heading [[rule]], with two pairs of brackets")
            tables = []
        rules = [self._rule(table, number) for number, table in enumerate(tables, start=1)]
        self.rule = ""
        names = [rule.name for rule in rules]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._wrong("name", f"two rules are named {name!r}: the record names them, so each needs its own")
        return str(version), rules

    def _wrong(self, key: str, why: str) -> None:
        self.problems.append(Problem(self.rule, key, why))

    def _rule(self, table: Mapping[str, Any], number: int) -> Rule:
        name = table.get("name")
        self.rule = repr(name) if isinstance(name, str) and name else f"number {number}"
        for key in sorted(set(table) - {*_LISTS, *_TEXTS}):
            self._wrong(key, f"there is no such key (there are {', '.join([*_TEXTS, *_LISTS])})")
        texts = {key: table[key] for key in _TEXTS if key in table and self._is_text(key, table[key])}
        for key in ("name", "verdict"):
            if key not in table:
                self._wrong(key, "is missing")
        answer = texts.get("verdict", "deny")
        if answer not in ANSWERS:
            self._wrong("verdict", f"{answer!r} is none of {', '.join(ANSWERS)}")
            answer = "deny"
        expires = self._expires(answer, texts.get("expires"))
        lists = {_LISTS[key]: self._list(key, table[key]) for key in _LISTS if key in table}
        when = texts.get("when")
        if when is not None:
            self._condition(when)
        named = texts.get("name", f"number {number}")
        return Rule(named, answer, when=when, why=texts.get("why", ""), expires_ms=expires, **lists)

    def _is_text(self, key: str, value: Any) -> bool:
        if not isinstance(value, str) or not value.strip():
            self._wrong(key, f"{value!r} is no text")
            return False
        if key == "name" and len(value) > NAME_MAX:
            self._wrong(
                key, f"it has {len(value)} characters, and {NAME_MAX} is the most: the record names it each time"
            )
        return True

    def _list(self, key: str, value: Any) -> tuple[str, ...]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            self._wrong(key, f'{value!r}: write one text, or a list of texts such as ["one", "two"]')
            return ("?",)
        for text in texts:
            if key in _CHOICES and text not in _CHOICES[key]:
                self._wrong(key, f"{text!r} is none of {', '.join(_CHOICES[key])}")
            elif key in {"tool", "workflow"} and set("?[]{}|\\ ,") & set(text):
                self._wrong(key, f"{text!r} fits no {key}: * stands for any text, and nothing else is special")
        return tuple(texts)

    def _expires(self, answer: str, span: str | None) -> int | None:
        if span is None:
            return None
        if answer != "ask":
            self._wrong("expires", 'only a rule with verdict = "ask" has it: it bounds how long an approval holds')
        try:
            ms = parse_ms(span)
        except ValueError as error:
            self._wrong("expires", str(error))
            return None
        if not ms:
            self._wrong("expires", "is zero: no approval could ever be used")
        return ms

    def _condition(self, source: str) -> None:
        try:
            Condition(source)
        except Refused as error:
            self._wrong("when", str(error))
