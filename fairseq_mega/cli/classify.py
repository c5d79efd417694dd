"""Tell the class of new texts or recordings with a trained classifier.

    fairseq-mega-classify DATA --path CHECKPOINT <TEXTS        # a text per line
    fairseq-mega-classify DATA --path CHECKPOINT FILE...       # a text or a recording (WAV) per file

DATA is the folder that the classifier was trained on: its dictionaries, labels and scales are needed. A line is printed
for each: the likeliest label, its probability, and the line or the name of the file; with --all every label's.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_mega.compat import architectures
from fairseq_mega.corpora.classification.clip_scale import ClipScale
from fairseq_mega.corpora.classification.speech_commands import FOLDER, read_wave
from fairseq_mega.data.text_units import text_unit
from fairseq_mega.models.classifier import SequenceClassifier
from fairseq_mega.tasks.lra_text import FIRST, LRATextTask
from fairseq_mega.tasks.speech_commands import SpeechCommandsTask

PROGRAM = "fairseq-mega-classify"
BYTE_ORDER_MARK = "\ufeff"
Item = Tuple[str, Dict[str, Tensor]]  # what is printed of it, and the model's input


class TextReader:
    """New texts as the inputs of a classifier of texts.

    Args:
        task: of the classifier.
    """

    def __init__(self, task: LRATextTask) -> None:
        self.task = task
        folder = Path(task.cfg.data) / FIRST
        self.unit = text_unit(folder, Dictionary.load(str(folder / "dict.txt")))
        special = task.label_dictionary.nspecial
        self.labels: List[str] = task.label_dictionary.symbols[special:]

    def read_lines(self, lines: Iterator[str]) -> Iterator[Item]:
        """Items of lines of text; in retrieval, two texts to a line, separated by TAB."""
        for number, line in enumerate(lines, start=1):
            line = line.rstrip("\r\n").lstrip(BYTE_ORDER_MARK)
            yield line, self._inputs(line, f"line {number}")

    def read_file(self, path: Path) -> Item:
        """Item of a file of text."""
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
        return str(path), self._inputs(text, str(path))

    def _inputs(self, text: str, place: str) -> Dict[str, Tensor]:
        documents = text.split("\t") if self.task.documents == 2 else [text]
        if len(documents) != self.task.documents:
            raise ValueError(f"{place} has {len(documents)} texts: two, separated by TAB, are compared")
        names = ("src_tokens", "src1_tokens")
        return {name: self._tokens(document) for name, document in zip(names, documents)}

    def _tokens(self, text: str) -> Tensor:
        """Tokens (1, L) as the task's data have them."""
        dictionary = self.task.dictionary
        tokens = dictionary.encode_line(self._symbols(text), add_if_not_exist=False).long()
        if self.task.pooling == "cls":
            tokens = torch.cat([tokens.new_tensor([self.task.cls_index]), tokens])
        return tokens[: self.task.longest].unsqueeze(0)

    def _symbols(self, text: str) -> str:
        if self.unit.name != "bytes":
            return self.unit.encode(text)
        return " ".join(map(str, text.encode("utf-8", "surrogateescape")))  # line feeds are bytes like all others


class ClipReader:
    """New recordings as the inputs of a classifier of raw speech.

    Args:
        task: of the classifier.
    """

    def __init__(self, task: SpeechCommandsTask) -> None:
        self.scale = ClipScale.load(Path(task.cfg.data) / FOLDER)
        self.labels = self.scale.labels

    def read_lines(self, lines: Iterator[str]) -> Iterator[Item]:
        """Items of the recordings whose names stand on the lines."""
        for line in lines:
            yield self.read_file(Path(line.rstrip("\r\n")))

    def read_file(self, path: Path) -> Item:
        """Item of a WAV file."""
        samples = read_wave(str(path), path.read_bytes())
        return str(path), {"src_tokens": torch.from_numpy(self.scale.apply(samples)).unsqueeze(0)}


def reader_of(task: Any) -> Any:
    """What reads new examples for a task; raises ValueError for one that has no new examples to read."""
    if isinstance(task, LRATextTask):
        return TextReader(task)
    if isinstance(task, SpeechCommandsTask):
        return ClipReader(task)
    raise ValueError(f"{type(task).__name__}: classifiers of --task lra-text and speech_commands can be asked")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of the data it was trained on")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="default: the lines of stdin")
    parser.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT")
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.add_argument("--all", action="store_true", help="print every label with its probability, likeliest first")
    return parser


@torch.no_grad()
def run(args: argparse.Namespace) -> None:
    """Load the classifier, and print a line for every text or recording; raises OSError and ValueError."""
    if not args.path.is_file():
        raise FileNotFoundError(f"--path {args.path} does not exist: training leaves checkpoint_best.pt in --save-dir")
    with architectures.expect_models_of(SequenceClassifier):
        loaded = checkpoint_utils.load_model_ensemble_and_task([str(args.path)], {"data": str(args.data)})
    (model,), _, task = loaded
    reader = reader_of(task)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    model.to(device).eval()
    items = map(reader.read_file, args.files) if args.files else reader.read_lines(sys.stdin)
    for name, inputs in items:
        logits = model(**{key: value.to(device) for key, value in inputs.items()})
        shares, classes = logits[0].float().softmax(dim=0).sort(descending=True)
        answers = [f"{name_of(reader.labels, int(c))}\t{share:.4f}" for share, c in zip(shares.tolist(), classes)]
        print("\t".join([*(answers if args.all else answers[:1]), name]), flush=True)


def name_of(labels: Sequence[str], number: int) -> str:
    """Label of a class; the model may have more of them than the data."""
    return labels[number] if number < len(labels) else f"class-{number}"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    args = build_parser().parse_args(argv)
    try:
        run(args)
    except (OSError, ValueError) as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
