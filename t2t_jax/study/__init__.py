"""A grid of runs, from the rows of a study to its table."""
