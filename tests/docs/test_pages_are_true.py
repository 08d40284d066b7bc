"""What the pages list is what the code has: outcomes, entries, tables, commands, exit codes, measurements."""

import re
from typing import get_args

import pytest

from milepost.cli import exits
from milepost.cli.main import sections
from milepost.core import outcome
from milepost.core.codec import KNOWN
from milepost.definitions.tools import Effect
from tests.docs import outcome_page
from tests.docs.pages import anchor, headings, pages, prose, table_rows
from tests.tidy.repository import ROOT, text

KILL_POINTS = ("docs/recovery-contract.md", "What happens at each kill point")
AUTHORITATIVE, PROJECTION, DIAGNOSTIC = "authoritative", "projection", "diagnostic"
MIGRATIONS = "src/milepost/stores/sqlite/migrations"
AMERICAN = re.compile(
    r"behavior|color|favor|honor|recogniz|initializ|organiz|summariz|serializ|canceled", re.IGNORECASE
)


def stored_tables() -> set[str]:
    sql = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / MIGRATIONS).glob("*.sql")))
    return set(re.findall(r"CREATE TABLE (\w+)", sql)) | {"mp_migrations"}


def test_the_page_of_outcomes_is_drawn_from_the_table() -> None:
    assert text("docs/outcomes.md") == outcome_page.render()
    assert outcome_page.render().count(" --> ") == len(outcome.TABLE) + len(outcome_page.ENDS) + 1


def test_every_kind_of_record_is_labelled_authoritative_or_diagnostic() -> None:
    """Requirement 42."""
    labels = {name.strip("`"): label for name, label, _ in table_rows("docs/record.md", "Tables")}
    entries = [name.strip("`") for name, _ in table_rows("docs/record.md", "Entries")]

    assert set(labels) == stored_tables()
    assert set(labels.values()) == {AUTHORITATIVE, PROJECTION, DIAGNOSTIC}
    assert {name for name, label in labels.items() if label == DIAGNOSTIC} == {"mp_events"}
    assert (labels["mp_journal"], labels["mp_chunks"], labels["mp_inbox"]) == (AUTHORITATIVE,) * 3
    assert sorted(entries) == sorted(KNOWN)


def test_the_recovery_contract_says_for_every_effect_class_what_follows_at_every_kill_point() -> None:
    """Requirement 37. Requirement 12."""
    at_kill = {row[0].strip("`"): row[1:] for row in table_rows(*KILL_POINTS)}
    moments = [row[0] for row in table_rows("docs/recovery-contract.md", "Commit order")]

    assert set(at_kill) == set(get_args(Effect))
    assert {len(points) for points in at_kill.values()} == {4}
    assert all(all(points) for points in at_kill.values())
    assert moments == [str(number) for number in range(1, len(moments) + 1)]


@pytest.mark.parametrize(
    ("effect", "reconcilable", "move", "said"),
    [
        ("read", False, outcome.Resend, "called again"),
        ("keyed", False, outcome.Resend, "same bytes, same key"),
        ("absolute", False, outcome.Resend, "same bytes again"),
        ("queryable", True, outcome.Ask, "the reconciler is asked"),
        ("irreversible", False, outcome.Person, "a person, at once"),
    ],
)
def test_what_the_contract_says_of_a_dead_attempt_is_what_the_table_decides(
    effect: Effect, *, reconcilable: bool, move: type[outcome.Move], said: str
) -> None:
    """Requirement 37."""
    in_flight = {row[0].strip("`"): row[2] for row in table_rows(*KILL_POINTS)}
    facts = outcome.Facts(effect, key_ttl_ms=3_600_000, visible_ms=0, reconcilable=reconcilable)
    dead = outcome.Doubt([outcome.Attempt(1, started_at=0, epoch=1, quiet_at=1_000, died=True)])

    assert isinstance(outcome.next_move(facts, dead, now=1_000), move)
    assert in_flight[effect].startswith(said)


def test_the_cost_of_durability_is_published() -> None:
    """Requirement 41."""
    page = text("docs/performance.md")
    measured = page.split("<!-- bench: begin -->")[1].split("<!-- bench: end -->")[0]

    assert "make bench" in page
    assert "| work " in measured
    assert {"fdatasync", "recovery"} <= set(re.findall(r"\w+", page))


def test_the_readme_shows_what_the_demo_prints() -> None:
    shown = text("README.md").split("<!-- demo: begin -->")[1].split("<!-- demo: end -->")[0]
    rows = re.findall(r'add_row\("([^"]+)"', text("src/milepost/cli/demo/report.py"))

    assert rows
    assert [row for row in rows if row not in shown] == []
    assert "Nothing was done twice, and nothing was forgotten." in shown


def test_every_command_stands_on_the_page_for_operators_and_no_other() -> None:
    named = [re.findall(r"^`milepost (\w+)", command)[0] for command, _ in table_rows("docs/operating.md", "Commands")]

    assert sorted(named) == sorted(name for section in sections().values() for name in section)


def test_every_exit_code_stands_on_the_page_for_operators() -> None:
    rows = table_rows("docs/operating.md", "Exit codes")

    assert {int(code): meaning for code, meaning in rows} == exits.MEANINGS


def test_the_glossary_is_in_order_and_says_every_outcome_and_class() -> None:
    page = text("docs/glossary.md")
    words = re.findall(r"^\| ([a-z][a-z ]+) \|", page, re.MULTILINE)[1:]

    assert words == sorted(words)
    assert all(effect in words for effect in get_args(Effect))
    assert all(word in page for word in get_args(outcome.Outcome))


def test_every_page_has_one_title_and_sections_that_links_can_name() -> None:
    for page in pages():
        titles = headings(page)
        anchors = [anchor(title) for _, title in titles]
        assert [level for level, _ in titles].count(1) == 1, page
        assert titles[0][0] == 1, page
        assert len(anchors) == len(set(anchors)), page


def test_every_link_to_a_section_leads_to_one() -> None:
    missed = []
    for page in pages():
        for target, section in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", prose(page)):
            other = str(((ROOT / page).parent / target).resolve().relative_to(ROOT)) if target else page
            if section not in {anchor(title) for _, title in headings(other)}:
                missed.append(f"{page}: {target}#{section}")

    assert missed == []


def test_the_pages_spell_as_the_design_does() -> None:
    assert [(page, found[0]) for page in pages() if (found := AMERICAN.search(prose(page)))] == []
    assert AMERICAN.search("an organized behavior")


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))
    named = {target for page in pages() for target in re.findall(r"`make ([a-z]+)", text(page))}

    assert named
    assert named <= targets


def test_no_error_message_names_a_page_that_is_not_there() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "milepost").rglob("*.py")]
    named = {page for source in sources for page in re.findall(r"docs/[\w./-]+\.md", source)}

    assert "docs/living-with-code-changes.md" in named
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []


def test_a_page_never_promises_more_than_the_design_allows() -> None:
    assert [page for page in pages() if re.search(r"exactly once", text(page), re.IGNORECASE)] == []


def test_every_threat_names_a_test_that_is_there() -> None:
    rows = table_rows("SECURITY.md", "Threats, and the tests that show the answer")
    named = [(f"tests/{file.strip('`')}", name.strip("`")) for _, file, name in rows]

    assert len(named) > 40
    assert [one for one in named if f"def {one[1]}(" not in text(one[0])] == []
