"""Asking the operating system about processes that a test started."""

import os


def is_gone(pid: int) -> bool:
    """Whether there is no such process any more. One that ended counts only once it was waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
