"""Chat templates are rendered here: a program of its own, started by template.py, which a template
cannot harm its caller from.

A template comes with a model, so it is a stranger's program. It runs in Jinja2's
ImmutableSandboxedEnvironment, with the names and settings that templates of this field are written
for (those of Hugging Face's transformers, its documentation "Writing a chat template"), in a
process that may take CPU_SECONDS of processor time and MEMORY_BYTES of address space, and that can
open no file and start no other process (root could, whom that limit does not bind) once it has read
its task.

stdin: an object in JSON, {"template": str, "variables": [{name: value}, ...], "now": seconds or
null}. stdout: {"texts": [str, ...]}, one for each of the variables; or {"error": one line}; or
{"missing": the absent module}.
"""

import json
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CPU_SECONDS = 1
MEMORY_BYTES = 512 << 20
MAX_CHARACTERS = 2 << 20  # of a text


def main() -> None:
    try:
        request = json.loads(sys.stdin.buffer.read())
    except RecursionError:
        data = json.dumps({"error": "a variable is nested too deeply"}).encode()
    else:
        data = json.dumps(answer(request)).encode()
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)


def answer(request: "dict[str, Any]") -> "dict[str, Any]":
    """What is written to stdout for what is on stdin, as dicts."""
    try:
        return {"texts": render(**request)}
    except ModuleNotFoundError as e:
        return {"missing": (e.name or "").partition(".")[0]}
    except MemoryError:
        return {"error": f"needs more than {MEMORY_BYTES >> 20} MiB of memory"}
    except RecursionError:
        return {"error": "is nested too deeply"}
    except Exception as e:  # whatever a template can raise: it is a program
        line = f"line {n}: " if (n := getattr(e, "lineno", None)) else ""
        return {"error": f"{line}{e}"[:1000] or type(e).__name__}


def render(template: str, variables: "list[dict[str, Any]]", now: int | None) -> list[str]:
    """The texts that `template` makes of each of `variables`."""
    import datetime

    environment = _environment(lambda form: _moment(datetime, now).strftime(form))
    _moment(datetime, now).strftime("%d %b %Y")  # the zone's file is read while files can be opened
    limit()
    compiled, texts = environment.from_string(template), []
    for names in variables:
        text = compiled.render(names)
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"makes more than {MAX_CHARACTERS >> 20} Mi characters")
        texts.append(text)
    return texts


def _moment(datetime, now):
    return (
        datetime.datetime.now()
        if now is None
        else datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
    )


def _environment(strftime_now):
    import html  # noqa: F401 - striptags, wordwrap and the first error would load these: too late
    import textwrap  # noqa: F401

    import jinja2.debug  # noqa: F401
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError, TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """{% generation %} ... {% endgeneration %} marks what is trained on: to a reader it is
        nothing.
        """

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            return nodes.Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
            )

    def raise_exception(message):
        raise TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def namespace(*values, **named):
        names = dict(*values, **named)
        if any(name.startswith("_") for name in names):
            raise SecurityError("a namespace has no names that begin with _")
        return Namespace(names)

    e = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    e.filters["tojson"] = tojson
    e.globals.update(
        raise_exception=raise_exception, strftime_now=strftime_now, namespace=namespace
    )
    del e.globals["lipsum"], e.filters["random"]  # chance has no place in a prompt
    e.from_string("{{ 'a' ~ 1 }}").render()  # what Python loads for this is loaded
    return e


def limit() -> None:
    """From here on: bounded time and memory, no new files, no new processes."""
    for kind, most in (
        ("CPU", CPU_SECONDS),
        ("AS", MEMORY_BYTES),
        ("CORE", 0),
        ("FSIZE", 0),
        ("NPROC", 0),
        ("NOFILE", 0),
    ):
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (most, most))
        except (
            AttributeError,
            ValueError,
            OSError,
        ):  # not on this system, or the limit is lower already
            pass
