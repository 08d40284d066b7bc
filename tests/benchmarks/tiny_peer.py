"""An engine to be measured, in the form that `benchmarks.peers` starts: it does nothing, in no time."""

import json
import sys

_, what, _, runs, each = sys.argv
rate = {"count": int(runs) * int(each), "seconds": 0.5, "cpu": 0.25}
growth = {"early_bytes": 1000.0, "late_bytes": 4000.0, "early_ms": 1.0, "late_ms": 2.0}
sys.stdout.write(f"a line of its own\n{json.dumps(rate if what == 'rate' else growth)}\n")
