"""Shards of a split model, NAME-00001-of-000NN.gguf, opened as one file.

Source: llama.cpp, gguf-split. Every shard has the keys `split.no` (from 0), `split.count` and
`split.tensors.count` (of all shards together). The first shard has the metadata of the model, and
may have no tensors. A count of 0 or 1 means a whole file (gguf-split --merge writes 0).
"""

from ..faults import NO_INPUT, Error, unsupported_error
from ..limits import MAX_SHARDS
from ..system.shard_names import name, parse
from .metadata import MAX_SCAN_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .file import File

NO, COUNT, TENSORS = KEYS = ("split.no", "split.count", "split.tensors.count")


def join(file: "File") -> None:
    """Make `file`, a gguf.File of one shard, the whole model.

    Error 65, 66 or 69 names the shard that is missing or belongs to another model.
    """
    no, count = file.get(NO, "u32", 0), file.get(COUNT, "u32")
    if no >= max(count, 1):
        raise file.data_error(f"{NO}: {no}, but {COUNT} is {count}")
    if count <= 1:
        return
    if count > MAX_SHARDS:
        raise unsupported_error(file.path, f"{COUNT}: {count} shards, more than {MAX_SHARDS}")
    prefix = _prefix(file, no, count)
    first = file if no == 0 else _open(file, prefix, 0, count)
    parts, tensors, n_head, n_scanned = [], {}, 0, 0
    for i in range(count):
        shard = first if i == 0 else file if i == no else _open(file, prefix, i, count)
        _check(shard, i, first)
        _add_tensors(shard, tensors, first)
        parts.append(shard.parts[0])
        n_head, n_scanned = n_head + len(parts[-1].head), n_scanned + shard.n_scanned
        if n_head > file.MAX_METADATA_BYTES:
            maximum = file.MAX_METADATA_BYTES >> 20
            raise shard.data_error(f"metadata of more than {maximum} MiB in all shards")
        if n_scanned > MAX_SCAN_BYTES:
            raise unsupported_error(
                shard.path,
                f"arrays of strings of more than {MAX_SCAN_BYTES >> 30} GiB in all shards",
            )
        if i:
            parts[-1].head = bytes(parts[-1].head)  # frees the memory reserved for it
    if len(tensors) != first.get(TENSORS, "u32"):
        n = first.get(TENSORS, "u32")
        raise first.data_error(f"{TENSORS}: {n}, but the {count} shards have {len(tensors)}")
    file.version, file.alignment, file.metadata, file.kinds, file._spans = (
        first.version,
        first.alignment,
        first.metadata,
        first.kinds,
        first._spans,
    )
    file.parts, file.tensors = parts, tensors


def _prefix(file, no, count):
    """Return the common start of the names of all shards."""
    found = parse(file.path)
    if not found:
        raise file.data_error(
            f"{COUNT}: this is one of {count} shards, but its name does not end in "
            f"{name('', no, count)} (shards are joined by gguf-convert --merge, "
            "not by cat)"
        )
    if int(found[3]) != count:
        raise file.data_error(f"{COUNT}: {count}, but the name says {int(found[3])}")
    if int(found[2]) != no + 1:
        raise file.data_error(
            f"{NO}: {no}, which is shard {no + 1} of {count}, but the name says {int(found[2])}"
        )
    return found[1]


def _open(file, prefix, i, count):
    path = name(prefix, i, count)
    try:
        return type(file)(path, alone=True)
    except FileNotFoundError:
        raise Error(NO_INPUT, f"{path}: missing: shard {i + 1} of {count} of the model") from None


def _check(shard, i, first):
    """DataError unless `shard` is number `i` (from 0) of the model of `first`."""
    for key, wanted in (
        (NO, i),
        (COUNT, first.get(COUNT, "u32")),
        (TENSORS, first.get(TENSORS, "u32")),
    ):
        found = shard.get(key, "u32", 0 if key == NO else ...)
        if found != wanted:
            raise shard.data_error(
                f"{key}: {found}, expected {wanted} in shard {i + 1} of {first.path}"
            )
    for key, value in shard.metadata.items():
        if key in (NO, "general.alignment") or type(value) not in (bool, int, float, str):
            continue
        if first.metadata.get(key, value) != value:
            raise shard.data_error(
                f"{key}: differs from that of {first.path}: a shard of another model"
            )


def _add_tensors(shard, tensors, first):
    for key, tensor in shard.tensors.items():
        if key in tensors:
            raise shard.data_error(f"tensor {key}: is in {tensors[key].part.path}, too")
        tensors[key] = tensor
    if len(tensors) > shard.MAX_TENSORS:
        maximum = shard.MAX_TENSORS
        raise shard.data_error(f"{len(tensors)} tensors in all shards so far, more than {maximum}")
