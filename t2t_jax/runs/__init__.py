"""One run: its identity, its directory, its execution and its results."""
