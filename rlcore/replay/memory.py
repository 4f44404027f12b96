"""What replay will take, before it takes it."""

from __future__ import annotations

import os
from pathlib import Path

import gymnasium as gym
import numpy as np

from rlcore.errors import UserError
from rlcore.replay.frames import worth_splitting

# Atari frames of 84x84 shrink 10 to 40 times with LZ4; noise does not at all. An estimate that is wrong by little for
# the usual images.
PLANE_RATIO = 8.0
# Rewards, discounts, a mask and the sum tree, and the plane numbers of an image.
ROW_OVERHEAD_BYTES = 48
SHARE_OF_FREE = 0.9


def transition_bytes(observations: gym.spaces.Box, action_bytes: int, *, split_frames: bool) -> int:
    """About what one transition takes in replay, in bytes."""
    each = int(np.prod(observations.shape)) * np.dtype(observations.dtype).itemsize
    if split_frames and worth_splitting(observations):
        planes = observations.shape[0]
        # One new plane a step, as in a stack of gray frames.
        return int(each / planes / PLANE_RATIO) + 8 * planes + action_bytes + ROW_OVERHEAD_BYTES
    return 2 * each + action_bytes + ROW_OVERHEAD_BYTES


def free_bytes() -> int:
    """Memory that this machine, or this container, can still give."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        free = int(lines.get("MemAvailable", f"{free // 1024} kB").split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return max(0, free)


def require_room(capacity: int, each_bytes: int, free: int) -> None:
    """Refuses a replay that cannot fit.

    Raises:
        UserError: with the estimate, and the capacity that fits.
    """
    needed = capacity * each_bytes
    if needed <= SHARE_OF_FREE * free:
        return
    fits = int(SHARE_OF_FREE * free / each_bytes)
    raise UserError(
        f"spec.config.replayCapacity: {capacity:,} transitions of about {each_bytes:,} bytes need "
        f"{needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free here",
        hint=f"about {fits:,} fit; images are kept once with replayFrames",
    )
