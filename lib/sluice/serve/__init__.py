"""`classify --listen`, a daemon with workers, and `classify --pass-through`."""
