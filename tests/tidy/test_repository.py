"""The papers are in order: README, changelog, decisions, requirements and locks say what they must."""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, Place, files, python_files, report, text, tree

README_LINES = 120
FIRST_CODE_BEFORE_LINE = 30
LOCKS = ("bench", "demo", "dev", "evaluation", "hosts", "mutation")

# What this version claims (docs/REQUIREMENTS.md). A number is added here together with the test that proves it.
CLAIMED = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60,
    61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 83, 85, 86, 87, 88, 89,
}  # fmt: skip
# What a fleet changes: these are proved on PostgreSQL as well.
CLAIMED_ON_POSTGRES = {13, 18, 33, 36, 50, 51, 69}
ON_POSTGRES = ("tests/crash_on_postgres", "tests/runtime_on_postgres", "tests/stores/postgres")
PROOF = re.compile(r"\bRequirement (\d+)\.")
RANGE = re.compile(r"\bRequirements? \d+\s*(-|–|to)\s*\d+")  # noqa: RUF001
NUMBERED = re.compile(r"^(\d+)(?:–(\d+))?\. |(?<=\. )(\d+)\. ", re.MULTILINE)  # noqa: RUF001
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def listed_requirements(page: str) -> list[int]:
    numbers: list[int] = []
    for first, last, inline in NUMBERED.findall(page):
        numbers.extend(range(int(first or inline), int(last or first or inline) + 1))
    return numbers


def docstrings_of_tests() -> list[tuple[str, str]]:
    return [
        (f"{name}:{node.name}", ast.get_docstring(node) or "")
        for name in python_files("tests")
        if Path(name).name.startswith("test_")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def imported_tests(*folders: str) -> set[str]:
    """Name the tests that modules of these folders take over from others, as `docstrings_of_tests` names them."""
    taken = [
        (f"{node.module.replace('.', '/')}.py", alias.name)
        for name in python_files(*folders)
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("tests.")
        for alias in node.names
    ]
    return {where for where, _ in docstrings_of_tests() for module, name in taken
            if where == f"{module}:{name}" or (name == "*" and where.startswith(f"{module}:"))}  # fmt: skip


def broken_links(name: str) -> list[Place]:
    page = FENCED.sub(lambda fence: "\n" * fence.group().count("\n"), text(name))
    return [
        Place(name, page.count("\n", 0, match.start()) + 1, f"{match[1]} leads nowhere inside the repository")
        for match in LINK.finditer(page)
        if not re.match(r"[a-z]+:|#", match[1]) and not leads_inside(name, match[1])
    ]


def leads_inside(name: str, link: str) -> bool:
    target = ((ROOT / name).parent / link.split("#", maxsplit=1)[0]).resolve()
    return target.exists() and target.is_relative_to(ROOT)


def test_the_readme_is_short_and_shows_code_at_once() -> None:
    lines = text("README.md").splitlines()
    first_code = next(number for number, line in enumerate(lines, start=1) if line.startswith("```"))

    assert len(lines) <= README_LINES
    assert first_code < FIRST_CODE_BEFORE_LINE


def test_every_claimed_requirement_is_named_by_a_test() -> None:
    proved = {int(number) for _, docstring in docstrings_of_tests() for number in PROOF.findall(docstring)}

    assert sorted(CLAIMED - proved) == []


def test_what_a_fleet_changes_is_proved_on_postgresql_as_well() -> None:
    taken = imported_tests(*ON_POSTGRES)
    there = [docstring for where, docstring in docstrings_of_tests() if where in taken or where.startswith(ON_POSTGRES)]
    proved = {int(number) for docstring in there for number in PROOF.findall(docstring)}

    assert sorted(CLAIMED_ON_POSTGRES - proved) == []


def test_a_proof_names_requirements_that_exist_one_by_one() -> None:
    known = set(listed_requirements(text("docs/REQUIREMENTS.md")))
    said = docstrings_of_tests()

    assert [where for where, docstring in said if RANGE.search(docstring)] == []
    assert [where for where, docstring in said if {int(n) for n in PROOF.findall(docstring)} - known] == []


def test_the_checklist_still_has_its_89_requirements() -> None:
    assert sorted(listed_requirements(text("docs/REQUIREMENTS.md"))) == list(range(1, 90))


def test_the_scoreboard_still_has_its_25_faults() -> None:
    rows = re.findall(r"^\| (\d+) \|", text("docs/FAULTS.md"), re.MULTILINE)

    assert [int(row) for row in rows] == list(range(1, 26))


def test_every_decision_has_a_number_of_its_own_and_a_title() -> None:
    names = [Path(name).name for name in files() if re.match(r"docs/decisions/(?!README)", name)]
    numbers = Counter(name[:4] for name in names)

    assert names
    assert [name for name in names if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name)] == []
    assert [number for number, count in numbers.items() if count > 1] == []
    assert [name for name in names if not text(f"docs/decisions/{name}").startswith("# ")] == []


def test_the_changelog_tells_of_this_version() -> None:
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    headings = re.findall(r"^## \[(.+?)\]", text("CHANGELOG.md"), re.MULTILINE)

    assert version in headings
    assert len(headings) == len(set(headings))


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [name for name in files() if name.endswith(".md")]
    found = [place for name in pages for place in broken_links(name)]

    assert {"docs/DESIGN.md", "CONTRIBUTING.md"} <= set(pages)
    assert not found, report(found)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_every_package_by_hash_and_names_no_host(lock: str) -> None:
    lines = text(f"requirements/{lock}.lock").splitlines()
    packages = [line for line in lines if line and not line.startswith(" ")]

    assert [line for line in lines if "://" in line or line.startswith(("-", "#"))] == []
    assert [line for line in packages if not re.match(r"[a-z0-9._-]+==\S+ ", line)] == []
    assert sum("--hash=sha256:" in line for line in lines) >= len(packages)


def test_the_demo_runs_on_the_versions_that_the_suite_tests() -> None:
    def pins(lock: str) -> set[str]:
        return set(re.findall(r"^([a-z0-9._-]+==[^ ;]+)", text(f"requirements/{lock}.lock"), re.MULTILINE))

    assert pins("demo")
    assert pins("demo") - pins("dev") == set()


def test_every_folder_of_the_package_holds_what_the_wheel_ships() -> None:
    assert "src/milepost/py.typed" in files()
    assert [name for name in files() if name.startswith("src/") and not name.startswith("src/milepost/")] == []


def test_nothing_reads_a_file_outside_the_repository() -> None:
    outside = "../" + "shared"

    assert [name for name in files() if name.endswith((".py", ".md", ".toml", "run")) and outside in text(name)] == []


def test_a_range_or_a_missing_link_would_be_seen() -> None:
    assert RANGE.search("Requirements 27-31.")
    assert RANGE.search("Requirement 27–31.")  # noqa: RUF001
    assert listed_requirements("1. One. 2. Two.\n3–5. Three.\n") == [1, 2, 3, 4, 5]  # noqa: RUF001
    assert not leads_inside("docs/DESIGN.md", "no-such-page.md")
    assert not leads_inside("docs/DESIGN.md", "../../outside.md")
    assert leads_inside("docs/DESIGN.md", "../examples/first.py")
