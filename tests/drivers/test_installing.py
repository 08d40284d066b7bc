"""The driver says what to install where Temporal's package is missing."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["temporalio"] = None  # as where it is not installed
from milepost.drivers.temporal import serve
"""


def test_without_the_extra_the_driver_says_how_to_install_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install 'milepost[temporal]'")
