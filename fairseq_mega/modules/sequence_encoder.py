"""A stack of bidirectional layers over tokens, real numbers or images."""

from typing import Iterable, Optional, Tuple

from torch import Tensor, nn

from .errors import FieldError
from .layer import LayerContext
from .packing import depends_on_rows, packing_of
from .padding import padding_of
from .trunk import Trunk


class SequenceEncoder(Trunk, nn.Module):
    """Embedding, layers and final norm; every padded position is zero in the result.

    Args:
        embedding: from inputs (B, L), or images, a padding mask and the position of each input to (B, L, d); the
            positions (B, L) are None if they are 0, 1, ... in each row.
        layers: see :class:`fairseq_mega.modules.layer.Layer`.
        final_norm: of pre-norm models, else None.
        padding_idx: token that marks padding; None for real numbers and images, which have none.
        chunk_size: attention chunk of the layers, -1 for none. Text may have any length; real numbers must fill whole
            chunks, because no number can mark padding.
        checkpoint_activations: recompute each layer in the backward pass.
        pad: compute the padding of texts. Without it a batch is packed in one row (:mod:`.packing`), with the same
            results, unless ``needs_padding``.

    Attributes:
        needs_padding: reason why the layers do not train on packed texts, or None.

    Source: MEGA (Ma et al., ICLR 2023), section 4.1, and the published code.
    """

    def __init__(
        self,
        embedding: nn.Module,
        layers: Iterable[nn.Module],
        final_norm: Optional[nn.Module],
        padding_idx: Optional[int],
        chunk_size: int = -1,
        checkpoint_activations: bool = False,
        pad: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.add_layers(layers, final_norm, checkpoint_activations)
        self.padding_idx = padding_idx
        self.chunk_size = chunk_size
        self.pad = pad
        reasons = (depends_on_rows(module) for module in self.modules())
        self.needs_padding = next((reason for reason in reasons if reason is not None), None)

    def forward(self, inputs: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Encode a batch.

        Args:
            inputs: tokens (B, L) long, padded on the right, or real numbers (B, L) or (B, L, 1), or other inputs of the
                embedding.

        Returns:
            (B, L, d), and the padding mask (B, L) bool, True = padding, or None where there is no padding.

        Raises:
            FieldError: if a real-valued length is not a multiple of the chunk, or a field of the layers or the
                embedding does not suit the length.
        """
        length = inputs.size(1)
        if self.padding_idx is None and self.chunk_size > 0 and length % self.chunk_size != 0:
            raise FieldError(
                "chunk_size",
                "a sequence of {length} real numbers is not a multiple of {field} {chunk}: give a chunk that "
                "divides {length}, -1 for full attention, or input of another length",
                length=length,
                chunk=self.chunk_size,
            )
        padding_mask = None if self.padding_idx is None else padding_of(inputs, self.padding_idx)
        pad = self.pad or (self.training and self.needs_padding is not None)
        packing = None if pad else packing_of(padding_mask, self.chunk_size)
        if packing is None:
            return self.encode(inputs, LayerContext(padding_mask)), padding_mask
        assert self.padding_idx is not None
        context = LayerContext(packing.padding_mask, documents=packing.texts)
        hidden = self.encode(packing.lay(inputs, self.padding_idx), context, packing.positions)
        return packing.spread(hidden), padding_mask

    def encode(self, inputs: Tensor, context: LayerContext, positions: Optional[Tensor] = None) -> Tensor:
        """Return hidden states (B, L, d) of inputs as in :meth:`forward`, in the layout of ``context``.

        Args:
            inputs: tokens or real numbers.
            context: their padding, and the texts of a row that holds several.
            positions: (B, L) long, of each input in its text; None: 0, 1, ... in each row.
        """
        where = () if positions is None else (positions,)
        return self.run_layers(self.embedding(inputs, context.padding_mask, *where), context).hidden
