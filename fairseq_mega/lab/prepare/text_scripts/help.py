"""What --help of the scripts prepare_*.sh says before and after the options."""

GCIDE = """\
Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of the Collaborative International Dictionary of
English, which the Debian package dict-gcide holds (GPL-2+). It stands in for enwik8 and WikiText-103 where these
cannot be had. The text is alphabetical, so valid and test are taken from 20 evenly spaced blocks of it (90, 5 and 5 %
of every block). Finished stages are skipped when the same command is given again. Takes about six minutes on 2 cores,
and 400 MB."""

ENWIK8 = """\
Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of the first 90, next 5 and last 5 million bytes
of enwik8. Every byte is a token, its decimal number; the line feed ends a line and becomes </s>. So a split has as
many tokens as bytes, and bits per token are bits per character. A split that does not end in a line feed gets one
token more, the </s> that fairseq appends to its unfinished last line: this is counted, and checked, as bytes + 1.
Finished stages are skipped when the same command is given again. Should take a quarter of an hour on 2 cores, and
800 MB."""

OWN = """\
Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of your own text, for fairseq's language
modelling. Finished stages are skipped when the same command is given again."""

WIKITEXT = """\
Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of WikiText, for fairseq's language modelling.
Lines, tokens and the size of the dictionary must be the published ones. Finished stages are skipped when the same
command is given again. WikiText-103 should take 20 minutes on 2 cores, and 2 GB in DIR."""

WIKITEXT_MIRROR = """\
The archives come from wikitext.smerity.com. Where it cannot be reached: the same text is mirrored as
Salesforce/wikitext on Hugging Face; this makes the files for --text of it (pip install datasets):

  import datasets
  for split, part in (("train", "train"), ("valid", "validation"), ("test", "test")):
      with open(f"wiki.{split}.tokens", "w", encoding="utf-8", newline="\\n") as file:
          for row in datasets.load_dataset("Salesforce/wikitext", "wikitext-103-v1", split=part):
              file.write(row["text"].rstrip("\\n") + "\\n")"""
