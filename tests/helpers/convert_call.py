"""Call gguf-convert in this process, which saves the start of Python and numpy for each call."""

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
