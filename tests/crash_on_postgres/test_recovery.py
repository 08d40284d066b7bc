"""Of `tests/crash/test_recovery.py` what needs no system call of SQLite, on PostgreSQL."""

from tests.crash.test_recovery import (
    test_a_run_that_is_done_is_not_done_again_by_starting_its_worker_again,
    test_however_often_one_effect_is_cut_short_it_is_applied_once,
    test_killed_in_each_question_it_stays_unknown_and_nothing_is_skipped,
)

__all__ = [
    "test_a_run_that_is_done_is_not_done_again_by_starting_its_worker_again",
    "test_however_often_one_effect_is_cut_short_it_is_applied_once",
    "test_killed_in_each_question_it_stays_unknown_and_nothing_is_skipped",
]
