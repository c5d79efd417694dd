"""The published corpora of language modelling: addresses, checksums and counts."""

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from fairseq_mega.lab.prepare.archives import Archive
from fairseq_mega.lab.prepare.splits import SPLITS


@dataclass(frozen=True)
class Corpus:
    """The address of a corpus, and the counts and checksums that it must have."""

    name: str
    url: str
    archive_digests: Dict[str, str]
    files: Tuple[str, ...]  # base names; three files are train, valid and test, one file is split
    file_digests: Dict[str, str]  # size of the only file
    lines: Tuple[int, ...] = ()
    tokens: Tuple[int, ...] = ()  # with one </s> per line
    dictionary: Optional[int] = None  # with the special symbols and fairseq's padding
    bytes: Optional[int] = None
    remedy: str = ""

    @property
    def archive(self) -> Archive:
        """Return the name of the downloaded archive."""
        return Archive(self.url, self.archive_digests, self.remedy)

    def counts(self) -> Dict[str, Dict[str, int]]:
        """Return the published lines and tokens per split."""
        return {
            split: {"lines": lines, "tokens": tokens} for split, lines, tokens in zip(SPLITS, self.lines, self.tokens)
        }


def _wikitext(version: str, md5: str, lines: int, tokens: int, dictionary: int) -> Corpus:
    name = f"wikitext-{version}"
    return Corpus(
        name=name,
        url=f"https://wikitext.smerity.com/{name}-v1.zip",  # the author's host; the first host has disappeared
        archive_digests={"md5": md5},
        files=tuple(f"wiki.{split}.tokens" for split in SPLITS),
        file_digests={},
        lines=(lines, 3760, 4358),
        tokens=(tokens, 217646, 245569),
        dictionary=dictionary,
        remedy=(
            f"The expected file is {name}-v1.zip, MD5 {md5}: give your copy with --archive FILE. The mirror "
            f"Salesforce/wikitext (Hugging Face), configuration {name}-v1, contains the same text: write its splits "
            "to wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (or .gz), as --help shows, and give their "
            "folder with --text DIR"
        ),
    )


CORPORA = {
    corpus.name: corpus
    for corpus in (
        _wikitext("103", "9ddaacaf6af0710eda8c456decff7832", 1801350, 103227021, 267744),
        _wikitext("2", "542ccefacc6c27f945fb54453812b3cd", 36718, 2088628, 33280),
        Corpus(
            name="enwik8",
            url="http://mattmahoney.net/dc/enwik8.zip",
            archive_digests={},
            files=("enwik8",),
            file_digests={
                "md5": "a1fa5ffddb56f4953e226637dabbb36a",
                "sha1": "57b8363b814821dc9d47aa4d41f58733519076b2",
            },
            dictionary=208,
            bytes=100_000_000,
            remedy=(
                "The expected file is enwik8.zip; unpacked it has 100000000 bytes, MD5 "
                "a1fa5ffddb56f4953e226637dabbb36a: give your copy, packed or unpacked, with --archive FILE"
            ),
        ),
    )
}
