"""What a mail server asks: processes that stay and answer on a socket, and the headers that a mail gets."""
