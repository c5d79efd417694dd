"""Clean and divide parallel text, and split it into subwords."""
