"""How many threads numpy and torch compute with.

With small networks a second thread gains nothing, and costs up to twenty times the work itself as soon as another
process has its core: OpenMP's threads spin at every barrier until the missing one was scheduled.
"""

from __future__ import annotations

import torch
from threadpoolctl import threadpool_limits

_LIMITS: list[threadpool_limits] = []


def use_one_thread() -> None:
    """Keeps numpy's matrix products and torch's kernels in the calling thread, for the rest of this process."""
    if not _LIMITS:
        _LIMITS.append(threadpool_limits(limits=1, user_api="blas"))
    torch.set_num_threads(1)
