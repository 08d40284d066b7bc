"""The declared version decides whether today's code may go on with a run; fingerprints only warn."""

import msgspec

from milepost.core.manifest import Compatibility, Manifest, compare

MADE_WITH = Manifest(
    workflow="desk", version="1", fingerprint="f1", tools={"charge": ("1", "t1")}, prompts={"triage": "p1"},
    segments={"pay": "s1"},
)  # fmt: skip
NONE: frozenset[str] = frozenset()


def today(**changes: object) -> Manifest:
    return msgspec.structs.replace(MADE_WITH, **changes)


def test_the_same_code_may_go_on() -> None:
    assert compare(MADE_WITH, MADE_WITH, NONE) == Compatibility()


def test_another_version_blocks_and_says_what_to_declare() -> None:
    """Requirement 34. Requirement 57."""
    verdict = compare(MADE_WITH, today(version="2"), NONE)

    (why,) = verdict.blocks
    assert "version '1'" in why
    assert "has '2'" in why
    assert "compatible_with=['1']" in why


def test_another_version_that_is_declared_compatible_may_go_on() -> None:
    """Requirement 35."""
    assert compare(MADE_WITH, today(version="2", fingerprint="f2"), frozenset({"1"})) == Compatibility()


def test_another_workflow_blocks() -> None:
    (why,) = compare(MADE_WITH, today(workflow="shop", version="2"), frozenset({"1"})).blocks

    assert "'desk'" in why
    assert "'shop'" in why


def test_changed_source_under_the_same_version_warns_and_does_not_block() -> None:
    verdict = compare(MADE_WITH, today(fingerprint="f2"), NONE)

    assert verdict.blocks == ()
    assert len(verdict.warns) == 1
    assert "changed under version '1'" in verdict.warns[0]


def test_a_tool_that_is_gone_or_has_another_version_warns() -> None:
    gone = compare(MADE_WITH, today(tools={}), NONE)
    changed = compare(MADE_WITH, today(tools={"charge": ("2", "t1"), "new": ("1", "n")}), NONE)

    assert (gone.blocks, changed.blocks) == ((), ())
    assert "no longer listed" in gone.warns[0]
    assert "was version '1', is now '2'" in changed.warns[0]


def test_a_tool_s_fingerprint_alone_says_nothing() -> None:
    assert compare(MADE_WITH, today(tools={"charge": ("1", "t2")}), NONE) == Compatibility()


def test_a_manifest_is_read_back_as_it_was_written() -> None:
    assert msgspec.json.decode(msgspec.json.encode(MADE_WITH), type=Manifest) == MADE_WITH
