"""Talk: templates, turns, messages and the terminal that chat and generate use."""
