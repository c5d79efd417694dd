"""How large the models of recipes are, reckoned from their options without building them."""

from typing import Any, List, Mapping, NamedTuple

from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.modules.images import CHANNELS, patch_count

BYTES = 264  # rows of a table of bytes: all 256, the special symbols, and what fills it up
SYMBOLS = {  # rows of a model's table of symbols, by the data set
    "wikitext-103": CORPORA["wikitext-103"].dictionary or 0,
    "wikitext-2": CORPORA["wikitext-2"].dictionary or 0,
    "enwik8": BYTES,
    "wmt16-en-de": 33_000,
    "libreoffice-help": 4000,
}


class LayerSize(NamedTuple):
    """What a layer of a model holds and does.

    Attributes:
        side: whose options describe it, the encoder's or the decoder's.
        embed_dim: width of the hidden states.
        weights: of its matrices.
        attended: widths of queries and values together, over which attention sums.
        moving_average: whether it has one, or a state space.
    """

    side: str
    embed_dim: int
    weights: int
    attended: int
    moving_average: bool


def layer_size(model: Mapping[str, Any]) -> LayerSize:
    """The size of a layer, from the options of a model."""
    side = "decoder" if model["_name"].endswith("_lm") else "encoder"
    d, ffn = model[f"{side}_embed_dim"], model.get(f"{side}_ffn_embed_dim")
    if f"{side}_hidden_dim" in model:
        v, z = model[f"{side}_hidden_dim"], model[f"{side}_z_dim"]
        matrices = 3 if model.get("swiglu") else 2
        gates = d if model["_name"].startswith("megalodon") else 2 * d  # which has no update gate
        weights = d * (2 * v + z + gates) + v * d + matrices * d * (v if ffn is None else ffn)
        return LayerSize(side, d, weights, v + z, model[f"{side}_n_dim"] > 0)
    if ffn is None:  # S4D: a gated map, and a state of N / 2 complex numbers in both directions
        return LayerSize(side, d, 2 * d * d, 0, True)
    matrices = 3 if model["_name"] == "llama_lm" else 2  # SwiGLU has a gate
    return LayerSize(side, d, 4 * d * d + matrices * d * ffn, 2 * d, False)


def parameters(recipe: Recipe) -> int:
    """About how many parameters the model has: the matrices of its layers, moving averages and tables of symbols.

    Norms, biases and heads, which are left out, are some per cent of a small model.
    """
    model = recipe.config["model"]
    layer = layer_size(model)
    d, count = layer.embed_dim, model[f"{layer.side}_layers"]
    averages = 5 * d * (model.get(f"{layer.side}_n_dim") or 0)
    total = (1 if model.get("share_encoder_layers") else count) * (layer.weights + averages)
    if patches(model):
        head = (d if "encoder_hidden_dim" in model else 0) + model["image_class_num"]
        return total + d * (patches(model) + CHANNELS * model["patch_size"] ** 2 + head)
    if layer.side == "encoder" and "decoder_layers" in model:  # as large a decoder, and its cross-attention
        cross = 2 * d * model["encoder_z_dim"] + 3 * d * d if "encoder_z_dim" in model else 4 * d * d
        total += count * (layer.weights + averages // 2 + cross)
    return total + table_size(recipe, d)


def patches(model: Mapping[str, Any]) -> int:
    """Positions of a model of images; 0 for others."""
    return patch_count(model["image_size"], model["patch_size"]) if "patch_size" in model else 0


def table_size(recipe: Recipe, embed_dim: int) -> int:
    """Numbers in the table of symbols, of which there is one where input and output share it, or in its bands."""
    model, symbols = recipe.config["model"], SYMBOLS.get(recipe.data, BYTES)
    if model.get("input_type") == "image":
        return embed_dim
    if not model.get("adaptive_input"):
        return symbols * embed_dim
    borders: List[int] = [0, *map(int, model["adaptive_softmax_cutoff"].split(",")), symbols]
    widths = [embed_dim // 4**band for band in range(len(borders) - 1)]
    bands = zip(borders, borders[1:], widths)
    return sum((last - first + embed_dim) * width for first, last, width in bands)
