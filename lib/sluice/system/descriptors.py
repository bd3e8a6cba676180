"""Standard descriptors 0, 1 and 2: filled if they are closed."""

import os


def fill_closed() -> None:
    """Open /dev/null on closed descriptors 0, 1 and 2, so that no file opened later gets their
    number.

    Each is opened in the wrong direction: reading a closed stdin and writing to a closed stdout
    then fail with EBADF, as they should.
    """
    for fd, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != fd:  # impossible: lower descriptors are open by now
                os.dup2(opened, fd)
