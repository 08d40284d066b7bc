"""Mutation testing of what the promise rests on: the core, the append path and the send path. `make mutants`."""
