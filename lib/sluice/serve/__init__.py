"""Processes that stay: `classify --listen`, and the message that passes through `classify`."""
