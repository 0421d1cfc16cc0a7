"""One run: what identifies it, its directory, and how it is made, found and loaded."""
