"""Drivers: engines that schedule, each with runs of ours to drive. One module or package an engine, one extra each."""
