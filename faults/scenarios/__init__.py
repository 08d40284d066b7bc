"""One scenario for each fault of docs/FAULTS.md, and for each store that it concerns."""

from faults.scenarios import (
    answers,
    approvals_attacked,
    authority,
    clocks,
    damage,
    disk,
    hostility,
    killing,
    outage,
    postgres,
    temporal,
    workers,
)
from faults.scoreboard import Fault

FAULTS: tuple[Fault, ...] = (
    *killing.FAULTS,
    *answers.FAULTS,
    *workers.FAULTS,
    *disk.FAULTS,
    *damage.FAULTS,
    *clocks.FAULTS,
    *authority.FAULTS,
    *approvals_attacked.FAULTS,
    *outage.FAULTS,
    *hostility.FAULTS,
    *postgres.FAULTS,
    *temporal.FAULTS,
)
