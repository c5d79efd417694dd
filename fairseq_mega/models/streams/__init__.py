"""Streams: texts of any length that language models read, score and continue with a carried state."""
