"""First pages of --help, of the options that the documents use; without torch and fairseq, to be there at once."""

import re
import textwrap
from pathlib import Path
from typing import Dict, List

import fairseq_mega

USES = {
    "train": "Train a model: fairseq-mega-train DATA --arch NAME [OPTION]...\n\n"
    "  fairseq-mega-train --arch NAME --help   options of this model; with --task NAME, of the task, too",
    "generate": "Translate a split of DATA, or continue its lines: fairseq-mega-generate DATA --path FILE [OPTION]...",
    "interactive": "Translate or continue typed lines: fairseq-mega-interactive DATA --path FILE [OPTION]...",
    "eval-lm": "Score text by a language model: fairseq-mega-eval-lm DATA --path FILE [OPTION]...",
    "validate": "Score a model, such as the accuracy of classes: fairseq-mega-validate DATA --path FILE [OPTION]...",
}
TRAIN, GENERATING, SCORING = "train", "generate interactive", "generate interactive eval-lm"
ROWS = (  # commands, option, line; in the order of the pages
    (TRAIN, "--task NAME", "kind of DATA (default: translation; for language models mega_language_modeling)"),
    (TRAIN, "--save-dir FOLDER", "folder of the checkpoints (default: checkpoints); a later start continues there"),
    (TRAIN, "--max-update N", "end after N updates"),
    (TRAIN, "--max-epoch N", "end after N epochs"),
    (TRAIN, "--criterion NAME", "loss (default: cross_entropy; for classes lra_cross_entropy)"),
    (TRAIN, "--optimizer NAME", "such as adam"),
    (TRAIN, "--lr RATE", "learning rate, the largest one of the schedules below"),
    (TRAIN, "--lr-scheduler NAME", "such as inverse_sqrt or linear_decay, with --warmup-updates N"),
    (TRAIN, "--seed N", "seed of weights, batches and dropout (default: 1)"),
    (SCORING, "--path FILE", "checkpoint; several, separated by colons, are an ensemble"),
    ("validate", "--path FILE", "checkpoint"),
    ("validate", "--valid-subset NAME", "split to score (default: valid)"),
    ("generate", "--gen-subset NAME", "split to read (default: test)"),
    ("eval-lm", "--gen-subset NAME", "split to score (default: test)"),
    ("interactive", "--input FILE", "read lines from a file (default: standard input), --buffer-size N at once"),
    ("interactive", "--fairseq-lines", "print fairseq's log and lines S-, H-, D- and P- on a terminal, too"),
    (GENERATING, "--beam N", "hypotheses of the beam search (default: 5), of which --nbest N are printed"),
    (GENERATING, "--lenpen X", "length penalty (default: 1); a larger one favours longer texts"),
    (GENERATING, "--max-len-b N", "at most N tokens (default: 200), and --max-len-a X for each of the source"),
    (GENERATING, "--sampling", "draw tokens instead of the search, with --sampling-topk N and --temperature X"),
    (GENERATING, "--context CONTEXT", "continue from the state after a text"),
    ("interactive", "--read FILE", "read a text and write the state after it to --save-context CONTEXT"),
    ("interactive", "--bpe NAME", "how text is split, such as sentencepiece (default: by subwords.model in DATA)"),
    ("generate", "--bpe NAME", "how subwords of the output are joined, such as sentencepiece"),
    (GENERATING, "--remove-bpe", "join subwords that end with @@ (subword-nmt)"),
    ("eval-lm", "--context-window N", "at least N tokens before each scored one; for --task language_modeling"),
    ("eval-lm", "--softmax-batch N", "compute the logits of N tokens at once"),
    ("eval-lm", "--valid-block KIND", "splits:K or size:N, segments of the text, each read with memory"),
    ("eval-lm", "--chunk-nums N", "chunks that are read in one call, of --test-chunk-size N"),
    ("train generate eval-lm validate", "--max-tokens N", "at most N tokens in a batch of a process"),
    ("train generate eval-lm validate", "--batch-size N", "at most N examples in a batch of a process"),
    (SCORING, "--model-overrides DICT", "other values of options of the checkpoint"),
    (SCORING, "--decode-weights KIND", "bf16 or int8: round the matrices, for faster steps on a CPU"),
    (" ".join(USES), "--precision NAME", "of matrix products: fp32, tf32, bf16, fp16, or auto"),
    (" ".join(USES), "--cpu", "do not use a GPU"),
)


def options_of(command: str) -> Dict[str, str]:
    """Return the line of each option on the first page of a command, a key of USES."""
    return {option: line for commands, option, line in ROWS if command in commands.split()}


def architectures() -> List[str]:
    """Return the names for --arch: the presets and their models."""
    files = [*Path(next(iter(fairseq_mega.__path__)), "presets", "model").glob("*.yaml")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    models = [name for text in texts for name in re.findall(r"^_name: (\w+)$", text, re.MULTILINE)]
    return sorted({*models, *(path.stem for path in files)}, key=lambda name: (not name.startswith("mega"), name))


def first_page(command: str) -> str:
    """Return the page of --help of a command, a key of USES."""
    lines = [USES[command], ""]
    lines += [f"  {option:<22} {line}" for option, line in options_of(command).items()]
    if command == "train":
        names = f"Architectures of this package: {', '.join(architectures())}; examples/MODELS.md describes them."
        lines += ["", *textwrap.wrap(names, 100, break_on_hyphens=False)]
    return "\n".join(lines)
