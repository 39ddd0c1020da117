"""How many CPU threads Torch uses, in whichever thread of this process calls it.

`torch.set_num_threads` alone is not enough: OpenMP keeps the number for each thread that calls it, and a thread that
never set it takes as many as there are cores, whatever `torch.get_num_threads` says. Two threads on two busy cores make
a small matrix product ten times slower, and slow the env clients down as well.
"""

import threading

_wanted: int | None = None
_of_this_thread = threading.local()


def use_threads(count: int) -> int:
    """Choose the number for all threads of this process, and set it in this one.

    Returns:
        How many there were.
    """
    import torch

    global _wanted
    before = torch.get_num_threads()
    _wanted = count
    settle()
    return before


def settle() -> None:
    """Set the chosen number in this thread, unless it is; whoever may be called by any thread begins with this."""
    if getattr(_of_this_thread, "count", None) != _wanted and _wanted is not None:
        import torch

        torch.set_num_threads(_wanted)
        _of_this_thread.count = _wanted
