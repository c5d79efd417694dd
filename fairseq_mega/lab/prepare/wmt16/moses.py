"""Cleaning and tokenisation with the scripts of the mosesdecoder project, in sacremoses' Python port."""

from dataclasses import dataclass

from fairseq_mega.lab.prepare.wmt16.line_pool import LineFunction

INSTALL = "pip install 'fairseq_mega[translation]'"


@dataclass(frozen=True)
class TokenizerFactory:
    """Moses tokenisation without escaping and without splitting at hyphens; for training text cleaning first.

    Picklable, for :func:`.line_pool.transform`. ``clean=True`` puts remove-non-printing-char
    and normalize-punctuation before it, as done for training text only. Moses replaces a non-printing character by a
    space, where sacremoses' ``remove_control_chars`` drops it and would join the words beside it; the space is kept
    here.
    """

    language: str
    clean: bool

    def __call__(self) -> LineFunction:
        """Build the function from a raw line to a tokenised one."""
        import regex
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        tokenizer = MosesTokenizer(lang=self.language)

        def tokenize(line: str) -> str:
            return " ".join(tokenizer.tokenize(line, aggressive_dash_splits=False, escape=False))

        if not self.clean:
            return tokenize
        non_printing = regex.compile(r"\p{C}")
        try:
            normalizer = MosesPunctNormalizer(lang=self.language, perl_parity=True)
        except TypeError as error:
            raise ValueError(f"sacremoses is older than 0.1, which normalises unlike Moses: {INSTALL}") from error
        return lambda line: tokenize(normalizer.normalize(non_printing.sub(" ", line)))
