"""What is mutated, and which tests are asked.

Which of a part's tests run the lines of a mutant is measured, and only those are asked; all of them run in the process
that holds the mutant. A test that starts another process would meet the package as it is, and is of no use here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ABOUT_WRITING = (
    "answers_of_a_lost_run", "children", "once", "resolving", "stopping", "transactional_tools", "writer", "writing",
)  # fmt: skip
ABOUT_SENDING = (
    "answers_of_a_lost_run", "approvals", "authority", "breakers", "calling_tools", "costed_reads", "falling_due",
    "holds", "how_a_call_goes", "how_an_attempt_starts", "imported", "late_and_rolled_back", "late_returns",
    "limits_of_approvals", "money_of_one_run", "narrowing", "once", "one_try_of_a_tool", "payloads", "policy",
    "policy_held_back", "pools", "rechecked_at_resume", "reconciling", "refused_after_an_absence", "refused_starts",
    "resends_under_a_hold", "resolving", "restored_authority", "secrets_before_bytes", "sending_again",
    "signed_approvals", "starts_taken_back", "stopping", "switches", "taken_identities", "transactional_tools",
    "unkind_code", "waiting_for_money", "what_a_call_must_have", "what_a_call_rests_on", "what_a_person_is_asked",
    "what_a_policy_says_of_a_run", "what_a_start_says", "what_an_attempt_records", "what_exceptions_mean",
)  # fmt: skip
ABOUT_HOLDING = (
    "answers_of_a_lost_run", "attached", "coming_to_rest", "falling_due", "fan_out", "late_returns", "once",
    "one_session", "one_session_at_rest", "policy_held_back", "pools", "resolving", "segments", "stopping",
    "time_and_signals", "transactional_tools", "undoing", "writing",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/milepost"


@dataclass(frozen=True)
class Part:
    """Modules below the package, and what pytest is told to choose their tests by."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


def named(tests: Sequence[str]) -> tuple[str, ...]:
    """Return the files of the runtime's tests with these names."""
    return tuple(f"tests/runtime/test_{name}.py" for name in tests)


PARTS = (
    Part(
        "core", tuple(f"core/{file.name}" for file in sorted((ROOT / PACKAGE / "core").glob("*.py"))), ("tests/core",)
    ),
    Part("session", ("runtime/session.py",), named(ABOUT_HOLDING)),
    Part(
        "append",
        ("runtime/writer.py", "stores/writing.py"),
        (
            "tests/stores",
            "--ignore=tests/stores/test_failing_disk.py",
            "--ignore=tests/stores/postgres",  # the same rules and the same suite, on a server that has to be started
            *named(ABOUT_WRITING),
        ),
    ),
    Part(
        "send",
        tuple(
            f"runtime/{name}.py" for name in ("approvals", "attempts", "effects", "gates", "pools", "ruling", "waits")
        ),
        (*named(ABOUT_SENDING), "tests/model/test_protocol.py"),
    ),
)

MODULES = frozenset(module for part in PARTS for module in part.modules)


def chosen(modules: Sequence[str]) -> list[Part]:
    """Return the parts with only these modules left; all of them for none. Raises LookupError for an unknown one."""
    if unknown := set(modules) - MODULES:
        msg = f"{', '.join(sorted(unknown))}: mutated are {', '.join(sorted(MODULES))}"
        raise LookupError(msg)
    wanted = set(modules) or MODULES
    left = [Part(part.name, tuple(name for name in part.modules if name in wanted), part.tests) for part in PARTS]
    return [part for part in left if part.modules]
