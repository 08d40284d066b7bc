"""What this repository refuses, each with the reason in its message; every rule is shown to see what it forbids."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, Place, calls, imports, python_files, report, strings, text, text_files, tree

# The bans name what they look for in pieces, so that this file is no find of its own.
MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(home|root|work|Users)/[\w.]")
INDEX_HOST = re.compile(
    "|".join(map(re.escape, ("pypi" + ".org", "python" + "hosted", "npmjs" + ".org", "debian" + ".org")))
)
LEFT_UNDONE = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
SECRET = re.compile(r"-----BEGIN [A-Z ]*PRIVATE " + r"KEY-----|\bAKIA[0-9A-Z]{16}\b|\bsk_live_\w+")

CODE_FROM_DATA = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "shelve",
    "marshal",
    "importlib",
    "imp",
    "runpy",
    "code",
    "pydoc",
}
# Where it is decided whether bytes, a signature, a key or a word are believed.
GUARDS = {
    "encryption", "hiding", "guarded", "keys", "signatures", "ed25519", "sealing", "transfer", "vouching", "chain",
    "codec", "approval", "answers", "words", "authority", "policy", "budget", "pools", "statement", "messages",
    "outcome",
}  # fmt: skip
CODE_FROM_DATA_CALLS = {"eval", "exec", "compile", "__import__", "globals"}
VAGUE_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "manager",
    "managers",
    "base",
    "misc",
    "shared",
    "stuff",
    "lib",
}
SQL = re.compile(
    r"^\s*(select|insert|update|delete|replace|create|drop|alter|with|explain|vacuum|attach|detach|reindex|analyze|truncate)\b"
    r".*\b(from|into|set|table|index|trigger|view|values|select|schema|as)\b",
    re.IGNORECASE | re.DOTALL,
)
NOT_RUN = re.compile(r"(^|\.)(skip|skipif|xfail|importorskip|skipTest|expectedFailure)$")


def uses(name: str, modules: set[str]) -> list[tuple[int, str]]:
    """Return the imports from these modules; `importlib.resources` only reads a package's own files."""
    return [
        (line, dotted)
        for line, dotted in imports(name)
        if dotted.split(".")[0] in modules and not dotted.startswith("importlib.resources")
    ]


def attributes(name: str) -> list[tuple[int, str]]:
    return [(node.lineno, ast.unparse(node)) for node in ast.walk(tree(name)) if isinstance(node, ast.Attribute)]


def found_in_text(pattern: re.Pattern[str], what: str) -> list[Place]:
    return [
        Place(name, number, f"{what}: {line.strip()[:80]}")
        for name in text_files()
        if name != "LICENSE"
        for number, line in enumerate(text(name).splitlines(), start=1)
        if pattern.search(line)
    ]


def test_what_is_loaded_from_a_store_can_never_become_code() -> None:
    trusted_with_data = python_files("src/milepost/core", "src/milepost/stores")
    found = [
        Place(name, line, f"{dotted} turns data into code")
        for name in trusted_with_data
        for line, dotted in [
            *uses(name, CODE_FROM_DATA),
            *((line, called) for line, called in calls(name) if called in CODE_FROM_DATA_CALLS),
        ]
    ]

    assert trusted_with_data
    assert not found, report(found)


def test_nothing_in_the_package_pickles_or_evaluates() -> None:
    banned = CODE_FROM_DATA - {"importlib"}  # the command line loads the App that a person names: module:app
    found = [
        Place(name, line, f"{dotted} turns data into code")
        for name in python_files("src")
        for line, dotted in [
            *uses(name, banned),
            *((line, called) for line, called in calls(name) if called in {"eval", "exec", "__import__"}),
        ]
    ]

    assert not found, report(found)


def test_what_keeps_an_attacker_out_is_no_assertion() -> None:
    """With `python -O` assertions are gone; whoever relies on them relies on nothing then."""
    guards = python_files("src/milepost/core", "src/milepost/stores", "src/milepost/operations")
    found = [
        Place(name, node.lineno, "an assertion refuses nothing under -O: raise an error of ours")
        for name in guards
        if Path(name).stem in GUARDS
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Assert)
    ]

    assert {Path(name).stem for name in guards} >= GUARDS
    assert not found, report(found)


def test_the_package_uses_one_sqlite_library() -> None:
    found = [
        Place(
            name, line, "the standard library's SQLite beside apsw's breaks POSIX locks, and older ones corrupt the log"
        )
        for name in python_files("src")
        for line, _ in uses(name, {"sqlite3"})
    ]

    assert not found, report(found)


def test_sql_lives_in_sql_files() -> None:
    places = python_files("src/milepost/core", "src/milepost/stores", "src/milepost/runtime", "src/milepost/operations")
    found = [
        Place(name, line, f"SQL in Python: {' '.join(string.split())[:60]}")
        for name in places
        for line, string in strings(name)
        if SQL.search(string)
    ]

    assert not found, report(found)


def test_no_test_sleeps() -> None:
    found = [
        Place(name, line, f"{called}: poll with tests.polling.eventually, or use a manual clock")
        for name in python_files("tests")
        if name != "tests/polling.py"
        for line, called in calls(name)
        if called in {"time.sleep", "sleep"}
    ]

    assert not found, report(found)


def test_no_test_mocks_our_own_code() -> None:
    found = [
        Place(name, line, f"{dotted}: use the real part")
        for name in python_files("src", "tests")
        for line, dotted in imports(name)
        if dotted.startswith("unittest.mock") or dotted.split(".")[0] in {"mock", "pytest_mock"}
    ]

    assert not found, report(found)


def test_every_test_runs() -> None:
    found = [
        Place(name, line, f"{written}: a test that is not run proves nothing")
        for name in python_files("tests")
        for line, written in [*attributes(name), *calls(name)]
        if NOT_RUN.search(written)
        and written.split(".")[0] in {"pytest", "unittest", "skip", "skipif", "xfail", "importorskip"}
    ]

    assert not found, report(found)


def test_every_test_name_is_a_sentence() -> None:
    found = [
        Place(name, node.lineno, f"{node.name}: say what it proves")
        for name in python_files("tests")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if len(node.name.split("_")) < 4
    ]

    assert not found, report(found)


def test_modules_are_named_by_what_they_are() -> None:
    found = [
        Place(name, 1, "the name says nothing")
        for name in python_files("src", "tests", "benchmarks", "evaluation", "faults", "mutation", "soak", "examples")
        if VAGUE_NAMES & set(Path(name).with_suffix("").parts)
    ]

    assert not found, report(found)


def test_no_lazy_import_hides_a_cycle() -> None:
    found = [
        Place(name, node.lineno, "pass it in, or import it at the top")
        for name in python_files("src")
        if not name.startswith(
            "src/milepost/cli/"
        )  # there, help stays quick: rich and the surfaces are imported when used
        for function in ast.walk(tree(name))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and "milepost" in ast.unparse(node)
    ]

    assert not found, report(found)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (MACHINE_PATH, "a path of one machine"),
        (INDEX_HOST, "the address of a package index"),
        (LEFT_UNDONE, "work left undone"),
        (SECRET, "a secret"),
    ],
    ids=["machine paths", "index hosts", "work left undone", "secrets"],
)
def test_no_file_says_what_must_not_be_said(pattern: re.Pattern[str], what: str) -> None:
    found = found_in_text(pattern, what)

    assert not found, report(found)


def test_every_rule_that_is_switched_off_says_why() -> None:
    lint = tomllib.loads(text("pyproject.toml"))["tool"]["ruff"]["lint"]
    codes = [*lint["ignore"], *(code for listed in lint["per-file-ignores"].values() for code in listed)]
    lines = [line.strip() for line in text("pyproject.toml").splitlines()]
    unexplained = [code for code in codes if not re.search(rf'"{code}",\s+# \S', "\n".join(lines))]

    assert lint["select"] == ["ALL"]
    # The five D10x of the tests share one reason, which stands beside the first.
    assert set(unexplained) <= {"D101", "D102", "D103", "D104"}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (MACHINE_PATH, "see /" + "home/someone/notes"),
        (MACHINE_PATH, '"/' + 'work/main"'),
        (INDEX_HOST, "--index-url https://" + "pypi" + ".org/simple"),
        (LEFT_UNDONE, "# TO" + "DO: later"),
        (SECRET, "-----BEGIN PRIVATE " + "KEY-----"),
        (SQL, "SELECT id FROM runs"),
        (SQL, "\n  insert into runs values (?)"),
        (SQL, "CREATE TABLE t (x)"),
        (NOT_RUN, "pytest.mark.skipif"),
        (NOT_RUN, "pytest.skip"),
    ],
)
def test_a_rule_sees_what_it_forbids(pattern: re.Pattern[str], said: str) -> None:
    assert pattern.search(said)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (MACHINE_PATH, "https://example.test/" + "home/page"),
        (MACHINE_PATH, "docs/" + "work/plan.md"),
        (SQL, "PRAGMA journal_mode = WAL"),
        (SQL, "BEGIN IMMEDIATE"),
        (SQL, "SAVEPOINT append"),
        (SQL, "update the run"),
        (NOT_RUN, "cursor.skipped"),
    ],
)
def test_a_rule_leaves_alone_what_is_allowed(pattern: re.Pattern[str], said: str) -> None:
    assert not pattern.search(said)


def test_the_text_rules_read_the_whole_repository() -> None:
    names = set(text_files())

    assert {
        "pyproject.toml",
        "Makefile",
        ".ci/run",
        "docs/DESIGN.md",
        "examples/first.py",
        "requirements/dev.lock",
    } <= names
    assert (ROOT / ".git").exists()
