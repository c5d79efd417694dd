"""New texts, recordings and images for a trained classifier, and its answers."""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_mega.compat.features.encoders import encoder_of_data, warn_of_unsplit_text
from fairseq_mega.compat.features.interactive import TO_LINE_FEEDS
from fairseq_mega.compat.files.card import OPTIONS, SUBWORDS, UNIT
from fairseq_mega.data.card import kept_bytes
from fairseq_mega.data.clip_scale import ClipScale
from fairseq_mega.data.image_augmentation import evaluation_transform
from fairseq_mega.data.image_files import read_image
from fairseq_mega.data.text_units import ByteUnit, own_symbols, text_unit
from fairseq_mega.lab.prepare.classification.clips import AS_FLOATS, fitted, is_silent
from fairseq_mega.lab.prepare.classification.sound_files import read_sound
from fairseq_mega.lab.prepare.generators.listops.language import SYMBOLS, model_input
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.text_files import open_text
from fairseq_mega.tasks.image_classification import WHOLE, ImageClassificationTask
from fairseq_mega.tasks.lra_text import FIRST, LRATextTask
from fairseq_mega.tasks.speech_commands import FOLDER, SpeechCommandsTask

BYTE_ORDER_MARK = "\ufeff"
Item = Tuple[str, Dict[str, Tensor]]  # its text or the name of its file, and the model's input


class Notes:
    """Notes of one kind on examples: the first MOST of them are printed, the others counted.

    Args:
        what: continuation of "N further ...", for the count.
    """

    MOST = 3

    def __init__(self, what: str) -> None:
        self.what, self.given = what, 0

    def say(self, note: str) -> None:
        """Print a note, or count it."""
        self.given += 1
        if self.given <= self.MOST:
            say(note)

    def say_rest(self) -> None:
        """Print the number of notes that were counted, if any."""
        if self.given > self.MOST:
            say(f"note: {self.given - self.MOST:,} further {self.what}")


class TextReader:
    """New texts as the inputs of a classifier of texts, shortened like the texts of training.

    Expressions of ListOps are read as in its preparation: without parentheses, and ``]`` as X.

    The reader prints how many symbols the training texts lack, and how much of a long text the model reads.

    Args:
        task: of the classifier.
    """

    def __init__(self, task: LRATextTask) -> None:
        self.task, self.notes = task, Notes("texts were shortened in the same way")
        folder = Path(task.cfg.data) / FIRST
        card = task.data_card()
        kept: Tuple[Optional[int], bool] = kept_bytes(card) or (None, False)
        self.length, self.last = kept
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        encoder = encoder_of_data(task, True)
        for entry in OPTIONS:
            if encoder is None or entry != SUBWORDS:
                warn_of_unsplit_text(entry, task)
        self.unit: Any = encoder or text_unit(folder, card.get(UNIT, ""))
        self.reads_listops = set(own_symbols(dictionary)) == set(SYMBOLS)
        special = task.label_dictionary.nspecial
        self.labels: List[str] = task.label_dictionary.symbols[special:]

    def read_lines(self, lines: Iterator[str]) -> Iterator[Item]:
        """Return the items of lines of text; in retrieval, two texts a line, separated by TAB."""
        for number, line in enumerate(lines, start=1):
            line = line.rstrip("\r\n").lstrip(BYTE_ORDER_MARK)
            if "\r" in line:
                say(f"note: line {number} contains carriage returns, which do not end lines ({TO_LINE_FEEDS})")
            yield line, self._inputs(line, f"line {number}")

    def read_file(self, path: Path) -> Item:
        """Return the item of a file of text without its last line end."""
        check_file(path)
        with open_text(path, "surrogateescape", newline="") as file:
            text = file.read().rstrip("\r\n")
        if "\0" in text:
            raise ValueError(f"{path}: it contains NUL bytes; give plain text in UTF-8")
        return str(path), self._inputs(text, str(path))

    def _inputs(self, text: str, place: str) -> Dict[str, Tensor]:
        documents = text.split("\t") if self.task.documents == 2 else [text]
        if len(documents) != self.task.documents:
            raise ValueError(f"{place} has {len(documents)} texts: two, separated by TAB, are compared")
        found = [self._tokens(document, place) for document in documents]
        if not all(map(str.strip, documents)):
            say(f"note: {place} contains no text: its label is meaningless")
        unknown = sum(int((tokens == self.task.dictionary.unk()).sum()) for tokens in found)
        if unknown and any("\udc80" <= character <= "\udcff" for character in text):
            say(
                f"note: {place} is not UTF-8, and {unknown} of its symbols are in no training text: "
                "encode it like the training texts"
            )
        elif unknown:
            symbols = sum(int((tokens >= self.task.dictionary.unk()).sum()) for tokens in found)
            say(f"note: {unknown} of the {symbols} symbols of {place} are in no training text")
        return dict(zip(("src_tokens", "src1_tokens"), found))

    def _tokens(self, text: str, place: str) -> Tensor:
        """Return tokens (1, L) in the form of the task's data."""
        dictionary = self.task.dictionary
        symbols = self._symbols(text)
        taken = symbols[-self.length :] if self.last and self.length else symbols[: self.length]
        tokens = dictionary.encode_line(" ".join(taken), add_if_not_exist=False).long()
        first = [self.task.cls_index] if self.task.pooling == "cls" else []
        tokens = torch.cat([tokens.new_tensor(first), tokens])[: self.task.longest]
        read = min(len(taken), len(tokens) - len(first))
        if read < len(symbols):
            which = f"the first {read}"
            if self.last and self.length:
                which = f"the last {read}" if read == len(taken) else f"{which} of the last {len(taken)}"
            self.notes.say(f"note: of the {len(symbols)} symbols of {place} the model reads {which}, as in training")
        return tokens.unsqueeze(0)

    def _symbols(self, text: str) -> List[str]:
        if self.reads_listops:
            return model_input(text)
        if not isinstance(self.unit, ByteUnit):
            return self.unit.encode(text).split()
        return list(map(str, text.encode("utf-8", "surrogateescape")))  # line feeds are ordinary bytes


class ClipReader:
    """New recordings as the inputs of a classifier of raw speech.

    Args:
        task: of the classifier.
    """

    def __init__(self, task: SpeechCommandsTask) -> None:
        self.scale = ClipScale.load(Path(task.cfg.data) / FOLDER)
        self.labels, self.notes = self.scale.labels, Notes("recordings were shortened in the same way")

    def read_lines(self, lines: Iterator[str]) -> Iterator[Item]:
        """Return the items of the recordings that the lines name."""
        yield from map(self.read_file, _named_on(lines))

    def read_file(self, path: Path) -> Item:
        """Return the item of a file of sound, cut or padded with silence."""
        check_file(path)
        recording = read_sound(path)
        samples = fitted(str(path), recording, self.scale.length)
        if is_silent(recording):
            say(f"note: {path} is silent from beginning to end: its label is meaningless ({AS_FLOATS})")
        if len(recording) > len(samples):
            self.notes.say(f"note: of the {len(recording)} samples of {path} the model reads the first {len(samples)}")
        return str(path), {"src_tokens": torch.from_numpy(self.scale.apply(samples)).unsqueeze(0)}


class PictureReader:
    """New images as the inputs of a classifier of colour images.

    Args:
        task: of the classifier, with its model. Classes have names if the data of the training, or the task's own, have
            a folder per class.
    """

    def __init__(self, task: ImageClassificationTask) -> None:
        self.labels, self.notes = task.labels(), Notes("images were resized and cropped in the same way")
        self.size, self.kept = task.size_of_model(), task.kept()
        self.transform = evaluation_transform(self.size, self.kept, "classifying images")

    def read_lines(self, lines: Iterator[str]) -> Iterator[Item]:
        """Return the items of the images that the lines name."""
        yield from map(self.read_file, _named_on(lines))

    def read_file(self, path: Path) -> Item:
        """Return the item of an image, resized and cropped at the centre, as in validation."""
        check_file(path)
        image = read_image(path)
        if self.kept == WHOLE and image.size != (self.size, self.size):
            self.notes.say(
                f"note: {path} has {image.width} x {image.height} pixels, the arrays of training had {self.size} x "
                f"{self.size}: the image is resized by its shorter side and cropped at the centre; if the arrays "
                "were made differently, give an image made like them"
            )
        return str(path), {"images": self.transform(image).unsqueeze(0)}


def _named_on(lines: Iterator[str]) -> Iterator[Path]:
    """Return the files that lines name; raise ValueError for a line without a name."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise ValueError(f"line {number} of the input is blank: give the name of a file, or remove the line")
        if "\0" in line:
            raise ValueError(
                f"line {number} of the input is no name of a file, as in a recording or a picture: give the names of "
                "files, one a line, or FILE after the data folder"
            )
        yield Path(line.rstrip("\r\n"))


def check_file(path: Path) -> None:
    """Raise ValueError or FileNotFoundError for a name that is no file's."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the files in it, such as {path}/*")
    if str(path) == "-" and not path.exists():
        raise ValueError("- is no file: omit it to give lines, or names of recordings or images, on stdin")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give names of files here, and texts themselves on stdin")


def reader_of(task: Any) -> Union[TextReader, ClipReader, PictureReader]:
    """Return the reader of new examples for a task; raises ValueError for a task that has none."""
    if isinstance(task, LRATextTask):
        return TextReader(task)
    if isinstance(task, SpeechCommandsTask):
        return ClipReader(task)
    if isinstance(task, ImageClassificationTask):
        return PictureReader(task)
    raise ValueError(
        f"{type(task).__name__}: classifiers of --task lra-text, speech_commands and image-classification can be used "
        f"here"
    )


@torch.no_grad()
def answers_to(model: nn.Module, inputs: Dict[str, Tensor], labels: Sequence[str]) -> List[Tuple[str, float]]:
    """Return labels with their probabilities, likeliest first; classes beyond the labels are named by number."""
    device = next(model.parameters()).device
    logits = model(**{key: value.to(device) for key, value in inputs.items()})
    shares, classes = logits[0].float().softmax(dim=0).sort(descending=True)
    names = (labels[number] if number < len(labels) else f"class-{number}" for number in classes.tolist())
    return list(zip(names, shares.tolist()))
