"""Tables of measured numbers in the documentation, generated between markers."""
