"""A vocabulary for what joins texts: test_text.py, test_generate.py."""


class Bytes:
    """A vocabulary whose tokens write what they are told."""

    add_prefix = False

    def __init__(self, parts):
        self._parts = parts

    def bytes_of(self, i, special=False):
        return self._parts[i]

    def is_control(self, i):
        return False
