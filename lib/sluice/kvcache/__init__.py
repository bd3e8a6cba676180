"""KV cache: in memory, as a snapshot file, and as a directory of prefixes."""
