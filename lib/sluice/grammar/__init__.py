"""Grammars (GBNF): parser, automaton, and the matcher that filters tokens."""
