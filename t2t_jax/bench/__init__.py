"""What things cost on the device at hand: medians of interleaved rounds, kept as JSON."""
