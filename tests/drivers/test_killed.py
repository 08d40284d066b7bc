"""Workers and Temporal's server are killed, in the middle of what they do, and nothing is done twice or lost."""

import signal

from tests.drivers import desk
from tests.drivers.floor import Floor
from tests.polling import eventually


def test_a_worker_killed_in_the_middle_of_an_effect_is_followed_at_once_by_another(own: Floor) -> None:
    dies = own.work(dies="place lamp:before,place lamp:applied:1")
    run = own.begin(desk.one, "lamp")
    own.died(dies)

    own.work()

    assert own.result(run) == "lamp placed"
    assert own.closed(run).name == "COMPLETED"
    assert own.judged() == []
