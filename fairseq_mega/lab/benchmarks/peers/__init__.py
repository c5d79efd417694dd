"""Training speed of language models compared with other implementations."""
