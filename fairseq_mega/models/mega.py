"""MEGA encoder-decoder for translation (MEGA, Ma et al., ICLR 2023, section 4.4 and Table 10)."""

from argparse import Namespace
from typing import Any, Dict, Optional, Union

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderDecoderModel, register_model
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.embedding import token_table

from .checkpoints import check_state_dict
from .mega_config import PRESETS, MegaConfig, check_embedding_norm, complete, register_presets
from .mega_decoder import MegaDecoder
from .mega_encoder import MegaEncoder


@register_model("mega", dataclass=MegaConfig)
class MegaModel(FairseqEncoderDecoderModel):
    """MEGA encoder-decoder: ``--arch mega`` and its presets ``mega_wmt_en_de``, ``mega_iwslt_de_en``, ``mega_tiny``."""

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Any) -> "MegaModel":
        """Build a model for a translation task.

        Raises:
            ValueError: where options are out of range or contradict each other or the task's dictionaries.
        """
        cfg = complete(MegaConfig, cfg)
        check_embedding_norm(cfg)
        for option in ("encoder_layers", "decoder_layers"):
            if cfg[option] < 1:
                raise ValueError(f"--{option.replace('_', '-')} {cfg[option]}: must be at least 1")
        source, target = task.source_dictionary, task.target_dictionary
        decoder_dim = cfg.decoder_embed_dim or cfg.encoder_embed_dim
        if decoder_dim != cfg.encoder_embed_dim:
            raise ValueError(
                f"--decoder-embed-dim {decoder_dim} differs from --encoder-embed-dim {cfg.encoder_embed_dim}: "
                f"cross attention needs equal widths"
            )
        if cfg.share_all_embeddings:
            if source != target:
                raise ValueError(
                    f"--share-all-embeddings needs one dictionary for both languages, found {len(source)} source and "
                    f"{len(target)} target symbols: run fairseq-preprocess with --joined-dictionary, or leave it out"
                )
            if cfg.decoder_embed_path and cfg.decoder_embed_path != cfg.encoder_embed_path:
                raise ValueError("--share-all-embeddings has one table: give --encoder-embed-path only")
        encoder_embedding = build_embedding(source, cfg.encoder_embed_dim, cfg.encoder_embed_path)
        if cfg.share_all_embeddings:
            decoder_embedding = encoder_embedding
        else:
            decoder_embedding = build_embedding(target, decoder_dim, cfg.decoder_embed_path)
        return cls(MegaEncoder(cfg, source, encoder_embedding), MegaDecoder(cfg, target, decoder_embedding))

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor, **options: Any) -> Any:
        """Logits (B, L, V) of the target given source (B, S) and the target so far (B, L), and a dictionary."""
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, **options)
        return self.decoder(prev_output_tokens, encoder_out=encoder_out, **options)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Refuse checkpoints of other code with a message that says what they are.

        Raises:
            ValueError: if the tensors are not this model's.
        """
        super().upgrade_state_dict_named(state_dict, name)
        check_state_dict(self, state_dict)


def build_embedding(dictionary: Dictionary, embed_dim: int, path: Optional[str] = None) -> nn.Embedding:
    """Embedding table drawn from Normal(0, d^-0.5) with a zero row for padding, or read from a file."""
    embedding = token_table(len(dictionary), embed_dim, dictionary.pad())
    if path:
        utils.load_embedding(utils.parse_embedding(path), dictionary, embedding)
    return embedding


register_presets("mega", PRESETS)
