"""Learning from the user's own texts: evidence of their tokens, joined with the model's answer.

asked.py      --learn, --forget, --list-learned and --reset of `classify`
tokens.py     the tokens of a text
layout.py     the file: its format
learned.py    what a verdict asks of the file
evidence.py   counts of tokens -> evidence for each answer
joint.py      the model's log probabilities and the evidence -> probabilities
book.py       all texts of a file in memory, for a change
writing.py    a change of the file: lock, read, replace
teach.py      texts to learn or to forget
auto.py       --auto-learn
listing.py    the summary of --list-learned
format1.py    files of earlier versions
place.py      where the file is
"""
