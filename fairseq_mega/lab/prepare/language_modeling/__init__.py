"""Text for language modelling, as words, bytes or subwords."""
