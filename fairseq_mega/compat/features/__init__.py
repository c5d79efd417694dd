"""Features that fairseq lacks: precisions, sharding, packed weights."""
