"""The subword ids that every vocabulary shares, and the mark of prompts."""

PAD, BOS, EOS, UNK = range(4)
PROMPT = "_"  # begins a prompt, a word of a target that is input without a loss
