"""Scalars in TensorBoard's event file format, written directly.

TensorBoard's own writer imports its whole summary API (a second, and TensorFlow where that is installed) and hands
events to a thread that hides write errors. The file format is small: framed records, each a serialized `Event`.
The frame is TFRecord's: length (uint64), masked CRC-32C of it, data, masked CRC-32C of that; all little-endian.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from rlcore.metrics.append_file import AppendFile

_CRC32C_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC32C_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    """CRC-32C of `data`, rotated and offset as TFRecord wants it (so that a CRC of CRCs stays useful)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_bytes(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))


class EventFile:
    """One new event file in `directory`; scalars are on their way to the disk when `scalars` returns.

    Args:
        purge_from: hide what earlier files of this directory say about this timestep and later ones; a run that
            resumed from a checkpoint passes through them again.

    Raises:
        ImportError: tensorboard is not installed.
        OSError: the file cannot be made (and, from `scalars`, cannot be written).
    """

    def __init__(self, directory: Path, purge_from: int | None = None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        directory.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a directory in the order of their names: zero-padded time comes first.
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = AppendFile(directory / name)
        self._append(self._event(wall_time=now, file_version="brain.Event:2"))
        if purge_from is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._append(self._event(wall_time=now, step=purge_from, session_log=start))

    def scalars(self, values: Mapping[str, float], timesteps: int) -> None:
        """Write one point of each tag at `timesteps`."""
        summary = self._summary(
            value=[self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        )
        self._append(self._event(wall_time=time.time(), step=timesteps, summary=summary))

    def close(self) -> None:
        self._file.close()

    def _append(self, event: object) -> None:
        data: bytes = event.SerializeToString()  # type: ignore[attr-defined]
        header = struct.pack("<Q", len(data))
        self._file.append(b"".join([header, _crc_bytes(header), data, _crc_bytes(data)]))
