"""Training speed of language models beside other implementations of them."""
