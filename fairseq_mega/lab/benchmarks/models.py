"""Language models of equal size, and those of recipes, with random weights."""

import copy
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor, nn

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.smoke import shrink
from fairseq_mega.models.decode_weights import pack_weights
from fairseq_mega.models.on_paper import stand_in
from fairseq_mega.modules.packed_linear import PackedLinear
from fairseq_mega.ops.packed_linear import KINDS

MODELS = ("mega", "mega-full", "transformer")
PACKED = {f"{name}-{kind}": (name, kind) for name in ("mega", "megalodon") for kind in KINDS}
OTHERS = (*PACKED, "megalodon", "llama")  # measured on request only


def build(
    name: str, width: int, layers: int, chunk: int, vocab_size: int, longest: int, tied: bool = True, **changes: Any
) -> Any:
    """Build a model with plain tables, without dropout.

    Args:
        name: "mega" or "megalodon" with chunks (followed by "-bf16" or "-int8" for packed matrices), "mega-full" with
            full attention, or "transformer" (fairseq's transformer_lm) and "llama" (the Llama-style model), whose FFN
            makes the layers equal in parameters.
        width: d; MEGA's v and inner FFN width are 2 d, its z is d / 2, N = 16; the Transformers have d / 32 heads.
        layers: number of layers.
        chunk: of "mega".
        vocab_size: V.
        longest: positions.
        tied: whether embedding and output share a table.
        changes: of the model's options.

    Returns:
        A fairseq language model.
    """
    if name in PACKED:
        plain, kind = PACKED[name]
        model = build(plain, width, layers, chunk, vocab_size, longest, tied, **changes)
        pack_weights(model, kind)
        return model
    options: Dict[str, Any] = {"decoder_embed_dim": width, "decoder_layers": layers, "dropout": 0.0}
    options.update(share_decoder_input_output_embed=tied, max_target_positions=longest, tokens_per_sample=longest)
    if name in ("transformer", "llama"):
        options.update(decoder_attention_heads=max(1, width // 32))
    else:
        full = name == "mega-full"
        options.update(decoder_hidden_dim=2 * width, decoder_z_dim=width // 2, decoder_n_dim=16)
        options.update(decoder_chunk_size=-1 if full else chunk)
    if name == "transformer":
        options.update(
            decoder_ffn_embed_dim=(mega_layer(width) - 4 * width * (width + 1) - 5 * width) // (2 * width + 1),
            decoder_input_dim=width,
            decoder_output_dim=width,
            decoder_normalize_before=True,
            attention_dropout=0.0,
        )
    elif name == "llama":
        options.update(decoder_ffn_embed_dim=(mega_layer(width) - 4 * width * width - 2 * width) // (3 * width))
    elif name == "megalodon":
        # MEGA's layer has d (d + 1) parameters more in its update gate, MEGALODON's a few more per feature and
        # dimension. With an FFN of 5 d / 2 the layers differ by less than one percent.
        options.update(decoder_ffn_embed_dim=5 * width // 2, norm_num_groups=min(32, width // 4))
    else:
        options.update(normalize_before=True, no_affine_final_norm=True, rel_pos_bias="rotary")
    options.update(changes)
    given = _transformer_options(options) if name == "transformer" else Namespace(**options)
    return ARCH_MODEL_REGISTRY[f"{name.partition('-')[0]}_lm"].build_model(given, task_of(vocab_size))


def build_recipe(name: str, vocab_size: int, longest: int, smoke: bool = False) -> Any:
    """Build the model of a recipe.

    Args:
        name: of the recipe.
        vocab_size: V.
        longest: positions.
        smoke: in the recipe's tiny form.

    Returns:
        A fairseq language model.
    """
    recipe = catalogue()[name]
    config = copy.deepcopy(recipe.config)
    options = config["model"]
    if smoke:
        shrink(config, recipe.evaluate["kind"])
    options.update(max_target_positions=longest, tokens_per_sample=longest)
    return ARCH_MODEL_REGISTRY[options["_name"]].build_model(Namespace(**options), task_of(vocab_size))


def measure_training(
    model: nn.Module, loss_of: Callable[[Tensor], Tensor], tokens: Tensor, short: int, arguments: Namespace
) -> measuring.Figures:
    """Measure a training pass, forward and backward, of a model's loss on tokens (B, L), and count its parameters.

    A first pass over the ``short`` beginning excludes the one-time work of torch.
    """
    configure_process()  # as fairseq-mega-train does
    model.train()
    loss_of(tokens[:, :short]).backward()
    device = torch.device(arguments.device)
    found = measuring.time_and_memory(lambda: loss_of(tokens).backward(), arguments.repeat, device)
    return {**found, "parameters": sum(parameter.numel() for parameter in model.parameters())}


def layer_parameters(model: Any) -> int:
    """Parameters outside the embedding, packed ones included."""
    packed = [part for part in model.decoder.layers.modules() if isinstance(part, PackedLinear)]
    learned = sum(parameter.numel() for parameter in model.decoder.layers.parameters())
    return learned + sum(part.data.numel() + (0 if part.bias is None else part.bias.numel()) for part in packed)


def task_of(vocab_size: int) -> Any:
    """Return a stand-in for the task of a model: a namespace with a dictionary of this size."""
    dictionary = stand_in(vocab_size)
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary, dictionary=dictionary)


def mega_layer(width: int) -> int:
    """Parameters of MEGA's layer."""
    d, v, z, n = width, 2 * width, width // 2, 16
    return 4 * d * n + 3 * d + (d + 1) * (2 * d + z + 2 * v) + (v + 1) * d + 6 * z + 2 * d * v + v + 3 * d


def _transformer_options(options: Any) -> Any:
    """Return fairseq's defaults for a Transformer language model, changed by ``options``."""
    from fairseq.models.transformer_lm import TransformerLanguageModelConfig
    from omegaconf import OmegaConf

    base = OmegaConf.structured(TransformerLanguageModelConfig)
    interpolated: List[str] = [key for key in base if OmegaConf.is_interpolation(base, key)]
    known = {"add_bos_token": False, "tpu": False}
    return OmegaConf.merge(base, {**{key: known.get(key) for key in interpolated}, **options})
