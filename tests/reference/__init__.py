"""Independent definitions in plain numpy, written from the papers."""
