"""Vocabulary of a Hugging Face folder: tokenizer.model or tokenizer.json, and special tokens."""

from __future__ import annotations

import os

from ...faults import data_error, printable
from ..llama2c import vocabulary
from ..reader import parse_json, read_json, read_small
from ..tensor import Metadata
from . import sentencepiece, tokenizer_json
from .config import Config

MAX_JSON_BYTES, MAX_TEMPLATE_BYTES = 16 << 20, 1 << 20
KEY = "tokenizer.ggml."


def metadata(folder: str, c: Config) -> Metadata:
    """Return the tokenizer.ggml keys for the Config `c`: dict key -> (kind, value)."""
    model, fast = (os.path.join(folder, name) for name in ("tokenizer.model", "tokenizer.json"))
    settings = _optional(folder, "tokenizer_config.json")
    if c.hf.merges_model and not os.path.lexists(fast):
        raise data_error(folder, "has no tokenizer.json")
    spm = os.path.lexists(model) and not c.hf.merges_model
    if spm and (vocabulary.kind(model) == "model" or not os.path.lexists(fast)):
        out = _sentencepiece(folder, sentencepiece.Model(model), c, settings)
        first = last = ...  # this kind of file does not say
    elif os.path.lexists(fast):
        file = tokenizer_json.File(fast, c.hf.merges_model)
        out, first, last = file.metadata(c.n_vocab), file.bos_first, file.eos_last
    else:
        raise data_error(folder, "has no tokenizer.model and no tokenizer.json")
    out.update(_special(folder, c, out, settings))
    out.update(_last(out, last))
    out.update(_flags(out, settings, first, last))
    if c.hf.merges_model and KEY + "bos_token_id" in out:
        out[KEY + "add_bos_token"] = ("bool", True)
    _show(out, c.hf.visible)
    if not c.hf.space_prefix:
        out[KEY + "add_space_prefix"] = ("bool", False)
    return {**out, **_template(folder, settings)}


def _optional(folder, name):
    path = os.path.join(folder, name)
    return read_json(path, MAX_JSON_BYTES) if os.path.lexists(path) else {}


def _sentencepiece(folder, model, c, settings):
    """Return the pieces of the model, added tokens, and [PADi] for rows without a token."""
    n = c.n_vocab
    if len(model.tokens) > n:
        raise data_error(model.path, f"{len(model.tokens)} pieces, but the model has {n} rows")
    for i in range(len(model.tokens), n):
        model.tokens.append(b"[PAD%d]" % i), model.scores.append(-10000.0), model.types.append(5)
    for i, (token, special) in sorted(_added(folder, settings).items()):
        if i < n and model.types[i] not in (2, 6):
            if model.tokens[i] != token.encode() or model.types[i] == 1:
                model.scores[i] = -1000.0
            model.tokens[i], model.types[i] = (
                token.encode(),
                3 if special or model.types[i] == 3 else 4,
            )
    return model.metadata()


def _added(folder, settings):
    """Return a dict of added_tokens.json and tokenizer_config.json: token ID -> (token, whether
    it is a control token).
    """
    out = {}
    for token, i in _optional(folder, "added_tokens.json").items():
        if type(i) is not int or i < 0:
            raise data_error(
                os.path.join(folder, "added_tokens.json"),
                f"{printable(token, 40)}: its ID is {printable(str(i), 40)}",
            )
        out[i] = token, True
    entries = settings.get("added_tokens_decoder") or {}
    for i, e in entries.items() if isinstance(entries, dict) else ():
        if not (
            i.isascii()
            and i.isdigit()
            and len(i) < 9
            and isinstance(e, dict)
            and isinstance(e.get("content"), str)
        ):
            raise data_error(
                os.path.join(folder, "tokenizer_config.json"),
                f"added_tokens_decoder: {printable(i, 40)} lacks id or content",
            )
        out[int(i)] = e["content"], bool(e.get("special"))
    return out


def _special(folder, c, out, settings):
    """Set the keys of special tokens: by name in tokenizer_config.json, else by number in
    generation_config.json and config.json; and those that are never sampled.
    """
    tokens = {
        t.decode("utf-8", "replace") if isinstance(t, bytes) else t: i
        for i, t in enumerate(out[KEY + "tokens"][1])
    }
    generation, found, ends = _optional(folder, "generation_config.json"), {}, []
    for name, short in (("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")):
        token = settings.get(f"{short}_token")
        token = token.get("content") if isinstance(token, dict) else token
        i = tokens.get(token) if isinstance(token, str) else None
        for values in (generation, c.values):
            numbers = values.get(f"{short}_token_id")
            numbers = numbers if isinstance(numbers, list) else [numbers]
            numbers = [n for n in numbers if type(n) is int and 0 <= n < c.n_vocab]
            ends += numbers if short == "eos" else []
            i = numbers[0] if i is None and numbers and f"{KEY}{name}_token_id" not in out else i
        if i is not None:
            found[f"{KEY}{name}_token_id"] = ("u32", i)
    eos = {**out, **found}.get(KEY + "eos_token_id", (None, None))[1]
    turn = next((i for i in ends if i != eos), None)
    if turn is not None:  # chat models name two: the end of a text, and the end of a turn
        found[KEY + "eot_token_id"] = ("u32", turn)
    never = generation.get("suppress_tokens") or []
    if not isinstance(never, list) or any(
        type(i) is not int or not 0 <= i < c.n_vocab for i in never
    ):
        raise data_error(
            os.path.join(folder, "generation_config.json"),
            f"suppress_tokens: not a list of tokens below {c.n_vocab}",
        )
    if never:
        found[KEY + "suppress_tokens"] = ("[i32]", never)
    return found


def _show(out, names):
    """Make user-defined pieces of control tokens, by name."""
    tokens, types = out[KEY + "tokens"][1], out[KEY + "token_type"][1]
    for i in range(len(tokens)):
        if types[i] == tokenizer_json.CONTROL and tokens[i] in names:
            types[i] = tokenizer_json.USER_DEFINED


def _last(out, last):
    """Make EOS of the token that texts get at their end, and the end of a turn of another EOS.

    Embedding models have these two.
    """
    tokens, eos = out[KEY + "tokens"][1], out.get(KEY + "eos_token_id")
    if not isinstance(last, str) or last not in tokens:
        return {}
    found = {KEY + "eos_token_id": ("u32", tokens.index(last))}
    if eos not in (None, found[KEY + "eos_token_id"]):
        found[KEY + "eot_token_id"] = eos
    return found


def _flags(out, settings, first, last):
    """Set whether texts get BOS and EOS: by the template of post-processing, else by
    tokenizer_config.json.
    """
    bos = out.get(KEY + "bos_token_id", (None, None))[1]
    tokens = out[KEY + "tokens"][1]
    if first is not ...:
        add = first is not None and bos is not None and tokens[bos] == first
    else:
        add = settings.get("add_bos_token", out[KEY + "model"][1] == "llama")
    return {
        KEY + "add_bos_token": ("bool", bool(add) and bos is not None),
        KEY + "add_eos_token": (
            "bool",
            (isinstance(last, str) or bool(settings.get("add_eos_token", False)))
            and KEY + "eos_token_id" in out,
        ),
    }


def _template(folder, settings):
    """Return the chat template of chat_template.jinja, chat_template.json or
    tokenizer_config.json; of several the one called default.
    """
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.lexists(path):
        return _text(path, read_small(path, MAX_TEMPLATE_BYTES))
    path = os.path.join(folder, "chat_template.json")
    if os.path.lexists(path):
        settings = parse_json(path, read_small(path, MAX_JSON_BYTES))
    else:
        path = os.path.join(folder, "tokenizer_config.json")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {
            t.get("name"): t.get("template")
            for t in template
            if isinstance(t, dict) and isinstance(t.get("name"), str)
        }
        template = named.get("default")
    return (
        _text(path, template.encode("utf-8", "surrogatepass")) if isinstance(template, str) else {}
    )


def _text(path, data):
    if len(data) > MAX_TEMPLATE_BYTES:
        raise data_error(
            path, f"chat template: {len(data)} bytes, more than {MAX_TEMPLATE_BYTES >> 20} MiB"
        )
    try:
        return {"tokenizer.chat_template": ("string", data.decode())}
    except UnicodeDecodeError:
        raise data_error(path, "chat template: not UTF-8") from None
