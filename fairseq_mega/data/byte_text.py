"""Text as bytes: every byte is a token, written as its decimal number, and the line feed ends a line.

enwik8 is binarised in this form. fairseq appends `</s>` to every line in place of the line feed, so a text of n bytes
becomes n tokens, or n + 1 if the text does not end with a line feed.
"""

NEWLINE = 10
# fairseq ignores the blank after the last number of a line, so every byte can be encoded separately.
_TOKENS = [b"\n" if byte == NEWLINE else b"%d " % byte for byte in range(256)]


def encode(block: bytes) -> bytes:
    """Return the decimal numbers of a block of bytes; encoded blocks can be joined like the blocks themselves."""
    return b"".join(map(_TOKENS.__getitem__, block))
