"""What a fleet's store must hold by itself, on PostgreSQL, beside the whole modules of this folder.

Keys, the listed causes that a run survives (a restart and an operator are in `test_workers` and `test_stopping`), and
what is kept besides checkpoints. `tests/crash_on_postgres` kills around each send. `tests/tidy` counts the
requirements that all of them name.
"""

from tests.runtime.test_authority import (
    outside,
    test_an_approval_is_asked_shown_from_the_stored_bytes_and_used_once,
    test_an_expired_authority_starts_nothing,
)
from tests.runtime.test_calling_tools import (
    test_two_runs_and_two_calls_have_different_keys_and_one_call_keeps_its_own,
)
from tests.runtime.test_conditions_and_retries import test_a_segment_that_backs_off_does_so_over_a_restart, world
from tests.runtime.test_scheduling import nothing_was_seen, test_what_was_missed_is_caught_up_with_as_declared
from tests.runtime.test_sending_again import (
    test_a_key_that_may_have_expired_is_not_sent_again,
    test_a_keyed_effect_is_sent_again_with_the_same_key_and_applied_once,
)
from tests.runtime.test_what_exceptions_mean import (
    test_a_backoff_survives_a_restart,
    test_httpx_errors_go_through_the_table,
)

__all__ = [
    "nothing_was_seen",
    "outside",
    "test_a_backoff_survives_a_restart",
    "test_a_key_that_may_have_expired_is_not_sent_again",
    "test_a_keyed_effect_is_sent_again_with_the_same_key_and_applied_once",
    "test_a_segment_that_backs_off_does_so_over_a_restart",
    "test_an_approval_is_asked_shown_from_the_stored_bytes_and_used_once",
    "test_an_expired_authority_starts_nothing",
    "test_httpx_errors_go_through_the_table",
    "test_two_runs_and_two_calls_have_different_keys_and_one_call_keeps_its_own",
    "test_what_was_missed_is_caught_up_with_as_declared",
    "world",
]
