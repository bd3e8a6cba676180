"""Train the bundled spam model: `make model`.

No module of sluice imports this package. It needs the extra `training`.
"""
