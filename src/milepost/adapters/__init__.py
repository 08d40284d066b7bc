"""Milepost under the frameworks that people already use.

A framework keeps its own control flow; each of its tool calls goes through an attached run, under the framework's own
id of the call. One rule decides how: inside a parallel batch a call that has to wait *parks*, in the framework's own
way, and never raises, because an exception there cancels its siblings in the middle of what they do, which makes new
unknowns.
"""
