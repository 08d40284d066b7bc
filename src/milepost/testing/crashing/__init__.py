"""Disturbing a user's own workflow at its named points, and judging what came of it. See `everywhere`.

points      what a kill point is, and the fuse that burns at one
watching    the store between its kill points, and time that leaps
tooling     kill points inside the code of tools
worker      what a forked process does; lives: how it is forked, killed, frozen
seen        the outside's books and the journals, side by side
tries       one try after the other, some at once, each judged against the undisturbed run
reasons     the mistake that most probably shows in this way; report: what a test asserts
"""
