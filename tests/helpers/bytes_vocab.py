"""A vocabulary for tests that join texts: test_text.py, test_generate.py."""


class Bytes:
    """A vocabulary whose tokens have given bytes."""

    add_prefix = False

    def __init__(self, parts):
        self._parts = parts

    def bytes_of(self, i, special=False):
        return self._parts[i]

    def is_control(self, i):
        return False
