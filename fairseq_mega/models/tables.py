"""Tables between tokens and vectors: plain tables, random or read from a file, and adaptive tables."""

import logging
from functools import partial
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq import modules, utils
from fairseq.data import Dictionary
from fairseq.modules.adaptive_softmax import TiedLinear
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.drawn import PlainLinear, Table, adopt, draw_tokens
from fairseq_mega.modules.embedding import TokenEmbedding, token_table

from .options.configurations import flag

logger = logging.getLogger(__name__)


def check_tables(cfg: DictConfig) -> None:
    """Raise a ValueError if options of the tables of a completed configuration contradict each other.

    fairseq would ignore one of them, without a word.
    """
    plain = cfg.adaptive_softmax_cutoff is None
    tied = {f"adaptive_input_{part}": f"adaptive_softmax_{part}" for part in ("cutoff", "factor")}
    other = [name for name, bands in tied.items() if cfg[name] is not None and cfg[name] != cfg[bands]]
    refused = {
        "--decoder-embed-path fills one plain table: omit it or --adaptive-input": (
            cfg.decoder_embed_path and cfg.adaptive_input
        ),
        "--adaptive-input requires --adaptive-input-cutoff or --adaptive-softmax-cutoff: give one": (
            cfg.adaptive_input and plain and cfg.adaptive_input_cutoff is None
        ),
        "--tie-adaptive-weights requires --adaptive-input and --adaptive-softmax-cutoff: give both": (
            cfg.tie_adaptive_weights and (plain or not cfg.adaptive_input)
        ),
        f"--tie-adaptive-weights requires equal bands: omit {', '.join(map(flag, other))}": (
            cfg.tie_adaptive_weights and other
        ),
        "--tie-adaptive-proj requires --tie-adaptive-weights: give both, or omit it": (
            cfg.tie_adaptive_proj and not cfg.tie_adaptive_weights
        ),
        "--share-decoder-input-output-embed shares one plain table: for adaptive tables give --tie-adaptive-weights": (
            cfg.share_decoder_input_output_embed and (cfg.adaptive_input or not plain)
        ),
    }
    for message, holds in refused.items():
        if holds:
            raise ValueError(message)


def band_ends(value: str) -> List[int]:
    """Parse a comma-separated list of the ends of bands of an adaptive input or softmax."""
    return [int(part) for part in value.split(",")]


class AdaptiveEmbedding(modules.AdaptiveInput):
    """fairseq's adaptive input, usable under autocast and without uninitialized memory in checkpoints."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        for part in list(self.modules()):
            if isinstance(part, nn.Embedding):  # a row of every band is zero, as fairseq draws them
                normal = partial(nn.init.normal_, std=part.embedding_dim**-0.5)
                adopt(part, partial(draw_tokens, draw=normal, padding=self.padding_idx))
            elif isinstance(part, nn.Linear):
                adopt(part, nn.init.xavier_uniform_)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the buffer; the tables draw their values themselves."""
        self._float_tensor.zero_()

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input)


class AdaptiveSoftmax(modules.AdaptiveSoftmax):  # options of fairseq know it by this name
    """fairseq's adaptive softmax, without uninitialized memory in checkpoints.

    Args:
        args: as fairseq orders them.
        tied: the adaptive input whose tables it shares, or None.
        tied_projections: whether it shares the projections, too.
    """

    def __init__(self, *args: Any, tied: Optional[nn.Module], tied_projections: bool) -> None:
        super().__init__(*args, tied, tied_projections)
        tables = [] if tied is None else [part for part in tied.modules() if hasattr(part, "weight")]
        owners = {id(part.weight): part for part in tables}
        self.ties: List[Tuple[nn.Module, nn.Module]] = []  # parts that share a matrix, and the parts that own it
        for part in list(self.modules()):
            if isinstance(part, nn.Linear):
                adopt(part, nn.init.xavier_uniform_)
            elif isinstance(part, TiedLinear):
                self.ties.append((part, owners[id(part.weight)]))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the buffers and share the matrices again, which ``to_empty`` parts; their owners draw them."""
        for part, owner in self.ties:
            part.weight = owner.weight
        self.version.fill_(1)
        for name, buffer in self.named_buffers():
            if name.endswith("_float_tensor"):
                buffer.zero_()

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Do nothing: fairseq refuses a checkpoint without its version, as a part of a checkpoint may be."""


def decoder_table(cfg: DictConfig, dictionary: Dictionary, first: int, width: int) -> nn.Module:
    """Build the input table of a decoder: adaptive with ``--adaptive-input``, else plain.

    Args:
        cfg: a completed configuration that ``check_tables`` accepts.
        dictionary: dictionary of the tokens.
        first: width of a plain table, or of the first band of an adaptive table.
        width: d, to which an adaptive table projects.
    """
    if not cfg.adaptive_input:
        return plain_table(dictionary, first, cfg.decoder_embed_path)
    cutoff = band_ends(cfg.adaptive_input_cutoff or cfg.adaptive_softmax_cutoff)
    return AdaptiveEmbedding(len(dictionary), dictionary.pad(), first, cfg.adaptive_input_factor, width, cutoff)


def adaptive_softmax(
    cfg: DictConfig, dictionary: Dictionary, width: int, tokens: nn.Module
) -> Optional[AdaptiveSoftmax]:
    """Build the adaptive softmax of features (..., d); None without ``--adaptive-softmax-cutoff``.

    ``tokens`` is the decoder's input table, for ``--tie-adaptive-weights``.
    """
    if cfg.adaptive_softmax_cutoff is None:
        return None
    return AdaptiveSoftmax(
        len(dictionary),
        width,
        band_ends(cfg.adaptive_softmax_cutoff),
        cfg.adaptive_softmax_dropout,
        cfg.adaptive_softmax_factor,
        tied=tokens if cfg.tie_adaptive_weights else None,
        tied_projections=cfg.tie_adaptive_proj,
    )


def output_projection(width: int, vocab_size: int) -> PlainLinear:
    """Build the matrix of an output layer (vocab_size, width), drawn from Normal(0, width^-0.5)."""
    return PlainLinear(width, vocab_size, bias=False).drawn(partial(nn.init.normal_, std=width**-0.5))


def plain_table(dictionary: Dictionary, width: int, path: Optional[str] = None) -> Table:
    """Build an embedding table (V, width) from Normal(0, width^-0.5) with a zero row for padding, or from a file.

    Args:
        dictionary: dictionary of the tokens.
        width: width of the table.
        path: text file in fairseq's form: a first line "LINES WIDTH", then a line "TOKEN NUMBER NUMBER ..." for each
            token; the rows of other tokens stay random.

    Raises:
        ValueError: if no token of the file is in the dictionary, or a vector has another width.
    """
    table = token_table(len(dictionary), width, dictionary.pad())
    if not path:
        return table
    vectors = utils.parse_embedding(path)
    known = [vectors[token].numel() for token in dictionary.symbols if token in vectors]
    if not known or set(known) != {width}:
        found = f"{len(known)} tokens of the dictionary with {', '.join(map(str, sorted(set(known)))) or 'no'} numbers"
        raise ValueError(f"{path} has {found}: give vectors of {width} numbers for tokens of the dictionary")
    logger.info(f"{path}: read vectors of {len(known):,} of the dictionary's {len(dictionary):,} tokens")
    return utils.load_embedding(vectors, dictionary, table)


def token_embedding(cfg: DictConfig, tokens: nn.Module, width: int, types: int = 0) -> TokenEmbedding:
    """Build the input embeddings (B, L, width) of an encoder or decoder; ``types``: see TokenEmbedding."""
    norm = str(cfg.normalization_type) if cfg.normalize_embedding else None
    return TokenEmbedding(tokens, cfg.dropout, not cfg.no_scale_embedding, norm, width, types)
