"""Render chat templates in a child process with bounded time and memory: the child's program.

A template comes with a model, so it is untrusted code. It runs in Jinja2's
ImmutableSandboxedEnvironment, with the names and settings of Hugging Face's transformers
(documentation "Writing a chat template"). The process gets CPU_SECONDS of processor time and
MEMORY_BYTES of address space. After reading its request it cannot open a file or start a process
(except as root, whom that limit does not bind).

stdin: JSON, {"template": str, "variables": [{name: value}, ...], "now": seconds or null}, and
"each": true if a text that the template refuses is null, and the others are wanted.
stdout: {"texts": [str, ...]}, one text per element of variables; or {"error": one line}; or
{"missing": name of a module that is not installed}.
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
    """Answer the request on stdin and end the process."""
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
    """Return the answer to a request. Raises nothing."""
    try:
        return {"texts": render(**request)}
    except ModuleNotFoundError as e:
        return {"missing": (e.name or "").partition(".")[0]}
    except MemoryError:
        return {"error": f"needs more than {MEMORY_BYTES >> 20} MiB of memory"}
    except RecursionError:
        return {"error": "is nested too deeply"}
    except Exception as e:  # a template is a program: it can raise anything
        line = f"line {n}: " if (n := getattr(e, "lineno", None)) else ""
        return {"error": f"{line}{e}"[:1000] or type(e).__name__}


def render(
    template: str, variables: "list[dict[str, Any]]", now: int | None, each: bool = False
) -> "list[str | None]":
    """Render `template` once for each of `variables`; return the texts.

    each: a text is None if the template raises an error for its variables.

    now: seconds since the epoch for strftime_now, in UTC. None: the present, in local time.
    """
    import datetime

    environment = _environment(lambda form: _moment(datetime, now).strftime(form))
    _moment(datetime, now).strftime(
        "%d %b %Y"
    )  # reads the time zone's file while files can be opened
    limit()
    compiled, texts = environment.from_string(template), []
    for names in variables:
        try:
            text = compiled.render(names)
        except MemoryError:
            raise
        except Exception:
            if not each:
                raise
            texts.append(None)
            continue
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"prints more than {MAX_CHARACTERS >> 20} Mi characters")
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
        """{% generation %} ... {% endgeneration %} marks text for training: no effect here."""

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
    del e.globals["lipsum"], e.filters["random"]  # a prompt must not be random
    e.from_string("{{ 'a' ~ 1 }}").render()  # loads what Python needs for this
    return e


def limit() -> None:
    """Limit this process: time, memory, no new files, no new processes."""
    for kind, maximum in (
        ("CPU", CPU_SECONDS),
        ("AS", MEMORY_BYTES),
        ("CORE", 0),
        ("FSIZE", 0),
        ("NPROC", 0),
        ("NOFILE", 0),
    ):
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (maximum, maximum))
        except (
            AttributeError,
            ValueError,
            OSError,
        ):  # not on this system, or the limit is lower already
            pass
