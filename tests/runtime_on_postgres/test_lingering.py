"""`tests/adapters/test_lingering.py`, on PostgreSQL: all but the counting of syncs, which are the server's there."""

from tests.adapters.test_lingering import (
    hosts,
    test_a_freeze_acts_at_once_on_a_run_that_lingers,
    test_a_host_that_ends_while_its_run_lingers_gives_it_back,
    test_a_host_that_is_killed_while_its_run_lingers_leaves_it_to_the_next_one_at_once,
    test_a_run_that_lingers_and_is_cancelled_ends_without_waiting_for_its_time_to_end,
    test_an_app_that_lingers_in_a_loop_of_its_own_is_opened_elsewhere_at_once,
    test_an_operators_kill_acts_at_once_on_a_run_that_lingers,
    test_calls_without_end_do_not_hold_a_run_without_end,
    test_two_apps_in_turn_share_a_thread_and_the_mark_of_who_asked_is_taken_back,
    test_two_hosts_in_turn_on_one_thread_get_it_from_each_other_without_waiting_for_its_time_to_end,
    test_what_waits_for_a_person_does_not_linger,
    test_who_is_cancelled_while_a_run_is_being_taken_leaves_it_to_others,
)

__all__ = [
    "hosts",
    "test_a_freeze_acts_at_once_on_a_run_that_lingers",
    "test_a_host_that_ends_while_its_run_lingers_gives_it_back",
    "test_a_host_that_is_killed_while_its_run_lingers_leaves_it_to_the_next_one_at_once",
    "test_a_run_that_lingers_and_is_cancelled_ends_without_waiting_for_its_time_to_end",
    "test_an_app_that_lingers_in_a_loop_of_its_own_is_opened_elsewhere_at_once",
    "test_an_operators_kill_acts_at_once_on_a_run_that_lingers",
    "test_calls_without_end_do_not_hold_a_run_without_end",
    "test_two_apps_in_turn_share_a_thread_and_the_mark_of_who_asked_is_taken_back",
    "test_two_hosts_in_turn_on_one_thread_get_it_from_each_other_without_waiting_for_its_time_to_end",
    "test_what_waits_for_a_person_does_not_linger",
    "test_who_is_cancelled_while_a_run_is_being_taken_leaves_it_to_others",
]
