"""The descriptors 0, 1 and 2."""

import os


def hold() -> None:
    """Fill closed descriptors 0, 1, 2, so that no file opened later takes their place.

    Each is held the wrong way round: reading a closed stdin and writing a
    closed stdout then fail as they should (EBADF).
    """
    for fd, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            held = os.open(os.devnull, flags)
            if held != fd:  # lower ones are open by now, so this cannot be
                os.dup2(held, fd)
