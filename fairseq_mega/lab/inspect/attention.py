"""Attention weights of one layer of a model for a text, and their picture."""

from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import GenerationConfig
from torch import Tensor

from fairseq_mega.compat.features.encoders import SUBWORDS_FILE, compare, folders_of
from fairseq_mega.compat.features.interactive import warn_unknown
from fairseq_mega.compat.files.card import OPTIONS
from fairseq_mega.data.text_cleaning import clean, steps_of_folder
from fairseq_mega.data.text_units import SubwordUnit
from fairseq_mega.lab.evaluate.new_examples import reader_of
from fairseq_mega.lab.runs.plotting import load_pyplot, save
from fairseq_mega.models.classifier import SequenceClassifier
from fairseq_mega.models.streams.generator import TextGenerator
from fairseq_mega.tasks.lra_text import LRATextTask


class Attended(NamedTuple):
    """Weights (rows, columns) of one layer, with the tokens of both."""

    weights: Tensor
    rows: List[str]
    columns: List[str]
    title: str


@torch.no_grad()
def attention_for(path: Path, data: Optional[Path], text: str, layer: Optional[int]) -> Attended:
    """Return the attention of a layer for a text: for a translator between source and translation, else within the
    text.

    Args:
        path: checkpoint.
        data: folder whose dictionaries the model was trained with; None: the folder in the checkpoint.
        text: plain; words and subwords with spaces between for a translator whose data folder has no
            ``subwords.model``, and for a language model whose checkpoint or data folder does not have the encoder of
            its training.
        layer: counted from 1; None: the last.

    Raises:
        OSError: if a file is missing.
        ValueError: if the layer does not exist, the model is of another kind or has no attention, or the folder has
            other data.
    """
    overrides = {} if data is None else {"data": str(data)}
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    model.eval()
    encoder: Any = getattr(model, "encoder", None)
    decoder: Any = getattr(model, "decoder", None)
    if encoder is not None and decoder is not None:
        return _alignment(model, task, text, layer)
    if isinstance(task, LRATextTask) and isinstance(model, SequenceClassifier):
        inputs = next(iter(reader_of(task).read_lines(iter([text]))))[1]
        tokens, dictionary = inputs["src_tokens"], task.dictionary
        run: Any = lambda: model(**inputs)
    elif decoder is not None:
        dictionary = task.source_dictionary
        tokens = torch.tensor([TextGenerator(cfg, task, [model]).tokens_of(text)])
        run = lambda: model(tokens)
    else:
        raise ValueError(
            f"{path}: attention is drawn for translators, language models and classifiers of texts, found a model of "
            f"--task {task.cfg.get('_name')}: give another checkpoint"
        )
    layers = (encoder or decoder).layers
    number = _number(layers, layer)
    weights, heads = _self_attention(layers, number, run)
    read = [dictionary[token] for token in tokens[0].tolist()]
    length = len(read)  # without the padding of the last chunk
    title = f"attention of layer {number}" + (f", the mean of its {heads} heads" if heads > 1 else "")
    return Attended(weights[:length, :length], read, read, title)


def _encoded_source(task: Any, text: str) -> str:
    """Return the subwords of an unsplit text if the data folder has their model; else the cleaned text."""
    model = Path(folders_of(task)[0]) / SUBWORDS_FILE
    for entry in OPTIONS:
        compare(entry, "", task, reads_text=True)
    if not model.is_file():
        return clean(text, steps_of_folder(model.parent))
    unit = SubwordUnit(model)
    return clean(text, unit.cleaning) if "\u2581" in text else unit.encode(text)


def _alignment(model: Any, task: Any, text: str, layer: Optional[int]) -> Attended:
    """Return the cross attention of a decoder's layer while it reads its own translation."""
    cleaned = _encoded_source(task, text)
    source = task.source_dictionary.encode_line(cleaned, add_if_not_exist=False).long().unsqueeze(0)
    warn_unknown(text, source, task.source_dictionary)
    lengths = torch.tensor([source.size(1)])
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    target = task.target_dictionary
    generator = task.build_generator([model], GenerationConfig(max_len_a=2, max_len_b=10))
    written = generator.generate([model], sample)[0][0]["tokens"]
    read = torch.cat([written.new_tensor([target.eos()]), written[:-1]]).unsqueeze(0)
    layers = model.decoder.layers
    number = _number(layers, layer)
    found: List[Tensor] = []
    attention = layers[number - 1].cross_attention
    hooks = [
        attention.register_forward_pre_hook(lambda _, given: (*given[:2], True)),  # requests the weights
        attention.register_forward_hook(lambda _, given, output: found.append(output[2])),
    ]
    model(source, lengths, read)
    for hook in hooks:
        hook.remove()
    rows = [target[token] for token in written.tolist()]
    columns = [task.source_dictionary[token] for token in source[0].tolist()]
    title = f"layer {number}: source tokens read (columns) for each target token (rows)"
    return Attended(found[0][0], rows, columns, title)


def _number(layers: Any, layer: Optional[int]) -> int:
    number = len(layers) if layer is None else layer
    if not 1 <= number <= len(layers):
        raise ValueError(f"--layer {layer}: this model has layers 1 to {len(layers)}")
    return number


def _self_attention(layers: Any, number: int, run: Callable[[], object]) -> Tuple[Tensor, int]:
    """Return the weights of a layer for the first text, as a mean over its heads, and the number of heads.

    The weights are the attention's results for unit vectors in place of each head's values.

    Args:
        layers: of the trunk, in which one layer may occur in several places.
        number: of the layer, from 1.
        run: calls the model.

    Returns:
        Weights (L, L), and the number of heads.
    """
    layer = layers[number - 1]
    module = getattr(layer, "attention", layer)
    found: List[Tensor] = []
    attend, heads = module._attend, getattr(module, "heads", 1)

    def spy(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
        units = torch.eye(key.size(1), dtype=value.dtype).repeat(1, heads).expand(key.size(0), -1, -1)
        found.append(attend(query, key, units, *rest)[0].unflatten(-1, (heads, -1)).mean(-2))
        return attend(query, key, value, *rest)

    module._attend = spy
    try:
        run()
    finally:
        del module._attend
    return found[sum(other is layer for other in layers[: number - 1])], heads


def draw_attention(found: Attended, output: Path) -> None:
    """Draw the attention weights of tokens; their characters need a font of matplotlib's ``font.family``."""
    weights, rows, columns, title = found
    pyplot = load_pyplot()
    font = {"parse_math": False}  # a dollar is a symbol
    size = (min(1.8 + 0.32 * len(columns), 16), min(1.6 + 0.3 * len(rows), 16))
    figure, panel = pyplot.subplots(figsize=size, layout="constrained")
    image = panel.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=max(float(weights.max()), 1e-6), aspect="auto")
    panel.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor", **font)
    panel.set_yticks(range(len(rows)), rows, **font)
    panel.xaxis.tick_top()
    panel.tick_params(length=0)
    panel.set_xticks([at - 0.5 for at in range(1, len(columns))], minor=True)
    panel.set_yticks([at - 0.5 for at in range(1, len(rows))], minor=True)
    panel.grid(which="minor", color="white", linewidth=0.8)
    panel.tick_params(which="minor", length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.set_xlabel(title)
    figure.colorbar(image, ax=panel, shrink=0.7, aspect=30, label="weight")
    save(figure, output)
