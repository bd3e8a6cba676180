"""Call gguf-convert in this process, which saves the start of Python and numpy for each call, and
change the files of a folder.
"""

import json

from sluice.commands.gguf_convert import main as MAIN
from sluice.faults import Error


def convert(source, out, *options):
    """Convert; return `out`. An Error is raised."""
    MAIN.main([str(a) for a in (source, "-o", out, *options)], standalone_mode=False)
    return out


def refused(code, source, out, *options):
    """The message for an input that exits with `code`: one printable line, no file left behind."""
    before = sorted(p.name for p in out.parent.iterdir())
    try:
        convert(source, out, *options)
    except Error as e:
        assert e.code == code and "\n" not in str(e), e
        assert sorted(p.name for p in out.parent.iterdir()) == before
        return str(e)
    except FileNotFoundError as e:
        assert code == 66
        return f"{e.filename}: No such file"
    raise AssertionError("it was converted")


def change(path, **values):
    """Set names of a JSON file; ... takes one away."""
    whole = json.loads(path.read_text())
    for key, value in values.items():
        whole.pop(key, None) if value is ... else whole.__setitem__(key, value)
    path.write_text(json.dumps(whole))


def rewrite(path, change_header, data=None):
    """A safetensors file with its header changed: `change_header` takes the object and may return
    text instead.
    """
    whole = path.read_bytes()
    n = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + n])
    changed = change_header(header)
    text = changed if isinstance(changed, bytes) else json.dumps(header).encode()
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + (whole[8 + n :] if data is None else data)
    )
