"""The floors of docs/DESIGN.md §2 hold: imports point down, and the core touches nothing but values."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, Place, calls, imports, python_files, report, text

LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
CORE_MAY_IMPORT = ("milepost.core", "milepost.errors", "msgspec")
# The part of the standard library that acts, or that knows the time, chance or the machine.
IMPURE = {
    "asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib", "pickle", "random", "secrets",
    "select", "shutil", "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
IMPURE_CALLS = re.compile(r"(^|\.)(now|utcnow|today|uuid1|uuid4|open|print|input|getenv)$")


def lint_imports(folder: Path, config: Path, source: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--config", config, "--no-cache", "--no-logo"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def impure_imports(name: str) -> list[Place]:
    return [
        Place(name, line, f"the core may not import {dotted}")
        for line, dotted in imports(name)
        if not any(dotted == allowed or dotted.startswith(f"{allowed}.") for allowed in CORE_MAY_IMPORT)
        and (dotted.split(".")[0] not in sys.stdlib_module_names or dotted.split(".")[0] in IMPURE)
    ]


def test_imports_point_down_the_floors() -> None:
    result = lint_imports(ROOT, ROOT / "pyproject.toml", ROOT / "src")

    assert result.returncode == 0, result.stdout + result.stderr


def test_the_contract_allows_no_exceptions() -> None:
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]

    assert {contract["id"] for contract in contracts} == {"floors", "pure-core"}
    assert not [contract["id"] for contract in contracts if "ignore_imports" in contract]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("core", "stores"),
        ("stores", "runtime"),
        ("runtime", "app"),
        ("app", "cli"),
        ("cli", "console"),
        ("errors", "core"),
    ],
)
def test_the_contract_sees_an_import_that_points_up_or_sideways(tmp_path: Path, lower: str, upper: str) -> None:
    for floor in ("app", "cli", "console", "core", "errors", "runtime", "stores"):
        package = tmp_path / "milepost" / floor
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"import milepost.{upper}\n" if floor == lower else "")
    (tmp_path / "milepost/__init__.py").write_text("")

    result = lint_imports(tmp_path, ROOT / "pyproject.toml", tmp_path)

    assert result.returncode == 1, result.stdout + result.stderr
    assert f"milepost.{lower} -> milepost.{upper}" in result.stdout


def test_the_core_imports_only_pure_standard_modules_msgspec_and_the_errors() -> None:
    core = python_files("src/milepost/core")

    assert core
    assert not (found := [place for name in core for place in impure_imports(name)]), report(found)


def test_the_core_reads_no_clock_and_draws_no_chance() -> None:
    found = [
        Place(name, line, f"{called}: time, ids and chance are arguments of the core")
        for name in python_files("src/milepost/core")
        for line, called in calls(name)
        if IMPURE_CALLS.search(called)
    ]

    assert not found, report(found)


def test_the_errors_import_nothing_of_ours() -> None:
    found = [
        Place(name, line, dotted)
        for name in python_files("src/milepost/errors")
        for line, dotted in imports(name)
        if dotted.split(".")[0] == "milepost" and not dotted.startswith("milepost.errors.")
    ]

    assert not found, report(found)


def test_no_surface_is_imported_by_the_command_line() -> None:
    surfaces = ("milepost.cli.demo", "milepost.console", "milepost.adapters", "milepost.drivers", "milepost.agents")
    cli = [name for name in python_files("src/milepost/cli") if not name.startswith("src/milepost/cli/demo/")]
    found = [
        Place(name, line, f"{dotted} registers itself under milepost.commands")
        for name in cli
        for line, dotted in imports(name)
        if dotted.startswith(surfaces)
    ]

    assert cli
    assert not found, report(found)
