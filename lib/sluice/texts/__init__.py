"""Many texts to classify: from folders, mboxes, lines and tables."""
