"""Named arrays in one uncompressed .npz file, written as a stream; `numpy.load` opens it without pickle.

Written by hand because `numpy.savez` mistakes some names (`file`, or `a` beside `a.npy`), and because a stream lets
a checkpoint be hashed and sent on while it is written, without a second copy in memory.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

_SUFFIX = ".npy"
# Members near 2 GiB need the zip64 form, and on a stream the choice must be made before the size is known.
_ZIP64_BYTES = 2**30


def write_arrays(stream: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `arrays` to `stream`; equal arrays give equal bytes (no time stamps).

    Raises:
        OSError: the stream could not take it all.
        ValueError: an array of Python objects.
    """
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(name + _SUFFIX)  # its date is fixed: 1980
            with archive.open(member, "w", force_zip64=array.nbytes >= _ZIP64_BYTES) as out:
                npy.write_array(out, array, allow_pickle=False)


def read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a file that `write_arrays` wrote, each one writable.

    Raises:
        ValueError: not such a file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {member.filename.removesuffix(_SUFFIX): _read(archive, member) for member in archive.infolist()}
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
        raise ValueError(f"not a readable .npz file: {error}") from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    # Compressed members are never written here; reading one could make gigabytes out of kilobytes.
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(_SUFFIX):
        raise ValueError(f"member {member.filename!r} is not an uncompressed .npy file")
    with archive.open(member) as source:
        array: np.ndarray = npy.read_array(source, allow_pickle=False)
    return array
