"""White space of JSON texts: on one line, or indented as json.dumps does."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..building import Builder

MAX_INDENTED = 12  # levels; what is deeper stands on one line


class Layout:
    """Where white space stands. indent: blanks of a level, or None for one line.

    On one line a blank behind `:` and `,` may stand or not, for texts that are to be read, or
    stands always (`fixed`), for texts that a model writes: what is determined need not be chosen.
    Indented, all is determined.
    """

    def __init__(self, indent: "int | None", fixed: bool = False) -> None:
        self.indent, self.fixed = indent, fixed

    def level(self, depth: int) -> int:
        """Return the number that tells places with different white space apart."""
        return 0 if self.indent is None else min(depth, MAX_INDENTED)

    def _line(self, depth):
        return b"\n" + b" " * ((self.indent or 0) * depth)

    def _is_flat(self, depth):
        return self.indent is None or depth >= MAX_INDENTED

    def open(self, depth: int) -> bytes:
        """Return the text behind the bracket of a value at `depth` that is not empty."""
        return b"" if self._is_flat(depth) else self._line(depth + 1)

    def close(self, builder: "Builder", depth: int) -> "list[int]":
        """Return the nodes before its closing bracket."""
        return [] if self._is_flat(depth) else [builder.text(self._line(depth))]

    def comma(self, builder: "Builder", depth: int) -> "list[int]":
        """Return the nodes between its items."""
        if self.indent is None:
            return [builder.text(b","), self._blank(builder)]
        return [builder.text(b", " if self._is_flat(depth) else b"," + self._line(depth + 1))]

    def colon(self, builder: "Builder") -> "list[int]":
        """Return the nodes behind a colon."""
        if self.indent is None:
            return [self._blank(builder)]
        return [builder.text(b" ")]

    def _blank(self, builder):
        blank = builder.text(b" ")
        return blank if self.fixed else builder.repeat(blank, 0, 1)
