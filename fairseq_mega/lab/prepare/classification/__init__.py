"""Data of the classification tasks: the Long Range Arena, raw speech, and real stand-ins for them."""
