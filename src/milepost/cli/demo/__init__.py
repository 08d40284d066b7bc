"""The demo: a refund desk whose worker is killed again and again, and whose outside world keeps its own books.

What is here, from the outside in:

* `payments` and `mail` are the outside world: two processes that know nothing of Milepost, each with a ledger of its
  own. They misbehave on purpose, by the seeded plan in `faults`.
* `outside` starts and stops them; `tally` counts what they applied. Every figure about duplicates and losses comes from
  their ledgers, never from what the desk believes of itself. The one exception is the note that the desk makes in its
  own store: its table is read there, past Milepost.
* `tickets` and `model` are the work: a shipped file of tickets and a scripted model that decides on each.
* `desk` is the desk as a Milepost workflow, `desk_worker` its process, `desk_record` how its record is read meanwhile.
* `naive` is the desk as it is often written, with plain retries and a file of finished tickets.
* `killer` runs a worker, sends it SIGKILL at seeded moments, and starts it again.
* `run` puts them together, `outcome` judges, `report` and `show` print, `command` is `milepost demo`.
"""
