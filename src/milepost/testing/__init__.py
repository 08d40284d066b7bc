"""What Milepost is tested with, shipped so that users test their own workflows, tools and stores with it.

manual_clock        time that only a test moves, and chance that repeats
check               journals against an outside world's own ledger: nothing lost, nothing repeated
store_conformance   what every store must do, as pytest classes; it needs pytest, everything else here does not
"""
