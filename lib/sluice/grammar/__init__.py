"""Grammars (GBNF): the parser, the automaton, and the matcher that filters tokens."""
