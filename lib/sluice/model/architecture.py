"""Architecture records: everything that distinguishes one family of models from another.

architectures/NAME.py has one record, ARCHITECTURE; NAME is general.architecture of its GGUF files.
The engine (hparams.py, weights.py, model.py), gguf-convert (convert/hf) and sluice-bench read the
record and test no name. README.md in this directory shows how to add one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any
    from typing import NamedTuple as Record

    from .forward import Forward, Rows
    from .interfaces import Config, Hparams, Keys, Model, Sizes
else:

    class Record:
        """A NamedTuple without `typing`, which takes longer to import than an
        architecture. A subclass lists the fields; those with a value there may be left out.
        """

        def __init__(self, **fields):
            known, usual = type(self).__annotations__, vars(type(self))
            for name in known.keys() | fields:
                if name not in known:
                    raise TypeError(f"{type(self).__name__} has no field {name}")
                if name not in fields and name not in usual:
                    raise TypeError(f"{type(self).__name__} lacks the field {name}")
            self.__dict__.update({name: fields.get(name, usual.get(name)) for name in known})

        def __setattr__(self, name, value):
            raise AttributeError(f"{name}: a record does not change")

        def _replace(self, **changes):
            return type(self)(**self.__dict__ | changes)


# Sizes that the shape of a block's tensor may name. `h` has n_embd, n_ff, n_head, n_head_kv and
# head_dim: an Hparams, a Config of gguf-convert, or a Shape of sluice-bench.
SIZES: dict[str, Callable[[Sizes], int]] = {
    "n_embd": lambda h: h.n_embd,
    "n_ff": lambda h: h.n_ff,
    "n_q": lambda h: h.n_head * h.head_dim,
    "n_kv": lambda h: h.n_head_kv * h.head_dim,
    "head_dim": lambda h: h.head_dim,
    "n_vocab": lambda h: getattr(h, "n_vocab", 0),
    "n_ple": lambda h: getattr(h, "n_ple", 0),
    "n_ple_all": lambda h: getattr(h, "n_ple", 0) * getattr(h, "n_layer", 0),
    "one": lambda h: 1,
    # of blocks with a short convolution: columns, and taps
    "n_conv": lambda h: getattr(h, "n_conv", 0),
    "n_conv_3": lambda h: 3 * getattr(h, "n_conv", 0),
    "n_tap": lambda h: getattr(h, "n_tap", 0),
    # queries and their gates; of blocks with a delta net: queries, keys and values; values; heads
    # of values, and elements of a head
    "n_q_2": lambda h: 2 * h.n_head * h.head_dim,
    "n_mixed": lambda h: 2 * getattr(h, "n_key", 0) + getattr(h, "n_value", 0),
    "n_value": lambda h: getattr(h, "n_value", 0),
    "n_delta": lambda h: getattr(h, "n_delta", 0),
    "d_delta": lambda h: getattr(h, "d_delta", 0),
}
POOLINGS = "last", "mean", "cls"  # which hidden states make a text's vector (embed/embedder.py)
# tensors without ".weight", in a GGUF and in a checkpoint
WHOLE_NAMES = "ssm_a", "ssm_d", "linear_attn.A_log", "linear_attn.dt_bias", "layer_scalar"
# kinds of scaling in a config.json
ROPES = ("none", "linear", "llama3", "yarn", "longrope", "proportional")


def no_window(h: Hparams, keys: Keys) -> None:
    """Refuse a window that hides a position (69). A window as long as the context is ignored.

    Published configurations of Qwen have a window and do not use it, converters leave it out,
    and no key says in which blocks it applies.
    """
    if 0 < keys.int("attention.sliding_window", 0, keys.MAX_CONTEXT, 0) < h.n_ctx:
        raise keys.unsupported_error("attention.sliding_window is set: not supported by this build")


class HuggingFace(Record):
    """Checkpoints of the family in Hugging Face folders, for gguf-convert.

    models     model_type of config.json -> classes of transformers that `architectures` may name;
               the first is the default. A class without an output head ends in "Model"
    text_models      further values of model_type that a text_config may have
    names      tensor of a block in a GGUF -> its name within a layer of the checkpoint, in the
               order of the GGUF that is written. A name of `fused` stands for all its parts
    globals    the same of tensors outside the blocks, behind the prefix of layers
    parts      tensors of a layer that are several of `names`: name -> the parts, of equal rows
    lacks      (tensors of block i that are not in the checkpoint, tensors that may be absent)
    defaults   values that config.json may leave out, as in transformers
    activations   accepted values of hidden_act; the first is the default
    ropes      kinds of RoPE scaling, of ROPES; with "longrope" the GGUF always has
               rope.scaling.original_context_length
    rope_values      numbers of the RoPE scaling that `keys` writes, as Config.rope_value has them
    partial_rotary   whether partial_rotary_factor may differ from 1
    local_rope       whether local blocks have a RoPE of their own: rope.freq_base_swa
    norms_lack_one   whether 1 must be added to the stored gains of norms; whole_norms: not to these
    negated_exp   tensors that are stored as the logarithm of their negative
    output_norm   name of the norm after the last layer, behind the prefix of layers
    other_names   keys of config.json that the family calls otherwise: usual name -> its own
    n_ff       intermediate_size in fact, of what config.json says
    head_dim   elements of a head; of global layers, if those of local layers have other ones
    block      sizes of block i, for families whose blocks differ
    order      order in which elements of a tensor of a block are written, (of rows, of elements of
               a row), each a list of their numbers in the checkpoint, or None: the same
    space_prefix     False: the GGUF says that no space is put before a text
    merges_model     tokenizer.ggml.model of SentencePiece's texts with a list of merges, whose
                     texts begin with BOS; "": they become "llama", with scores
    visible    control tokens that the GGUF has as user-defined pieces: they appear in output
    refuse     raises UnsupportedError for values of config.json that no key of a GGUF can express
    keys       keys below the architecture's name beyond those of every family -> (kind, value)
    """

    models: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]
    text_models: tuple[str, ...] = ()
    globals: Mapping[str, str] = {}
    parts: Mapping[str, tuple[str, ...]] = {}
    lacks: Callable[[Config, int], tuple[tuple[str, ...], tuple[str, ...]]] = lambda c, i: ((), ())
    defaults: Mapping[str, Any] = {}
    activations: tuple[str, ...] = ("silu",)
    ropes: tuple[str, ...] = ("none", "linear", "llama3", "yarn")
    rope_values: tuple[str, ...] = ()
    partial_rotary: bool = False
    local_rope: bool = False
    norms_lack_one: bool = False
    whole_norms: tuple[str, ...] = ()
    negated_exp: tuple[str, ...] = ()
    output_norm: str = "norm"
    other_names: Mapping[str, str] = {}
    n_ff: Callable[[Config], int] = lambda c: c.int("intermediate_size")
    head_dim: Callable[[Config], int] = lambda c: c.int("head_dim", max(1, c.n_embd // c.n_head))
    block: Callable[[Config, int], Sizes] = lambda c, i: c
    order: Callable[[Config, str], tuple[list[int] | None, list[int] | None]] = lambda c, name: (
        None,
        None,
    )
    space_prefix: bool = True
    merges_model: str = ""
    visible: tuple[str, ...] = ()
    refuse: Callable[[Config], None] = lambda c: None
    keys: Callable[[Config], dict[str, tuple[str, Any]]] = lambda c: {}


class Architecture(Record):
    """One family of models.

    name       general.architecture, and the name of the file
    layers     function of a Model and a Forward that has begun a chunk: the forward pass from the
               embedding to the last block. Returns Rows [n_last, n_embd], f32: the hidden states of
               the tokens whose logits are needed
    tensors    tensors of a block -> sizes of SIZES, in GGUF order (row length first). A name is
               that of a weight, or ends in ".bias". Matrices may have any type, vectors are f32.
               sluice-bench writes its models, which are cached by digest, in this order
               A tensor with a size of 0 does not exist. Layer has None for it
    globals    further tensors outside the blocks, as `tensors`: attributes of Weights
    may_lack   function of an Hparams and a block's number: the tensors it may lack
    varies     keys whose number may differ from block to block, of feed_forward_length and
               attention.head_count_kv; `rules` then sets the blocks of the Hparams, and refuses 0
               or sets the states of blocks without keys and values
    rules      reads the metadata beyond sizes and sets window, pattern, attn_cap, final_cap, scale
               and rope_local of an Hparams. Keys checks each key's range and default. Keys that
               change results and were not read are refused
    floats     matrices that are F32 in every file: const float * in a Layer
    output_norm     name of the norm after the last block
    unused_blocks   key that says how many of the last blocks are not run, or ""
    fused      tensors whose rows may be stored as one: name of the whole -> names of the parts, in
               the order of their rows
    neighbours RoPE pairs are neighbours (2 i, 2 i + 1), and gguf-convert puts rows of queries and
               keys in that order. Otherwise the elements of a pair are half the rotated part apart
    pooling    of a text's vector, unless the metadata name one: a name of POOLINGS
    hugging_face   the checkpoints
    """

    name: str
    layers: Callable[[Model, Forward], Rows]
    tensors: Mapping[str, tuple[str, ...]]
    hugging_face: HuggingFace
    rules: Callable[[Hparams, Keys], None] = no_window
    globals: Mapping[str, tuple[str, ...]] = {}
    may_lack: Callable[[Hparams, int], tuple[str, ...]] = lambda h, i: ()
    varies: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    output_norm: str = "output_norm"
    unused_blocks: str = ""
    fused: Mapping[str, tuple[str, ...]] = {"attn_qkv": ("attn_q", "attn_k", "attn_v")}
    neighbours: bool = False
    pooling: str = "mean"

    def shapes(self, h: Sizes) -> dict[str, tuple[int, ...]]:
        """Return full names of a block's tensors, below "blk.N." -> elements, in GGUF
        order.

        h: an object with the sizes of SIZES.
        """
        return shapes(self.tensors, h)

    def stored_shapes(self, h: Sizes) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the tensors of a block in the checkpoint, in the order of
        hugging_face.names.

        A dict: full name in the GGUF -> (full name in the layer, elements in GGUF order).
        h: an object with the sizes of SIZES.
        """
        shapes, names, out = self.shapes(h), self.hugging_face.names, {}
        for name, stored_name in names.items():
            parts = self.fused.get(name, ())
            if full_name(parts[0] if parts else name) not in shapes:
                continue  # not in this block
            if not parts or parts[0] in names:
                shape = shapes[full_name(name)]
            else:
                n_in, n_out = zip(*(shapes[full_name(part)] for part in parts))
                shape = n_in[0], sum(n_out)
            out[full_name(name)] = full_name(stored_name), shape
        return out


def shapes(tensors: Mapping[str, tuple[str, ...]], h: Sizes) -> dict[str, tuple[int, ...]]:
    """Return full names -> elements of the tensors that exist with the sizes of `h`."""
    out = {full_name(name): tuple(SIZES[size](h) for size in tensors[name]) for name in tensors}
    return {name: shape for name, shape in out.items() if 0 not in shape}


def full_name(name: str) -> str:
    """Return the name with its kind: "attn_q" -> "attn_q.weight"; "attn_q.bias" is unchanged, and
    so are WHOLE_NAMES.
    """
    return name if name.endswith(".bias") or name in WHOLE_NAMES else name + ".weight"


def check(record: Architecture) -> None:
    """Raise a ValueError that names the field if a record contradicts itself."""

    def must(holds: bool, problem: str) -> None:
        if not holds:
            raise ValueError(f"architecture {record.name}: {problem}")

    tensors, names = record.tensors, record.hugging_face.names
    for name, sizes in record.globals.items():
        must(len(sizes) in (1, 2) and set(sizes) <= SIZES.keys(), f"globals: {name}: {sizes}")
    for name, sizes in tensors.items():
        must(len(sizes) in (1, 2) and set(sizes) <= SIZES.keys(), f"tensors: {name}: {sizes}")
        weight = name.removesuffix(".bias")
        must(
            weight == name or name == "ssm_dt.bias" or tensors.get(weight, ())[1:] == sizes,
            f"tensors: {name} does not fit {weight}",
        )
    for whole, parts in record.fused.items():
        must(set(parts) <= tensors.keys(), f"fused: {whole}: no such tensors as {parts}")
    fused = {name for name, parts in record.fused.items() if parts[0] not in names}
    found = [part for name in names for part in (record.fused[name] if name in fused else [name])]
    must(sorted(found) == sorted(tensors), "names and tensors are not the same")
    must(
        record.hugging_face.globals.keys() == record.globals.keys(),
        "globals: those of the checkpoints are not the same",
    )
    must(
        not record.neighbours or not {"attn_q.bias", "attn_k.bias", "attn_qkv"} & names.keys(),
        "neighbours: gguf-convert permutes neither biases nor fused matrices",
    )
    must(record.pooling in POOLINGS, f"pooling: {record.pooling}")
    must(set(record.hugging_face.ropes) <= set(ROPES), f"ropes: {record.hugging_face.ropes}")
