"""Make train, valid and test text from one's own parallel text (PREFIX.<source> and PREFIX.<target>)."""

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from fairseq_mega.corpora.translation.parallel_files import describe_dropped, own_corpus, read_pairs, write_corpus
from fairseq_mega.corpora.translation.parallel_text import SPLITS


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(prog="prepare_own_corpus", description=__doc__)
    parser.add_argument("--text", required=True, metavar="PREFIX", help="text to learn from, one sentence per line")
    parser.add_argument("--valid", metavar="PREFIX", help="validation text (default: held out from the end of --text)")
    parser.add_argument("--test", metavar="PREFIX", help="test text (default: held out from the end of --text)")
    parser.add_argument("--held-out", type=int, help="pairs held out per split (default: a twentieth, 1000 at most)")
    parser.add_argument("--output", type=Path, required=True, help="folder to write <split>.<language> to")
    parser.add_argument("--source-lang", required=True, help="ending of the source files")
    parser.add_argument("--target-lang", required=True, help="ending of the target files")
    parser.add_argument("--limit", type=int, help="keep this many training pairs only (a twentieth of it held out)")
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    options = build_parser().parse_args(arguments)
    try:
        train, valid, test = (
            None if prefix is None else read_pairs(prefix, options.source_lang, options.target_lang)
            for prefix in (options.text, options.valid, options.test)
        )
        assert train is not None
        corpus = own_corpus(train, valid, test, options.held_out)
        write_corpus(corpus, options.output, options.source_lang, options.target_lang, options.limit)
    except (OSError, ValueError) as error:
        print(f"prepare_own_corpus: error: {error}", file=sys.stderr)
        return 1
    print(f"pairs read: {len(train)}; dropped: {describe_dropped(corpus)}")
    print("sentence pairs: " + ", ".join(f"{name} {len(corpus.splits[name])}" for name in SPLITS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
