"""Attention weights of one layer of a model for a text."""

from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional

import torch
from fairseq import checkpoint_utils, utils
from fairseq.dataclass.configs import GenerationConfig
from torch import Tensor, nn

from fairseq_mega.compat.patches.interactive import tell_unknown
from fairseq_mega.data.text_cleaning import clean, steps_of_folder
from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit
from fairseq_mega.lab.evaluate.new_examples import reader_of
from fairseq_mega.models.classifier import SequenceClassifier
from fairseq_mega.models.text_generator import TextGenerator


class Attended(NamedTuple):
    """Weights (rows, columns) of one layer, with the symbols of both."""

    weights: Tensor
    rows: List[str]
    columns: List[str]
    title: str


@torch.no_grad()
def attention_for(path: Path, data: Optional[Path], text: str, layer: Optional[int]) -> Attended:
    """Attention of a layer for a text: of a translator between source and its translation, else within the text.

    Args:
        path: checkpoint.
        data: folder whose dictionaries the model was trained with; None: the one that the checkpoint names.
        text: plain; of a translator whose data folder has no ``subwords.model``, words and pieces with spaces between.
        layer: counted from 1; None: the last.

    Raises:
        OSError: if a file is missing.
        ValueError: if there is no such layer, or the model is of another kind.
    """
    overrides = {} if data is None else {"data": str(data)}
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    model.eval()
    encoder: Any = getattr(model, "encoder", None)
    decoder: Any = getattr(model, "decoder", None)
    if encoder is not None and decoder is not None:
        return _alignment(model, task, text, layer)
    if isinstance(model, SequenceClassifier):
        inputs = next(iter(reader_of(task).read_lines(iter([text]))))[1]
        tokens, dictionary = inputs["src_tokens"], task.dictionary
        run: Any = lambda: model(**inputs)
    elif decoder is not None:
        dictionary = task.source_dictionary
        tokens = torch.tensor([TextGenerator(cfg, task, [model]).tokens_of(text)])
        run = lambda: model(tokens)
    else:
        raise ValueError(f"{path}: a model of this package is needed")
    layers = (encoder or decoder).layers
    number = _number(layers, layer)
    weights = _self_attention(layers[number - 1], run)
    symbols = [dictionary[token] for token in tokens[0].tolist()]
    length = len(symbols)  # without what fills the last chunk
    return Attended(weights[:length, :length], symbols, symbols, f"attention of layer {number}")


def _source_symbols(task: Any, text: str) -> str:
    """Pieces of a text where its data folder holds their model and the text is none yet; else the text, cleaned."""
    folder = Path(utils.split_paths(task.cfg.data)[0])
    model = folder / MODEL_FILE
    if not model.is_file():
        return clean(text, steps_of_folder(folder))
    unit = SubwordUnit(model)
    return clean(text, unit.cleaning) if "\u2581" in text else unit.encode(text)


def _alignment(model: Any, task: Any, text: str, layer: Optional[int]) -> Attended:
    """Cross attention of a decoder's layer while it reads its own translation."""
    symbols = _source_symbols(task, text)
    source = task.source_dictionary.encode_line(symbols, add_if_not_exist=False).long().unsqueeze(0)
    tell_unknown(text, source, task.source_dictionary)
    lengths = torch.tensor([source.size(1)])
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    target = task.target_dictionary
    generator = task.build_generator([model], GenerationConfig(max_len_a=2, max_len_b=10))
    written = generator.generate([model], sample)[0][0]["tokens"]
    read = torch.cat([written.new_tensor([target.eos()]), written[:-1]]).unsqueeze(0)
    layers = model.decoder.layers
    number = _number(layers, layer)
    found: List[Tensor] = []

    def ask(module: nn.Module, given: Any) -> Any:
        return (*given[:2], True)

    def take(module: nn.Module, given: Any, output: Any) -> None:
        found.append(output[2])

    attention = layers[number - 1].cross_attention
    hooks = [attention.register_forward_pre_hook(ask), attention.register_forward_hook(take)]
    try:
        model(source, lengths, read)
    finally:
        for hook in hooks:
            hook.remove()
    rows = [target[token] for token in written.tolist()]
    columns = [task.source_dictionary[token] for token in source[0].tolist()]
    return Attended(found[0][0], rows, columns, f"what layer {number} reads (source) as it writes (target)")


def _number(layers: Any, layer: Optional[int]) -> int:
    number = len(layers) if layer is None else layer
    if not 1 <= number <= len(layers):
        raise ValueError(f"--layer {layer}: this model has layers 1 to {len(layers)}")
    return number


def _self_attention(layer: Any, run: Callable[[], object]) -> Tensor:
    """Weights (L, L) of the first text in a layer: what the attention makes of unit vectors in place of its values."""
    found: List[Tensor] = []
    attend = layer.attention._attend

    def spy(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
        units = torch.eye(key.size(1), dtype=value.dtype).expand(key.size(0), -1, -1)
        found.append(attend(query, key, units, *rest)[0])
        return attend(query, key, value, *rest)

    layer.attention._attend = spy
    try:
        run()
    finally:
        del layer.attention._attend
    return found[0]
