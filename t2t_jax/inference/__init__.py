"""From a trained model and a source sentence to a translation (section 6.1)."""
