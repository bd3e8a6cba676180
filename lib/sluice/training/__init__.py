"""How the shipped spam model is made: what it reads, in which order, and how it learns. Nothing here is installed."""
