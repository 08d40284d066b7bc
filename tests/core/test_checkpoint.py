"""What a checkpoint and its tail hold is enough: from their bytes alone the run is known, and its next act."""

from decimal import Decimal

import msgspec

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.authority import Granted, missing_scopes
from milepost.core.chunks import digest_of
from milepost.core.decide import Enter, World, decide
from milepost.core.manifest import Manifest
from milepost.core.outcome import Facts
from milepost.core.state import RunState, fold
from milepost.core.steps import Receive, Sleep
from tests.core import samples as say

ABOUT = e.About(
    workflow="desk",
    version="1",
    key="ticket-7",
    input=msgspec.Raw(b'{"case":7}'),
    authority=Granted("bot", ("pay:charge",), "acme", 10**13),
    deadline=5_000,
    created_at=1,
)
MANIFEST = Manifest(
    workflow="desk", version="1", fingerprint="f", tools={"charge": ("1", "t")}, prompts={"triage": "p"},
    segments={"pay": "s"},
)  # fmt: skip
CHUNKS = {digest_of(body): body for body in (msgspec.json.encode(ABOUT), msgspec.json.encode(MANIFEST))}
FINISHED = (
    e.Marker("triage/ask#1", "confirmed", "d1", msgspec.Raw(b'{"refund":true}')),
    e.Marker("triage/look#1", "failed", "d2", msgspec.Raw(b'"no route"')),
)


def record() -> list[bytes]:
    """Return the bytes from the latest boundary on, as a store keeps them."""
    about, manifest = CHUNKS
    boundary = e.Boundary(
        about=about, manifest=manifest, visit=1, segment="pay", state=msgspec.Raw(b'{"cents":500}'),
        finished_segment="triage", finished=FINISHED, visits={"triage": 1}, granted=say.usd(10), spent=say.usd("0.25"),
        signals=(e.Signal("s1", "go", msgspec.Raw(b"1")),), children={"c1": "running"}, epoch=3, owner="worker-3",
    )  # fmt: skip
    approval = e.ApprovalAsked(at=16, step=":1", id="ap-1", tool_version="1", digest="d1")
    tail = [
        e.Checkpointed(at=10, boundary=boundary),
        say.started(11, epoch=3, reserve=say.usd(5)),
        say.lost(12, quiet_at=12),
        e.PersonNeeded(at=13, step=say.STEP, why="found twice"),
        say.planned(15, step=":1"),
        approval,
        e.SleepStarted(at=17, step=":2", until=900),
        e.SignalAwaited(at=18, step=":3", name="stop", until=700),
        e.SegmentFailed(at=19, why="boom", attempt=2, retry_at=20),
        e.Widened(at=20, by="ann", scopes=("mail:send",), budget=say.usd(1)),
    ]
    return [codec.encode(entry) for entry in tail]


def recovered() -> tuple[RunState, e.About, Manifest]:
    state = fold(say.RUN, [codec.decode(body) for body in record()])
    about = msgspec.json.decode(CHUNKS[state.about_digest], type=e.About)
    return state, about, msgspec.json.decode(CHUNKS[state.manifest_digest], type=Manifest)


def test_what_finished_and_its_validated_outputs_stand_in_the_checkpoint() -> None:
    """Requirement 52. Requirement 2. Requirement 62."""
    state, about, _ = recovered()

    assert (bytes(about.input), bytes(state.state)) == (b'{"case":7}', b'{"cents":500}')
    assert (state.finished_segment, state.visits) == ("triage", {"triage": 1})
    assert [(marker.path, marker.outcome, bytes(marker.output)) for marker in state.finished] == [
        ("triage/ask#1", "confirmed", b'{"refund":true}'),
        ("triage/look#1", "failed", b'"no route"'),
    ]


def test_what_remains_stands_in_the_record() -> None:
    """Requirement 52. Requirement 2. Requirement 36."""
    state, about, _ = recovered()

    assert (state.segment, state.children, [signal.name for signal in state.signals]) == (
        "pay",
        {"c1": "running"},
        ["go"],
    )
    assert (state.steps[":2"], state.steps[":3"]) == (Sleep(900), Receive("stop", 700))
    assert (state.segment_attempt, state.retry_at, about.deadline) == (2, 20, 5_000)


def test_what_may_have_changed_outside_stands_in_the_record() -> None:
    """Requirement 52. Requirement 2. Requirement 39."""
    state, _, _ = recovered()

    (open_,) = state.unsettled()
    assert (open_.path, open_.outcome, open_.key, open_.attempt, open_.doubt.person) == (
        "pay/charge#1", "unknown", "k1", 1, "found twice"
    )  # fmt: skip


def test_budgets_approvals_and_permissions_stand_in_the_record() -> None:
    """Requirement 52. Requirement 45. Requirement 20."""
    state, about, _ = recovered()

    assert (state.ledger.granted, state.ledger.spent) == (say.usd(11), say.usd("0.25"))
    assert state.ledger.left("usd") == Decimal("5.75")
    assert {id_: approval.verdict for id_, approval in state.approvals.items()} == {"ap-1": "asked"}
    assert about.authority == Granted("bot", ("pay:charge",), "acme", 10**13)
    assert state.scopes == ("mail:send",)


def test_the_versions_of_everything_stand_in_the_record() -> None:
    """Requirement 52. Requirement 44. Requirement 34."""
    _, about, manifest = recovered()

    assert (about.workflow, about.version) == ("desk", "1")
    assert manifest == MANIFEST
    assert {name: version for name, (version, _) in manifest.tools.items()} == {"charge": "1"}
    assert manifest.prompts == {"triage": "p"}


def test_the_next_act_follows_from_these_bytes_and_from_nothing_else() -> None:
    """Requirement 16. Requirement 17. Requirement 38. Requirement 58."""
    state, about, _ = recovered()

    assert decide(state, World(25, {"charge": Facts(effect="keyed", version="1")})).perform == Enter("pay")
    assert missing_scopes(about.authority.widened(state.scopes), ["pay:charge", "mail:send"], 25) == ()
    assert missing_scopes(about.authority.widened(state.scopes), ["deploy"], 25) == ("deploy",)
