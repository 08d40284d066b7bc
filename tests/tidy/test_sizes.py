"""A file is read in one sitting and a function seen on one screen; what is longer is listed, and may only shrink."""

import ast
import tomllib
from collections.abc import Iterator

from tests.tidy.repository import files, python_files, text, tree

FOLDERS = ("src", "tests", "benchmarks", "evaluation", "faults", "mutation", "soak", "examples")
FILE_LINES = 500
FUNCTION_LINES = 60


def file_sizes() -> dict[str, int]:
    statements = [name for name in files() if name.endswith(".sql")]
    return {name: len(text(name).splitlines()) for name in (*python_files(*FOLDERS), *statements)}


def function_sizes() -> dict[str, int]:
    return {
        f"{name}:{qualified}": size for name in python_files(*FOLDERS) for qualified, size in functions(tree(name), "")
    }


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            qualified = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield qualified, (child.end_lineno or child.lineno) - child.lineno + 1
            yield from functions(child, f"{qualified}.")
        else:
            yield from functions(child, prefix)


def excused(kind: str) -> dict[str, int]:
    listed: dict[str, int] = tomllib.loads(text("tests/tidy/exceptions.toml"))[kind]
    return listed


def too_long(sizes: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    return [
        f"{what}: {size} lines, at most {max(limit, exceptions.get(what, 0))}"
        for what, size in sizes.items()
        if size > max(limit, exceptions.get(what, 0))
    ]


def no_longer_needed(sizes: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    return [
        f"{what}: excused up to {excuse} lines but has {sizes.get(what, 0)}; lower or remove its entry"
        for what, excuse in exceptions.items()
        if sizes.get(what, 0) < excuse or sizes.get(what, 0) <= limit
    ]


def test_no_file_is_longer_than_500_lines() -> None:
    assert too_long(file_sizes(), FILE_LINES, excused("files")) == []


def test_no_function_is_longer_than_60_lines() -> None:
    assert too_long(function_sizes(), FUNCTION_LINES, excused("functions")) == []


def test_an_exception_that_is_no_longer_needed_is_taken_off_the_list() -> None:
    assert no_longer_needed(file_sizes(), FILE_LINES, excused("files")) == []
    assert no_longer_needed(function_sizes(), FUNCTION_LINES, excused("functions")) == []


def test_the_rule_sees_what_it_forbids() -> None:
    sizes = {"long.py": 501, "listed.py": 510, "grown.py": 530, "short.py": 500}
    exceptions = {"listed.py": 510, "grown.py": 520, "short.py": 505, "gone.py": 600}

    assert [line.split(":")[0] for line in too_long(sizes, FILE_LINES, exceptions)] == ["long.py", "grown.py"]
    assert [line.split(":")[0] for line in no_longer_needed(sizes, FILE_LINES, exceptions)] == ["short.py", "gone.py"]


def test_functions_inside_functions_and_classes_are_measured_too() -> None:
    source = "class A:\n    def b(self):\n        if True:\n            def c():\n                pass\n"

    assert dict(functions(ast.parse(source), "")) == {"A.b": 4, "A.b.c": 2}
