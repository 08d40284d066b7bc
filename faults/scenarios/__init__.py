"""One scenario for each fault of docs/FAULTS.md that concerns one machine."""

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
)
