"""The sentencepiece model of ``--bpe sentencepiece``: the one that cut the training text, or none."""

import logging
import re
import typing

from fairseq_mega.compat.patching import wrap

from . import names

logger = logging.getLogger("fairseq_mega.compat.checkpoints.pieces")

STRANGE = 0.05  # of the symbols of a dictionary; some may have been put before the pieces, as languages are
_BRACKETED = re.compile(r"[<\[_].*[>\]_]|madeupword\d+")


def compare_sentencepiece_models() -> None:
    """Refuse another sentencepiece model than that of the training: its pieces would be unknown, or mean little."""
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
    from fairseq.hub_utils import GeneratorHubInterface
    from fairseq.tasks import FairseqTask

    wrap(SentencepieceBPE, "__init__", _remembering_its_file)
    wrap(FairseqTask, "build_bpe", _build_compared)
    wrap(GeneratorHubInterface, "__init__", _comparing)


def _remembering_its_file(original: typing.Callable, self: typing.Any, cfg: typing.Any) -> None:
    from fairseq import file_utils

    original(self, cfg)
    self.model_file = file_utils.cached_path(cfg.sentencepiece_model)


def _build_compared(original: typing.Callable, self: typing.Any, args: typing.Any) -> typing.Any:
    bpe = original(self, args)
    compare(bpe, self)
    return bpe


def _comparing(
    original: typing.Callable, self: typing.Any, cfg: typing.Any, task: typing.Any, models: typing.Any
) -> None:
    original(self, cfg, task, models)
    compare(self.bpe, task)


def compare(bpe: typing.Any, task: typing.Any) -> None:
    """Compare a model of pieces with what the checkpoint, or the data folder, says of its own.

    Args:
        bpe: any; None where the text is cut already.
        task: with its checkpoint loaded.

    Raises:
        OtherNames: where the model is another one.
    """
    if bpe is None:
        return
    theirs = getattr(task, "trained_names", {}).get(names.SUBWORDS)
    own = names.names_of(task).get(names.SUBWORDS)
    known = own.text if theirs is None and own is not None else theirs
    file = getattr(bpe, "model_file", None)
    if file is None:
        if known is not None:
            model = own.where if own is not None and own.text == known else "FILE"
            raise names.OtherNames(
                f"--bpe cuts text otherwise than the sentencepiece model that cut the training text: give --bpe "
                f"sentencepiece --sentencepiece-model {model}"
            )
        return
    option = f"--sentencepiece-model {file}"
    given = names.names_of_subwords(file)[names.SUBWORDS].text
    if known is not None:
        if known != given:
            where = f", {own.where}" if own is not None and own.text == known else ""
            raise names.OtherNames(
                f"{option} is not the sentencepiece model that cut the training text: give that one{where}"
            )
        return
    symbol = strange_symbol(bpe.sp, task.source_dictionary)
    if symbol is not None:
        raise names.OtherNames(
            f"{option} did not cut the training text: it has no {symbol!r}, which the dictionary has; give the "
            f"sentencepiece model of the training"
        )
    logger.warning(
        f"the checkpoint does not say which sentencepiece model cut its training text: {file} is taken for it"
    )


def strange_symbol(processor: typing.Any, dictionary: typing.Any) -> typing.Optional[str]:
    """Return a symbol that a sentencepiece model cannot have made; None where there are few, or none.

    Args:
        processor: of sentencepiece; it makes its pieces, and one symbol of what lies between them: of characters that
            it does not know.
        dictionary: of fairseq.
    """
    pieces = {processor.id_to_piece(number) for number in range(processor.get_piece_size())}
    known = {piece for piece in pieces if len(piece) == 1}
    numbers = range(dictionary.nspecial, len(dictionary))
    counts = {dictionary[number]: dictionary.count[number] for number in numbers}
    counts = {symbol: count for symbol, count in counts.items() if not _BRACKETED.fullmatch(symbol)}
    others = [symbol for symbol in counts if symbol not in pieces]
    strange = [symbol for symbol in others if known.intersection(symbol)]
    if 2 * sum(map(counts.__getitem__, others)) > sum(counts.values()):
        return others[0]
    return strange[0] if len(strange) > STRANGE * len(counts) else None
