"""What a model is worth: BLEU of its translations, perplexity of the references."""
