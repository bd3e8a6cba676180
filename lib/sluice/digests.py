"""SHA-256 of little: without hashlib, which loads OpenSSL, and that takes longer than it saves."""

LITTLE = 1 << 20  # bytes; the interpreter's own is 5 times slower


def sha256(n_bytes):
    """A new hash, as of hashlib.sha256(), for about `n_bytes` bytes."""
    if n_bytes <= LITTLE:
        for name in ("_sha2", "_sha256"):  # of Python 3.12 and later, and of those before; not of every build
            try:
                return __import__(name).sha256()
            except (ImportError, AttributeError):
                pass
    import hashlib
    return hashlib.sha256()
