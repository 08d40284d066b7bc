"""The repository as the tidy tests see it: which files it has, what they say, and where a rule was broken."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT_SUFFIXES = {
    "",
    ".cfg",
    ".in",
    ".ini",
    ".json",
    ".lock",
    ".md",
    ".py",
    ".pyi",
    ".sh",
    ".sql",
    ".toml",
    ".txt",
    ".yaml",
}


@dataclass(frozen=True, order=True)
class Place:
    """A line of a file; printed as editors and terminals understand it."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@functools.cache
def files() -> tuple[str, ...]:
    """Name every file that belongs to the repository, or would if it were added now: ignored files do not count."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return tuple(sorted(name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()))


def text_files() -> list[str]:
    """Name the files that a person reads."""
    return [name for name in files() if Path(name).suffix in TEXT_SUFFIXES]


def python_files(*folders: str) -> list[str]:
    """Name the Python files below the given folders; every Python file when none is given."""
    inside = tuple(f"{folder}/" for folder in folders)
    return [name for name in files() if name.endswith(".py") and (not inside or name.startswith(inside))]


def text(name: str) -> str:
    """Read one file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def tree(name: str) -> ast.Module:
    """Parse one Python file of the repository."""
    return ast.parse(text(name), filename=name)


def imports(name: str) -> Iterator[tuple[int, str]]:
    """List what a file imports, by line, as the full dotted name."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def calls(name: str) -> Iterator[tuple[int, str]]:
    """List what a file calls, by line, as it is written there: `time.sleep`, `eval`."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def strings(name: str) -> Iterator[tuple[int, str]]:
    """List the string constants of a file, by line, docstrings left out; of an f-string, its literal pieces."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def report(places: list[Place]) -> str:
    """Lay the broken places out, one a line."""
    return "\n" + "\n".join(str(place) for place in sorted(places))
