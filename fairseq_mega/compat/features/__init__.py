"""Features that fairseq lacks or has half: precisions, sharding, options, encoders of text in use."""
