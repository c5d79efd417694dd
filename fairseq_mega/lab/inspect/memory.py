"""How long a context a training step of a language model holds in a given memory: a formula, in the models' widths.

What a step needs most of stands at the beginning of the backward pass: weights, their gradients and Adam's two moments,
and for each token what every layer keeps, the embeddings, and of each symbol the logit and its gradient.
Attention computes its weights again, in chunks or without. All of it for one sequence, in float32 or under autocast to
bfloat16, with the compiled kernels of a CPU, and without recomputation of layers; of adaptive tables in float32.

The formula leaves out what the last layer's backward pass holds more where symbols are few beside the widths: less than
another layer would keep, and what each thread of attention's kernel works in. It is that of attention by the path
`native_blocks`; by another one, as without AVX2, a layer keeps somewhat more or less.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY

from fairseq_mega.compat.checkpoints.loading import load_checkpoint
from fairseq_mega.convert.building import stand_in
from fairseq_mega.convert.options import flat_options
from fairseq_mega.models.mega_lm import complete_mega_lm
from fairseq_mega.models.megalodon_lm import complete_megalodon
from fairseq_mega.models.options.layer_config import layer_config, megalodon_layer_config
from fairseq_mega.models.presets import preset

from .adaptive_memory import adaptive_input_bytes, adaptive_output_bytes
from .layer_memory import NARROW, WIDE, mega_layer_bytes, megalodon_layer_bytes
from .parts import parameters_by_part

STATE = 4 * WIDE  # bytes of a parameter: weight, gradient, two moments
GIB = 2**30
SHORTEST = 128  # chunk; the attention of shorter ones takes another path, which keeps less
MOST_SYMBOLS = 10_000_000  # of a dictionary, which is built to count parameters
OUTPUT = 2  # numbers of each symbol: logit and gradient
LOSS = 8 * WIDE  # bytes of a token: its losses and their gradients, sums, and its target


class Step(NamedTuple):
    """What a training step of a model holds, in bytes."""

    state: int  # whatever the length
    token: int  # for each token of the sequence

    def context(self, memory: float) -> int:
        """Tokens of the longest sequence whose step fits into ``memory`` bytes; 0 where not even the state does."""
        return max(int((memory - self.state) // self.token), 0)


def step_of(
    options: Dict[str, Any],
    megalodon: bool,
    parameters: int,
    symbols: int,
    bf16: bool = False,
    shares: Optional[Sequence[float]] = None,
) -> Step:
    """What a training step of a language model holds.

    Args:
        options: of the model, those of any origin.
        megalodon: whether its layers are MEGALODON's.
        parameters: their number.
        symbols: V, in its dictionary.
        bf16: whether products are computed in bfloat16 (``--precision bf16``), of copies of the weights.
        shares: of a text in the bands of adaptive tables; None takes Zipf's law.

    Raises:
        ValueError: for a model of which the formula does not tell.
    """
    cfg = (complete_megalodon if megalodon else complete_mega_lm)(Namespace(**options))
    adaptive = cfg.adaptive_softmax_cutoff is not None
    if cfg.checkpoint_activations:
        raise ValueError("--checkpoint-activations: the formula tells of models that keep all")
    if bf16 and (adaptive or cfg.adaptive_input):
        raise ValueError("--precision bf16: the formula tells of adaptive tables in float32 alone")
    if 0 < cfg.decoder_chunk_size < SHORTEST:
        given = f"--decoder-chunk-size {cfg.decoder_chunk_size}"
        raise ValueError(f"{given}: the formula tells of chunks of {SHORTEST} and more, and of none")
    width, pre_norm = cfg.decoder_embed_dim, True
    if megalodon:
        layer = megalodon_layer_bytes(megalodon_layer_config(cfg, "decoder", "max_target_positions"), bf16)
    else:
        config = layer_config(cfg, "decoder", "max_target_positions")
        layer, pre_norm = mega_layer_bytes(config, bf16), config.normalize_before
    number = NARROW if bf16 else WIDE
    around = LOSS + (adaptive_output_bytes(cfg, symbols, shares) if adaptive else number * OUTPUT * symbols)
    around += adaptive_input_bytes(cfg, symbols, shares) if cfg.adaptive_input else 0
    around += number * width
    around += WIDE * width * int(pre_norm)
    return Step((STATE + (NARROW if bf16 else 0)) * parameters, cfg.decoder_layers * layer + round(around))


def model_of(name: str, symbols: int, bf16: bool = False) -> Tuple[Step, int]:
    """The step and the number of parameters of a checkpoint, or of an architecture with so many symbols.

    Raises:
        OSError: if there is neither.
        ValueError: if it is no language model of this package.
    """
    kind = ARCH_MODEL_NAME_REGISTRY.get(name, "")
    if kind in ("mega_lm", "megalodon_lm"):
        options = {} if name == kind else preset(name)
        if not 0 < symbols <= MOST_SYMBOLS:
            raise ValueError(f"--symbols {symbols}: give 1 to {MOST_SYMBOLS:,}, the number of your dictionary")
        borders = str(options.get("adaptive_softmax_cutoff") or 0).split(",")
        if symbols <= int(borders[-1]):
            raise ValueError(
                f"--symbols {symbols}: the adaptive tables of {name} are for more than {borders[-1]}; give the number "
                f"of your dictionary, for WikiText-103 267744"
            )
        with torch.device("meta"):
            model = MODEL_REGISTRY[kind].build_decoder(Namespace(**options), stand_in(symbols))
        count = sum(parameter.numel() for parameter in model.parameters())
        return step_of(options, kind == "megalodon_lm", count, symbols, bf16), count
    checkpoint = load_checkpoint(Path(name))
    table = checkpoint["model"].get("decoder.embedding.tokens.weight")
    if table is None or any(tensor.startswith("encoder.") for tensor in checkpoint["model"]):
        raise ValueError(f"{name}: --memory tells of language models of this package with a plain table alone")
    count = sum(part for _, part in parameters_by_part(checkpoint["model"]))
    megalodon = any(tensor.endswith(".ema.theta") for tensor in checkpoint["model"])
    return step_of(flat_options(checkpoint), megalodon, count, table.size(0), bf16), count


def lines_of(name: str, memories: List[float], symbols: int, bf16: bool = False) -> List[str]:
    """The contexts of a model for memories in GiB, as lines of text."""
    step, count = model_of(name, symbols, bf16)
    state, token = f"{step.state / GIB:.2f} GiB of training state", f"{step.token / 1024:,.1f} KiB for each token"
    first = f"{count:,} parameters: {state}, {token}"
    return [first, *(f"{memory:g} GiB: {step.context(memory * GIB):,} tokens" for memory in memories)]
