"""The declared version decides whether today's code may go on with a run; fingerprints only warn."""

from itertools import product
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core import entries as e
from milepost.core.manifest import Compatibility, Manifest, Promises, Verdict, compare, differences, half_done
from tests.core import samples as say

MADE_WITH = Manifest(
    workflow="desk", version="1", fingerprint="f1", tools={"charge": ("1", "t1")}, prompts={"triage": ("1", "p1")},
    segments={"triage": "s0", "pay": "s1"}, states={"triage": "y0", "pay": "y1"}, models={"triage": "model-1"},
    policy="policy-1",
)  # fmt: skip
FRIENDLY = Promises(compatible_with=frozenset({"1"}))
MIGRATES = Promises(migrations={"1": ("1", "2")})


def today(**changes: object) -> Manifest:
    return msgspec.structs.replace(MADE_WITH, **changes)


def verdict(*args: Any, **where: Any) -> str:
    return compare(*args, **where).verdict


def test_the_same_code_may_go_on() -> None:
    assert compare(MADE_WITH, MADE_WITH) == Compatibility()
    assert verdict(MADE_WITH, MADE_WITH, segment="pay", inside=True) == "equal"


def test_another_version_blocks_and_says_what_to_declare() -> None:
    """Requirement 34. Requirement 35. Requirement 57. The declared version decides, and an undeclared one stops."""
    found = compare(MADE_WITH, today(version="2"))

    (why,) = found.blocks
    assert found.verdict == "blocks"
    assert "version '1'" in why
    assert "has '2'" in why
    assert "compatible_with=['1']" in why


def test_another_version_that_is_declared_compatible_may_go_on() -> None:
    found = compare(MADE_WITH, today(version="2", fingerprint="f2"), FRIENDLY)

    assert (found.blocks, found.verdict) == ((), "declared")
    assert compare(MADE_WITH, today(version="2", policy=""), FRIENDLY).warns == (
        "version '2' is declared compatible with '1'", "the policy was policy-1, is now none",
    )  # fmt: skip


def test_another_version_with_a_migration_is_migrated_at_a_boundary_and_nowhere_else() -> None:
    """Requirement 35."""
    at_boundary = compare(MADE_WITH, today(version="2"), MIGRATES, segment="pay")
    inside = compare(MADE_WITH, today(version="2"), MIGRATES, segment="pay", inside=True)

    assert (at_boundary.verdict, at_boundary.migrates) == ("migrates", ("1", "2"))
    assert (inside.verdict, inside.migrates) == ("blocks", ())
    assert "at a boundary only" in inside.blocks[0]
    assert "inside segment 'pay'" in inside.blocks[0]


def test_what_is_declared_compatible_is_not_migrated() -> None:
    both = Promises(frozenset({"1"}), {"1": ("1", "2")})

    assert verdict(MADE_WITH, today(version="2"), both) == "declared"


def test_another_workflow_blocks() -> None:
    (why,) = compare(MADE_WITH, today(workflow="shop", version="2"), FRIENDLY).blocks

    assert "'desk'" in why
    assert "'shop'" in why


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fingerprint": "f2"}, "the code of 'desk' changed under version '1'"),
        ({"segments": {"triage": "s0", "pay": "s2"}}, "the code of segment 'pay' changed"),
        ({"states": {"triage": "y0", "pay": "y2"}}, "the type of the state of segment 'pay' changed"),
        ({"tools": {"charge": ("1", "t2")}}, "the code of tool 'charge' changed under version '1'"),
        ({"tools": {"charge": ("1", "t1"), "mail": ("1", "m")}}, "tool 'mail' is new"),
        ({"prompts": {"triage": ("1", "p2")}}, "the text of prompt 'triage' changed under version '1'"),
        ({"prompts": {}}, "prompt 'triage' is gone"),
        ({"prompts": {"triage": ("1", "p1"), "mail": ("1", "m")}}, "prompt 'mail' is new"),
        ({"models": {"triage": "model-1", "mail": "model-2"}}, "model 'mail' is new"),
        ({"models": {}}, "model 'triage' is no longer declared"),
        ({"policy": "policy-2"}, "the policy was policy-1, is now policy-2"),
        ({"policy": ""}, "the policy was policy-1, is now none"),
    ],
)
def test_a_changed_fingerprint_warns_and_never_decides(changes: dict[str, Any], said: str) -> None:
    """Requirement 34."""
    found = compare(MADE_WITH, today(**changes), segment="triage")

    assert (found.verdict, found.warns) == ("warns", (said,))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"segments": {"triage": "s0", "pay": "s2"}}, "the code of segment 'pay' changed"),
        ({"states": {"triage": "y0", "pay": "y2"}}, "the type of the state of segment 'pay' changed"),
    ],
)
def test_where_a_part_tells_what_changed_the_whole_says_no_more(changes: dict[str, Any], said: str) -> None:
    assert compare(MADE_WITH, today(fingerprint="f2", **changes)).warns == (said,)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tools": {"charge": ("2", "t1")}}, "tool 'charge' was version '1', is now '2'"),
        ({"tools": {}}, "tool 'charge' is no longer listed"),
        ({"prompts": {"triage": ("2", "p1")}}, "prompt 'triage' was version '1', is now '2'"),
        ({"models": {"triage": "model-2"}}, "model 'triage' was 'model-1', is now 'model-2'"),
    ],
)
def test_a_changed_version_of_a_part_blocks_unless_the_workflow_declares_itself_compatible(
    changes: dict[str, Any], said: str
) -> None:
    """Requirement 40. Requirement 57. Tools, prompts and models are under the same control contract, or it stops."""
    undeclared = compare(MADE_WITH, today(**changes))
    declared = compare(MADE_WITH, today(version="2", **changes), FRIENDLY)
    migrated = compare(MADE_WITH, today(version="2", **changes), MIGRATES)

    assert (undeclared.verdict, undeclared.blocks) == ("blocks", (said,))
    assert (declared.verdict, declared.blocks, said in declared.warns) == ("declared", (), True)
    assert (migrated.verdict, said in migrated.warns) == ("migrates", True)


def test_a_tool_may_declare_that_it_stands_in_for_an_older_version_of_itself() -> None:
    """Requirement 57."""
    stands_in = Promises(tools={"charge": frozenset({"1"})})
    found = compare(MADE_WITH, today(tools={"charge": ("2", "t2")}), stands_in)

    assert (found.verdict, found.warns) == ("warns", ("tool 'charge' was version '1', is now '2'",))


def test_inside_a_half_done_segment_its_changed_code_stops_and_no_other_segment_s() -> None:
    """Requirement 40."""
    code = today(segments={"triage": "s0", "pay": "s2"})
    inside = compare(MADE_WITH, code, segment="pay", inside=True)
    declared = compare(MADE_WITH, msgspec.structs.replace(code, version="2"), FRIENDLY, segment="pay", inside=True)

    assert (inside.verdict, inside.warns) == ("changed", ())
    assert compare(MADE_WITH, msgspec.structs.replace(code, fingerprint="f2"), segment="pay", inside=True) == inside
    assert inside.changed == ("the code of segment 'pay' changed while the run is inside it",)
    assert verdict(MADE_WITH, code, segment="pay") == "warns"
    assert verdict(MADE_WITH, code, segment="triage", inside=True) == "warns"
    assert declared.verdict == "declared"


def test_a_segment_that_is_gone_blocks_unless_a_migration_leads_elsewhere() -> None:
    gone = today(version="2", segments={"triage": "s0", "settle": "s9"}, states={})

    assert "no longer declared" in compare(MADE_WITH, gone, FRIENDLY, segment="pay").blocks[0]
    assert verdict(MADE_WITH, gone, MIGRATES, segment="pay") == "migrates"


def test_what_an_older_manifest_does_not_tell_cannot_differ() -> None:
    older = Manifest(
        workflow="desk", version="1", fingerprint="f1", tools={"charge": ("1", "t1")}, prompts={"triage": "p1"},
        segments={"triage": "s0", "pay": "s1"}, models={"triage": "model-1"}, policy="policy-1",
    )  # fmt: skip
    kept = msgspec.json.decode(msgspec.json.encode(older), type=Manifest)

    assert kept == older
    assert verdict(kept, MADE_WITH) == "equal"
    assert "prompt 'triage'" in compare(kept, today(prompts={"triage": ("1", "p2")})).warns[0]


def test_the_difference_is_told_part_by_part() -> None:
    """Requirement 57. A visible error shows both sides."""
    now = today(version="2", tools={"mail": ("1", "m")}, models={"triage": "model-2"})
    other = Manifest("shop", "1", "f2", MADE_WITH.tools, {}, {"triage": "s0"}, {}, MADE_WITH.models, "policy-2")

    assert differences(MADE_WITH, MADE_WITH) == []
    assert differences(MADE_WITH, now) == [
        ("version", "1", "2"),
        ("tool charge", "1 (t1)", ""),
        ("tool mail", "", "1 (m)"),
        ("model triage", "model-1", "model-2"),
    ]
    assert differences(MADE_WITH, other) == [
        ("workflow", "desk", "shop"),
        ("code", "f1", "f2"),
        ("policy", "policy-1", "policy-2"),
        ("prompt triage", "1 (p1)", ""),
        ("segment pay", "s1", ""),
        ("state of pay", "y1", ""),
        ("state of triage", "y0", ""),
    ]


def test_a_manifest_is_read_back_as_it_was_written() -> None:
    """Requirement 44."""
    assert msgspec.json.decode(msgspec.json.encode(MADE_WITH), type=Manifest) == MADE_WITH


@pytest.mark.parametrize(
    ("steps", "begun"),
    [
        ((), False),
        ((e.SignalAwaited(at=5, step=":0", name="go"),), False),
        ((e.SignalAwaited(at=5, step=":0", name="go", until=9),), True),
        ((e.SleepStarted(at=5, step=":0", until=9),), True),
        ((say.planned(),), True),
        ((e.ValueRecorded(at=5, step=":0", kind="now", value=say.NULL),), True),
        ((e.SignalAwaited(at=5, step=":0", name="go"), say.planned(step=":1")), True),
    ],
)
def test_a_segment_is_half_done_once_a_step_of_it_is_recorded_that_something_may_depend_on(
    steps: tuple[e.Entry, ...], *, begun: bool
) -> None:
    assert half_done(say.run(*steps)) is begun


# ---------------------------------------------------------------- every pair has one verdict

VERSIONS = ("1", "2", "3")
PARTS = st.dictionaries(st.sampled_from(("a", "b")), st.tuples(st.sampled_from(VERSIONS), st.sampled_from("xy")))
FINGERPRINTS = st.dictionaries(st.sampled_from(("a", "b")), st.sampled_from("xy"))
MANIFESTS = st.builds(
    Manifest,
    workflow=st.sampled_from(("w", "v")),
    version=st.sampled_from(VERSIONS),
    fingerprint=st.sampled_from("xy"),
    tools=PARTS,
    prompts=PARTS,
    segments=FINGERPRINTS,
    states=FINGERPRINTS,
    models=FINGERPRINTS,
    policy=st.sampled_from(("", "p")),
)
PROMISES = st.builds(
    Promises,
    compatible_with=st.frozensets(st.sampled_from(VERSIONS)),
    migrations=st.sampled_from(({}, {"1": ("1", "3")}, {"1": ("1", "2", "3"), "2": ("2", "3")})),
    tools=st.dictionaries(st.sampled_from(("a", "b")), st.frozensets(st.sampled_from(VERSIONS))),
)


@given(
    recorded=MANIFESTS,
    now=MANIFESTS,
    promises=PROMISES,
    segment=st.sampled_from((None, "a", "b")),
    inside=st.booleans(),
)
def test_every_pair_of_manifests_has_one_verdict_and_always_the_same(
    recorded: Manifest, now: Manifest, promises: Promises, segment: str | None, *, inside: bool
) -> None:
    """Requirement 35. Requirement 57. Total and deterministic; a difference is never passed over in silence."""
    found = compare(recorded, now, promises, segment=segment, inside=inside)

    assert found.verdict in get_args(Verdict)
    assert compare(recorded, now, promises, segment=segment, inside=inside) == found
    assert compare(recorded, recorded, promises, segment=segment if segment in recorded.segments else None) == (
        Compatibility()
    )
    if recorded.version != now.version and found.verdict not in {"blocks", "changed"}:
        assert found.declared or found.migrates
    if found.verdict == "equal":  # but for segments that only one side has, which the workflow's fingerprint tells
        either = recorded.segments.keys() ^ now.segments.keys() | recorded.states.keys() ^ now.states.keys()
        assert {part for part, _, _ in differences(recorded, now)} <= {
            f"{what} {name}" for what in ("segment", "state of") for name in either
        }
    if found.migrates:
        assert not inside
        assert found.migrates[0] == recorded.version


@pytest.mark.parametrize(("was", "now", "friends"), list(product(VERSIONS, VERSIONS, [(), ("1",), ("1", "2")])))
def test_every_pair_of_declared_versions_is_equal_declared_or_blocked(
    was: str, now: str, friends: tuple[str, ...]
) -> None:
    """Requirement 34. Requirement 35."""
    found = compare(Manifest("w", was), Manifest("w", now), Promises(frozenset(friends))).verdict

    assert found == ("equal" if was == now else "declared" if was in friends else "blocks")
