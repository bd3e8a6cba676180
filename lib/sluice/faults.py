"""Errors and exit codes.

Exit codes are those of sysexits.h, because Postfix and shell scripts read them. Error, DataError
and UnsupportedError are public: sluice.Error and so on.
"""

USAGE = 64  # the command line is wrong
BAD_DATA = 65  # bad, cut or mismatched input
NO_INPUT = 66  # no such file, or not readable
UNSUPPORTED = 69  # well-formed, but beyond this build; the message names it
OUR_BUG = 70  # an internal check failed
NO_OUTPUT = 73  # the output file cannot be created
IO_ERROR = 74  # reading or writing failed on the way
TRY_AGAIN = 75  # out of memory or disk; the same command may work later


class Error(Exception):
    """A failure with an exit code.

    code: one of the exit codes above. The message is one line that names the object at fault.
    As OSError does with errno, Error(code, message) creates the subclass of the code.
    """

    code: int

    def __new__(cls, code: int, message: str) -> "Error":
        if cls is Error:
            cls = {BAD_DATA: DataError, UNSUPPORTED: UnsupportedError}.get(code, cls)
        return super().__new__(cls, code, message)

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type["Error"], tuple[int, str]]:
        """For pickle: errors pass from worker processes to their parent."""
        return Error, (self.code, str(self))


class DataError(Error):
    """Malformed, truncated or mismatched input: exit 65."""


class UnsupportedError(Error):
    """Well-formed input, beyond this build or this processor: exit 69."""


class Exit(Exception):
    """An end without a message: `code` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def data_error(subject: str, problem: str) -> Error:
    """Return the DataError for malformed, truncated or mismatched input: exit 65."""
    return Error(BAD_DATA, f"{subject}: {problem}")


def unsupported_error(subject: str, problem: str) -> Error:
    """Return the UnsupportedError for well-formed input beyond this build: exit 69."""
    return Error(UNSUPPORTED, f"{subject}: {problem}")


def printable(text: str | bytes, limit: int = 80) -> str:
    """Return `text` (str or bytes of a file) for one line of a message: escaped, quoted, cut to
    `limit` characters.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c == '"':
        return '\\"'
    return c if c.isprintable() else c.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """Return `text` for one line of a message, escaped but not quoted.

    Bytes of a file name that are not UTF-8, in the form of os.fsdecode, stay: encode the result
    with ("utf-8", "surrogateescape").
    """
    if text.isprintable():
        return text
    as_it_is = lambda c: "\udc80" <= c <= "\udcff" or c.isprintable()
    return "".join(c if as_it_is(c) else c.encode("unicode_escape").decode() for c in text)
