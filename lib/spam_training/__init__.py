"""How the shipped model is made: `make model`. Nothing of the library imports this; it needs the
extra `training`.
"""
