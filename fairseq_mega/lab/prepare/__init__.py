"""The command fairseq-mega-prepare: the data of the Long Range Arena and of speech, and stand-ins for them."""
