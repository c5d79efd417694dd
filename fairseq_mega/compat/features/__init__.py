"""What fairseq lacks and gets here: precisions, sharding, packed weights."""
