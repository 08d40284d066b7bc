"""The command line. Each command parses, makes one call, and renders; it decides nothing about runs.

`main` knows commands by name and place alone and loads the one that is asked for, so that help needs none of them.
`exits` holds every exit code. `settings` finds the store and the App, `opening` opens them, `printing` is all that
writes to a terminal. The commands of other surfaces are found under the entry-point group `milepost.commands`.
"""
