"""Learning from texts whose answers the user gives: `classify --learn`.

tokens.py     the tokens of a text
layout.py     the file: its format, and what a verdict reads of it
learned.py    what a verdict asks of the file
evidence.py   counts of tokens -> evidence for each answer
joint.py      the model's log probabilities and the evidence -> probabilities
book.py       all texts of a file in memory, for a change
teach.py      --learn, --forget and --reset
auto.py       --auto-learn
listing.py    --list-learned
format1.py    files of earlier versions
place.py      where the file is
"""
