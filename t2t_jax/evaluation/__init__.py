"""Metrics of trained models: BLEU and others, bracketing F1, accuracy, perplexity, alignment."""
