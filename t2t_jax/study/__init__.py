"""Runs, from their config to their results."""
