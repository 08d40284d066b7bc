"""What Milepost is tested with, shipped so that users test their own workflows, tools and stores with it.

Its parts, of which only the last needs pytest:

  manual_clock        time that only a test moves, and chance that repeats
  world               outside services in processes of their own, with faults on purpose and ledgers of what they did
  check               journals against such a ledger: nothing lost, nothing repeated
  power_cut           what a disk may hold after the power went
  store_conformance   what every store must do, as pytest classes
"""
