"""Translation with a trained model (section 6.1), its attention maps, and its export."""
