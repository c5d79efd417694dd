"""The command fairseq-mega-prepare: every data set, from its source to the files that a task reads."""
