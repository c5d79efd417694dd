"""New texts, recordings and images for a trained classifier, and its answers."""

import argparse
import io
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_mega.compat import checks
from fairseq_mega.compat.features import precision
from fairseq_mega.compat.features.encoders import compare, encoder_of_data
from fairseq_mega.compat.files.card import OPTIONS, SUBWORDS, UNIT
from fairseq_mega.data.augmented_images import evaluation_transform
from fairseq_mega.data.card import kept_bytes
from fairseq_mega.data.clip_scale import ClipScale
from fairseq_mega.data.image_folder import read_image
from fairseq_mega.data.text_units import ByteUnit, own_tokens, text_unit
from fairseq_mega.lab.prepare.classification.sounds import fitted, read_sound
from fairseq_mega.lab.prepare.generators.listops import TOKENS, model_input
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.models.classifier import SequenceClassifier
from fairseq_mega.models.image_classifier import ImageClassifier
from fairseq_mega.tasks.image_classification import ImageClassificationTask
from fairseq_mega.tasks.lra_text import FIRST, LRATextTask
from fairseq_mega.tasks.speech_commands import FOLDER, SpeechCommandsTask

BYTE_ORDER_MARK = "\ufeff"
Item = Tuple[str, Dict[str, Tensor]]  # its text or the name of its file, and the model's input


class Reader:
    """New examples as the inputs of a classifier.

    Attributes:
        labels: of the classes.
    """

    labels: List[str]

    def read_lines(self, lines: Iterator[str]) -> Iterator[Item]:
        """Return the items of the files that the lines name."""
        return (self.read_file(Path(line.rstrip("\r\n"))) for line in lines)

    def read_file(self, path: Path) -> Item:
        """Return the item of a file."""
        raise NotImplementedError


class TextReader(Reader):
    """New texts as the inputs of a classifier of texts, shortened like the texts of training.

    Expressions of ListOps are read as in its preparation: without parentheses, and ``]`` as X.

    The reader prints how many tokens the training texts lack.

    Args:
        task: of the classifier.
    """

    def __init__(self, task: LRATextTask) -> None:
        self.task = task
        folder = Path(task.cfg.data) / FIRST
        card = task.data_card()
        kept: Tuple[Optional[int], bool] = kept_bytes(card) or (None, False)
        self.length, self.last = kept
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        encoder = encoder_of_data(task, True)
        for entry in OPTIONS:
            if encoder is None or entry != SUBWORDS:
                compare(entry, "", task, reads_text=True)
        self.unit: Any = encoder or text_unit(folder, card.get(UNIT, ""))
        self.reads_listops = set(own_tokens(dictionary)) == set(TOKENS)
        special = task.label_dictionary.nspecial
        self.labels: List[str] = task.label_dictionary.symbols[special:]

    def read_lines(self, lines: Iterator[str]) -> Iterator[Item]:
        """Return the items of lines of text; in retrieval, two texts a line, separated by TAB."""
        for number, line in enumerate(lines, start=1):
            line = line.rstrip("\r\n").lstrip(BYTE_ORDER_MARK)
            yield line, self._inputs(line, f"line {number}")

    def read_file(self, path: Path) -> Item:
        """Return the item of a file of text without its last line end."""
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
        return str(path), self._inputs(text.rstrip("\r\n"), str(path))

    def _inputs(self, text: str, place: str) -> Dict[str, Tensor]:
        documents = text.split("\t") if self.task.documents == 2 else [text]
        if len(documents) != self.task.documents:
            raise ValueError(f"{place} has {len(documents)} texts: two, separated by TAB, are compared")
        found = list(map(self._tokens, documents))
        unk = self.task.dictionary.unk()
        unknown = sum(int((tokens == unk).sum()) for tokens in found)
        if unknown:
            total = sum(int((tokens >= unk).sum()) for tokens in found)
            print_line(f"note: {unknown} of the {total} tokens of {place} are in no training text")
        return dict(zip(("src_tokens", "src1_tokens"), found))

    def _tokens(self, text: str) -> Tensor:
        """Return tokens (1, L) in the form of the task's data."""
        dictionary = self.task.dictionary
        found = self._tokens_of(text)
        kept = found[-self.length :] if self.last and self.length else found[: self.length]
        tokens = dictionary.encode_line(" ".join(kept), add_if_not_exist=False).long()
        first = [self.task.cls_index] if self.task.pooling == "cls" else []
        return torch.cat([tokens.new_tensor(first), tokens])[: self.task.longest].unsqueeze(0)

    def _tokens_of(self, text: str) -> List[str]:
        if self.reads_listops:
            return model_input(text)
        if not isinstance(self.unit, ByteUnit):
            return self.unit.encode(text).split()
        return list(map(str, text.encode("utf-8", "surrogateescape")))  # line feeds are ordinary bytes


class ClipReader(Reader):
    """New recordings as the inputs of a classifier of raw speech.

    Args:
        task: of the classifier.
    """

    def __init__(self, task: SpeechCommandsTask) -> None:
        self.scale = ClipScale.load(Path(task.cfg.data) / FOLDER)
        self.labels = self.scale.labels

    def read_file(self, path: Path) -> Item:
        """Return the item of a file of sound, cut or padded with silence."""
        samples = fitted(read_sound(path), self.scale.length)
        return str(path), {"src_tokens": torch.from_numpy(self.scale.apply(samples)).unsqueeze(0)}


class PictureReader(Reader):
    """New images as the inputs of a classifier of colour images.

    Args:
        task: of the classifier, with its model. Classes have names if the data of the training, or the task's own, have
            a folder per class.
    """

    def __init__(self, task: ImageClassificationTask) -> None:
        self.labels = task.labels()
        self.transform = evaluation_transform(task.image_size, task.kept())

    def read_file(self, path: Path) -> Item:
        """Return the item of an image, resized and cropped at the centre, as in validation."""
        return str(path), {"images": self.transform(read_image(path)).unsqueeze(0)}


def reader_of(task: Any) -> Reader:
    """Return the reader of new examples for a task; raises ValueError for a task that has none."""
    if isinstance(task, LRATextTask):
        return TextReader(task)
    if isinstance(task, SpeechCommandsTask):
        return ClipReader(task)
    if isinstance(task, ImageClassificationTask):
        return PictureReader(task)
    raise ValueError(f"{type(task).__name__}: its examples are no texts, recordings or images")


@torch.no_grad()
def answers_to(model: nn.Module, inputs: Dict[str, Tensor], labels: Sequence[str]) -> List[Tuple[str, float]]:
    """Return labels with their probabilities, likeliest first; classes beyond the labels are named by number."""
    device = next(model.parameters()).device
    logits = model(**{key: value.to(device) for key, value in inputs.items()})
    shares, classes = logits[0].float().softmax(dim=0).sort(descending=True)
    names = (labels[number] if number < len(labels) else f"class-{number}" for number in classes.tolist())
    return list(zip(names, shares.tolist()))


def print_answers(args: argparse.Namespace) -> None:
    """Load a classifier, and print a line for every example; the options are those of ``fairseq-mega-classify``."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(args.path)], {"data": str(args.data)})
    checks.require_models([model], SequenceClassifier, ImageClassifier)
    reader = reader_of(task)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    model.to(device).eval()
    for stream in (sys.stdin, sys.stdout):  # the same in any locale, with bytes that are not text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    items = map(reader.read_file, args.files) if args.files else reader.read_lines(sys.stdin)
    for name, inputs in items:
        with precision.evaluating(args.precision, device.type):
            shares = answers_to(model, inputs, reader.labels)
        answers = [f"{label}\t{share:.4f}" for label, share in shares]
        print("\t".join([*(answers if args.all else answers[:1]), name]), flush=True)
