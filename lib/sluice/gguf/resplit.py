"""Split a model into shards, and merge shards into one file.

Metadata go into the first shard; tensors keep their order and their bytes. Merging the shards gives
the original file byte for byte, if that was written as GGUF asks: without keys split.*, with zeros
for padding, and nothing after the last tensor. shards.py has the names and keys, and reads shards.
"""

import os

from ..faults import USAGE, Error
from ..limits import MAX_SHARDS
from ..system import files
from . import shards, write
from .file import File

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .file import File

PIECE = 4 << 20  # bytes of a tensor in memory


def split(
    file: "File",
    out: str,
    maximum: int,
    tensors_first: bool = True,
    tell: "Callable[[int], object]" = lambda n_bytes: None,
) -> list[str]:
    """Write a gguf.File as shards of at most `maximum` bytes, NAME-00001-of-000NN.gguf. Return
    the paths.

    out: NAME or NAME.gguf. tensors_first: the first shard may have tensors, not only metadata.
    tell: called with the number of bytes done. All shards appear, or none. Error 73 if one
    exists already; 64 if `maximum` is too small, naming the tensor or the metadata that need
    more; 73 to 75.
    """
    plan = _plan(file, maximum, tensors_first)
    prefix = os.fspath(out).removesuffix(".gguf")
    paths = [shards.name(prefix, i, len(plan)) for i in range(len(plan))]
    written, n_bytes = [], 0
    for i, (path, tensors) in enumerate(zip(paths, plan)):
        entries = _entries(file, tensors, tell)
        head = write.Head(_metadata(file, i, len(plan)), entries, file.alignment, file.version)
        n_bytes += head.n_bytes + write.data_bytes(entries, file.alignment)
        written.append((path, lambda f, head=head, entries=entries: _fill(f, file, head, entries)))
    write.check_disk_space(paths[0], n_bytes)
    files.write_all(written)
    return paths


def merge(file: "File", out: str, tell: "Callable[[int], object]" = lambda n_bytes: None) -> None:
    """Write all shards of a gguf.File as one file. Error 73 to 75."""
    metadata = {key: ("raw", file.raw(key)) for key in file.metadata if key not in shards.KEYS}
    write.write(
        out,
        metadata,
        _entries(file, file.tensors.values(), tell),
        file.alignment,
        file.check_unchanged,
        file.version,
    )


def _fill(f, file, head, entries):
    write.fill_file(f, head, entries, file.alignment)
    file.check_unchanged()


def lost(file: "File") -> list[str]:
    """Return a line (str) for each part of a gguf.File that a copy leaves out."""
    out = [
        f"{file.path}: {key} is left out"
        for key in shards.KEYS
        if key in file.metadata and len(file.parts) == 1
    ]
    for part in file.parts[1:]:
        for key in File(part.path, alone=True).metadata:
            if key not in (*shards.KEYS, "general.alignment"):
                out.append(f"{part.path}: {key} is left out: metadata are those of the first shard")
    for part in file.parts:
        end = max(
            [t.offset + t.n_bytes for t in file.tensors.values() if t.part is part],
            default=part.data_offset,
        )
        n_more = part.size - end - write.padding(end - part.data_offset, file.alignment)
        if n_more > 0:
            out.append(f"{part.path}: {n_more} bytes behind the last tensor are left out")
    return out


def _entries(file, tensors, tell):
    return [(t.name, t.type, t.dims, lambda t=t: _pieces(file, t, tell)) for t in tensors]


def _pieces(file, t, tell):
    for at in range(0, t.n_bytes, PIECE):
        n_bytes = min(PIECE, t.n_bytes - at)
        yield file.read(t, at, n_bytes)
        tell(n_bytes)


def _metadata(file, i, count):
    """Return the metadata of shard `i` (from 0), in the form of write.Head."""
    of_shard = {
        shards.NO: ("u16", i),
        shards.COUNT: ("u16", count),
        shards.TENSORS: ("i32", len(file.tensors)),
    }
    kept = (
        file.metadata if i == 0 else [key for key in ("general.alignment",) if key in file.metadata]
    )
    return {**{key: ("raw", file.raw(key)) for key in kept if key not in shards.KEYS}, **of_shard}


def _plan(file, maximum, tensors_first):
    """Return the tensors of each shard: a list of lists of Tensor."""
    first = write.Head(_metadata(file, 0, 1), [], file.alignment, file.version)
    other = write.Head(_metadata(file, 1, 1), [], file.alignment, file.version)
    if first.n_bytes > maximum:
        raise Error(
            USAGE, f"--split-bytes: the metadata of {file.path} need {first.n_bytes:,} bytes"
        )
    padded = lambda n: n + write.padding(n, file.alignment)
    out = [[]] if tensors_first else [[], []]
    n_head, n_data = (first if tensors_first else other).n_bare, 0
    for t in file.tensors.values():
        n_entry, n_tensor = len(write.tensor_entry(t.name, t.type, t.dims, 0)), padded(t.n_bytes)
        if padded(n_head + n_entry) + n_data + n_tensor > maximum and (out[-1] or len(out) == 1):
            out.append([])
            n_head, n_data = other.n_bare, 0
        n_head, n_data = n_head + n_entry, n_data + n_tensor
        if padded(n_head) + n_data > maximum:
            raise Error(
                USAGE,
                f"--split-bytes: tensor {t.name} needs {padded(n_head) + n_data:,} bytes "
                "in a shard of its own",
            )
        out[-1].append(t)
    if len(out) > MAX_SHARDS:
        raise Error(USAGE, f"--split-bytes: {len(out)} shards, more than {MAX_SHARDS}")
    return out
