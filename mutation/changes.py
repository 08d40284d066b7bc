"""What a mutant changes, said in one line, and which changes concern nothing but words.

mutmut numbers the mutants of a function, so a name like `x_lapsed__mutmut_3` means another mutant as soon as the
function is edited. A mutant is therefore known here by its function and by its change: the changed line as Python
prints it, with what was and what is instead of it in brackets, `return now [>=→>] lease_until`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

SEPARATOR = "ǁ"  # between class and method, in the names that mutmut makes
MUTANT = re.compile(r"^(?P<function>x.+)__mutmut_(?P<number>orig|\d+)$")
TOKEN = re.compile(r"\w+|\s+|[<>=!]=|<<|>>|//|\*\*|.")
# Words for people have a space between them; codes, names, keys and separators do not.
WORDS = re.compile(r"\w[,;:)']* +[(']*\w")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Mutant:
    """One mutant: its module below the package, its function, and its change."""

    module: str
    function: str
    change: str

    def __str__(self) -> str:
        return f"{self.module} {self.function}: {self.change}"


@dataclass(frozen=True)
class Found:
    """A mutant in a file that mutmut wrote: whether only words changed, and the lines of the original that did."""

    mutant: Mutant
    words: bool
    lines: tuple[int, int]


def mutants_in(module: str, mutated: str) -> Iterator[tuple[str, Found]]:
    """Yield what is in a file that mutmut wrote, by its name of a mutant."""
    text = mutated.splitlines()
    originals: dict[str, Function] = {}
    seen: dict[Mutant, int] = {}
    for function in _functions(ast.parse(mutated)):
        named = MUTANT.match(function.name)
        if named is None:
            continue
        name = function.name
        function.name = _plain(named["function"])
        if named["number"] == "orig":
            originals[named["function"]] = function
            continue
        original = originals[named["function"]]
        mutant = Mutant(module, function.name, change(ast.unparse(original), ast.unparse(function)))
        seen[mutant] = times = seen.get(mutant, 0) + 1
        if times > 1:  # the same line stands in the function more than once
            mutant = Mutant(module, function.name, f"{mutant.change} ({times})")
        yield name, Found(mutant, only_words(original, function), _changed(text, original, function))


def _changed(text: list[str], original: Function, mutated: Function) -> tuple[int, int]:
    """Return the first and the last line of those statements of the original that the mutant changes.

    A test that runs none of them cannot tell the two apart. Where no statement is found, it is the whole function.
    """
    before = text[original.lineno : original.end_lineno]  # without the first line, which has the name
    after = text[mutated.lineno : mutated.end_lineno]
    start, end = _common(before, after)
    first, last = original.lineno + 1 + start, original.lineno + max(len(before) - end, start + 1)
    within = [
        (top, bottom)
        for node in ast.walk(original)
        if node is not original
        for top, bottom in [_own_lines(node)]
        if top <= last and bottom >= first
    ]
    whole = original.lineno, original.end_lineno or original.lineno
    return (min(top for top, _ in within), max(bottom for _, bottom in within)) if within else whole


def _own_lines(node: ast.AST) -> tuple[int, int]:
    """Return the lines of a statement without those that stand below it; none for what is no statement."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.body[0].lineno - 1
    if isinstance(node, ast.Match):
        return node.lineno, node.cases[0].pattern.lineno - 1
    if not isinstance(node, ast.stmt | ast.ExceptHandler):
        return 0, -1
    body = getattr(node, "body", None)
    return node.lineno, (body[0].lineno - 1 if body else node.end_lineno or node.lineno)


def _functions(module: ast.Module) -> Iterator[Function]:
    for node in module.body:
        for inside in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef):
                yield inside


def _plain(mangled: str) -> str:
    if mangled.startswith(f"x{SEPARATOR}"):
        _, class_name, method = mangled.split(SEPARATOR)
        return f"{class_name}.{method}"
    return mangled.removeprefix("x_")


def change(was: str, now: str) -> str:
    """Return the changed lines with the difference in brackets."""
    before, after = was.splitlines(), now.splitlines()
    start, end = _common(before, after)
    left = [line.strip() for line in before[start : len(before) - end]]
    right = [line.strip() for line in after[start : len(after) - end]]
    old, new = TOKEN.findall(" / ".join(left)), TOKEN.findall(" / ".join(right))
    head, tail = _common(old, new)
    middle = "".join(old[head : len(old) - tail]), "".join(new[head : len(new) - tail])
    return f"{''.join(old[:head])}[{'→'.join(middle)}]{''.join(old[len(old) - tail :])}"


def _common(one: list[str], other: list[str]) -> tuple[int, int]:
    """Return how many items at the start and at the end are the same; none is counted twice."""
    most = min(len(one), len(other))
    start = next((place for place in range(most) if one[place] != other[place]), most)
    end = next((place for place in range(most - start) if one[-1 - place] != other[-1 - place]), most - start)
    return start, end


def only_words(original: ast.AST, mutated: ast.AST) -> bool:
    """Say whether all that changed is a text for people: other words, or none.

    What a message says is not pinned by tests, unless a test has a reason to; that there is one is.
    """
    differences = list(_differences(original, mutated))
    texts = (ast.Constant, ast.JoinedStr)
    return len(differences) == 1 and all(_words(was) and isinstance(now, texts) for was, now in differences)


def _differences(one: object, other: object) -> Iterator[tuple[object, object]]:
    """Yield the smallest parts that differ; a text that is put together from several parts is one part."""
    parts, counterparts = _parts(one), _parts(other)
    if parts and type(one) is type(other) and len(parts) == len(counterparts):
        for part, counterpart in zip(parts, counterparts, strict=True):
            yield from _differences(part, counterpart)
    elif _said(one) != _said(other):
        yield one, other


def _parts(node: object) -> list[object]:
    if isinstance(node, ast.Constant) or _words(node):
        return []
    if isinstance(node, ast.AST):
        return [getattr(node, name) for name in node._fields]
    return node if isinstance(node, list) else []


def _said(node: object) -> str:
    if isinstance(node, list):
        return f"[{', '.join(map(_said, node))}]"
    return ast.dump(node) if isinstance(node, ast.AST) else repr(node)


def _words(node: object) -> bool:
    if isinstance(node, ast.JoinedStr):
        filled = (str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        return WORDS.search("".join(filled)) is not None
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and WORDS.search(node.value) is not None
