"""The list of mutants that no test kills may only shrink, and the numbers that are published are the list's own."""

import ast
from pathlib import Path

import pytest

from mutation import page, survivors
from mutation.changes import Mutant
from mutation.parts import PACKAGE
from tests.tidy.repository import text, tree

# Raised for what had never been tried: last for the send path, by 6. All is tried by now, so it may be lowered, never
# raised: a new survivor is killed by a test.
CEILING = 76


def functions(module: str) -> set[str]:
    """Name the functions and methods of a module as the list names them."""
    return {
        f"{owner}{node.name}"
        for owner, body in [
            ("", tree(module).body),
            *((f"{node.name}.", node.body) for node in tree(module).body if isinstance(node, ast.ClassDef)),
        ]
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_list_of_survivors_may_only_shrink() -> None:
    assert len(survivors.read().reasons) == CEILING, "fewer: lower CEILING. More: kill them with a test"


def test_every_survivor_is_of_a_function_that_is_still_there() -> None:
    listed = survivors.read().reasons

    assert [mutant for mutant in listed if mutant.function not in functions(f"{PACKAGE}/{mutant.module}")] == []


def test_the_page_publishes_as_many_survivors_as_are_explained() -> None:
    published = page.published(text("docs/reliability.md"))
    by_module = survivors.read().by_module

    assert published
    assert {module: row[-1] for module, row in published.items() if row[-1] and module != "all"} == by_module
    assert published["all"][-1] == len(survivors.read().reasons)


def test_the_numbers_on_the_page_add_up() -> None:
    published = page.published(text("docs/reliability.md"))
    rows = [row for module, row in published.items() if module != "all"]

    assert [module for module, (mutants, *parts) in published.items() if mutants != sum(parts)] == []
    assert published["all"] == tuple(map(sum, zip(*rows, strict=True)))


def test_a_list_without_reasons_is_refused(tmp_path: Path) -> None:
    written = tmp_path / "survivors.toml"
    line = '"core/lease.py lapsed: return now [>=→>] lease_until"'

    written.write_text(f'[[group]]\nreason = "equivalent"\nmutants = [{line}]\n', encoding="utf-8")
    with pytest.raises(ValueError, match="no reason"):
        survivors.read(written)

    written.write_text(f'[[group]]\nreason = "it makes no difference"\nmutants = [{line}, {line}]\n', encoding="utf-8")
    with pytest.raises(ValueError, match="twice"):
        survivors.read(written)

    written.write_text('[[group]]\nreason = "it makes no difference"\nmutants = ["lapsed"]\n', encoding="utf-8")
    with pytest.raises(ValueError, match="names no mutant"):
        survivors.read(written)


def test_a_line_of_the_list_is_read_as_it_is_printed() -> None:
    mutant = Mutant("core/chunks.py", "_group", 'return [b"l: %d" % height→None]')

    assert survivors.parse(str(mutant)) == mutant
    assert functions(f"{PACKAGE}/core/budget.py") >= {"amounts", "Ledger.left"}
