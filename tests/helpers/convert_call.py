"""gguf-convert called in this process, as bin/gguf-convert has it: a start of Python and numpy less
for each of many calls.
"""

from sluice.commands.gguf_convert import main as MAIN
from sluice.faults import Error


def convert(source, out, *options):
    """Convert, and give back `out`; an Error escapes."""
    MAIN.main([str(a) for a in (source, "-o", out, *options)], standalone_mode=False)
    return out


def refused(code, source, out, *options):
    """What it says of an input that ends in `code`: one line that can be printed; nothing is left
    beside `out`.
    """
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
