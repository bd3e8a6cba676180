"""Language models as Unix filters: the nouns that the commands in bin/ work on."""

VERSION = "0.1.0"
