"""Metrics of a trained model: BLEU, bracketing F1, perplexity and alignment."""
