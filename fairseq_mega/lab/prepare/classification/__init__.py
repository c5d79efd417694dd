"""Data of the classification tasks: the Long Range Arena, raw speech, and other real data of the same form."""
