"""The subword ids that every vocabulary shares."""

PAD, BOS, EOS, UNK = range(4)
