"""Reads columns of paceline's HDF5 files that may be damaged, or that a writer is appending to."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Iterator, List, Mapping

import h5py
import numpy as np

from .records import ReaderError

#: Some file systems of clusters have no locks. None is needed: a final file does not change, and one
#: that grows is made for it (SWMR). Old versions of h5py know no such setting.
HAS_LOCKING = hasattr(h5py.h5p.PropFAID, "set_file_locking")

#: What h5py, numpy and json raise on a damaged file.
H5_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError, IndexError, AttributeError)


@contextlib.contextmanager
def guarded(path: str, what: str) -> Iterator[None]:
    """What goes wrong inside becomes a ReaderError: h5py raises all kinds on a damaged file."""
    try:
        yield
    except (ReaderError, *H5_ERRORS) as error:
        if isinstance(error, ReaderError) and str(error).startswith(path):
            raise
        raise ReaderError(f"{path}: {what}: {error}") from error


def opened(path: str, what: str) -> h5py.File:
    """The file, to be read.

    Raises ReaderError on what is there but is not HDF5, and OSError on what is not there.
    """
    try:
        try:
            return h5py.File(path, "r")
        except OSError as error:  # with a lock as a rule: HDF5 wants all who open a file to agree
            if not (HAS_LOCKING and "lock" in str(error)):
                raise
            return h5py.File(path, "r", locking=False)
    except OSError as error:
        if error.errno is not None:  # the system's
            raise
        raise ReaderError(f"{path}: {what}: {error}") from error


def patient_access() -> h5py.h5p.PropFAID:
    """How to open a file that a SWMR writer may be appending to, or was killed while appending to.

    HDF5 reads again what it finds half written, 100 times by default, each time after twice the
    wait: on a damaged file that never ends. 20 times take about a millisecond. h5py does not offer
    the setting, so it is made in the library that h5py is linked with.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    if HAS_LOCKING:
        access.set_file_locking(False, True)
    set_attempts = ctypes.CDLL(h5py.h5p.__file__).H5Pset_metadata_read_attempts
    set_attempts.argtypes = (ctypes.c_int64, ctypes.c_uint)
    if set_attempts(access.id, 20) < 0:
        raise ReaderError("HDF5 refuses the number of attempts at reading metadata")
    return access


#: To a byte that deflate has written.
MOST_DEFLATED = 1032


def column_of(
    group: Mapping[str, h5py.Dataset], name: str, compressed: bool = False
) -> h5py.Dataset:
    """A dataset of one dimension that its file has room for, whatever it says itself."""
    column = group[name]
    if not isinstance(column, h5py.Dataset) or column.ndim != 1 or column.dtype.hasobject:
        raise ReaderError(f"{name} is not a dataset of the kind that paceline writes")
    size = len(column) * column.dtype.itemsize
    if column.compression == "gzip" and compressed:
        size = -(-size // MOST_DEFLATED)
    elif column.id.get_create_plist().get_nfilters():
        raise ReaderError(f"{name} is not a dataset of the kind that paceline writes")
    if size > os.path.getsize(column.file.filename):
        raise ReaderError(f"{name} is larger than its file")
    return column


def strings_of(group: Mapping[str, h5py.Dataset], name: str) -> List[str]:
    """Stored as their bytes, one after the other, and offsets."""
    text = column_of(group, name)[:].tobytes()
    offsets = column_of(group, name + "_offsets")[:]
    if len(offsets) == 0 or not are_offsets(offsets, len(offsets) - 1) or offsets[-1] != len(text):
        raise ReaderError(f"the offsets of {name} are damaged")
    return [text[begin:end].decode() for begin, end in zip(offsets[:-1], offsets[1:])]


def are_offsets(offsets: np.ndarray, count: int) -> bool:
    return len(offsets) == count + 1 and offsets[0] == 0 and bool(np.all(np.diff(offsets) >= 0))
