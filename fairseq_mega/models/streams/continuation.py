"""Beam search and sampling that continue prompts, with limits of length for each sentence."""

from typing import Any, Optional, Sequence, Tuple

import torch
from fairseq.search import Sampling, Search
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from fairseq_mega.data.text_units import never_written
from fairseq_mega.modules.state import reorder_state

from .context import Context


class ContinuationGenerator(SequenceGenerator):
    """fairseq's generator for language models; the result for a prompt does not depend on its batch.

    A prompt of p tokens is continued by at most ``max_len_a`` p + ``max_len_b`` tokens. Prompt and continuation have at
    least ``min_len`` tokens, if that limit allows it. fairseq counts both limits from the longest prompt of the batch.
    Arguments are fairseq's.

    Raises:
        ValueError: if the limits allow no token.
    """

    search: Any  # attributes of the base class
    model: Any
    min_len: int

    def __init__(
        self,
        models: Sequence[Any],
        tgt_dict: Any,
        *args: Any,
        max_len_a: float = 0,
        max_len_b: int = 200,
        **kwargs: Any,
    ) -> None:
        if max_len_a < 0 or max_len_b < 1:
            raise ValueError(
                f"--max-len-a {max_len_a} --max-len-b {max_len_b}: a continuation has at most a p + b tokens after a "
                f"prompt of p tokens; give a >= 0 and b >= 1"
            )
        # fairseq's limit for a whole batch, prompts included: the maximum that any sentence may require.
        super().__init__(models, tgt_dict, *args, max_len_a=1 + max_len_a, max_len_b=max_len_b, **kwargs)
        self.after_prompt = (max_len_a, max_len_b)
        self.search = LimitedSearch(self.search, tgt_dict, self.min_len)
        self.min_len = 0  # no limit for the whole batch
        self.context: Optional[Context] = None

    def go_on_from(self, context: Context) -> None:
        """Make every prompt continue a context, whose last token replaces the ``</s>`` before the prompt."""
        self.context = context
        self.model = ContinuedModels(self.model.models, context)

    def _generate(self, sample: Any, prefix_tokens: Optional[Tensor] = None, *args: Any, **kwargs: Any) -> Any:
        source = sample["net_input"]["src_tokens"]
        prompts = source.new_zeros(len(source)) if prefix_tokens is None else prefix_tokens.ne(self.pad).sum(dim=1)
        factor, addend = self.after_prompt
        ids = sample["id"] if isinstance(sample.get("id"), Tensor) else torch.arange(len(source), device=source.device)
        self.search.begin(ids, prompts, prompts + (factor * prompts + addend).long())
        if self.context is not None:
            kwargs["bos_token"] = self.context.last
        return super()._generate(sample, prefix_tokens, *args, **kwargs)


class ContinuedModels(EnsembleModel):
    """fairseq's ensemble, whose models have read a context before the first token."""

    def __init__(self, models: Sequence[Any], context: Context) -> None:
        super().__init__(models)
        self.context = context

    def forward_decoder(
        self, tokens: Tensor, encoder_outs: Any, incremental_states: Any, temperature: float = 1.0
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Compute fairseq's step; an empty incremental state begins with the context's, once for each row of tokens."""
        rows = torch.zeros(tokens.size(0), dtype=torch.long, device=tokens.device)
        for model, state, store in zip(self.models, self.context.states, incremental_states):
            if not store and state is not None:
                model.decoder.go_on_from(store, reorder_state(state, rows))
        return super().forward_decoder(tokens, encoder_outs, incremental_states, temperature)


class LimitedSearch(Search):
    """A search of fairseq with a minimum and a maximum length for each sentence, and without tokens of no text.

    Prompts may contain tokens that no text has, such as padding and ``<unk>``. Sampling draws from the other tokens,
    with normalized probabilities.

    Args:
        search: search to limit.
        dictionary: dictionary of the tokens.
        least: minimum tokens of every sentence, its prompt included.
    """

    def __init__(self, search: Search, dictionary: Any, least: int) -> None:
        super().__init__(dictionary)
        self.inner, self.least = search, least
        self.supports_constraints, self.stop_on_max_len = search.supports_constraints, search.stop_on_max_len
        self.ids = self.prompts = self.most = torch.zeros(0, dtype=torch.long)
        self.never = torch.zeros(self.vocab_size, dtype=torch.bool)
        self.never[never_written(dictionary)] = True
        for name in ("set_src_lengths", "init_constraints", "prune_sentences", "update_constraints"):
            setattr(self, name, getattr(search, name))

    def begin(self, ids: Tensor, prompts: Tensor, most: Tensor) -> None:
        """Record the next batch: indices of the sentences, lengths of their prompts and maximum lengths, (B,) each."""
        self.ids, self.prompts, self.most = ids, prompts, most

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Optional[Tensor],
        prev_output_tokens: Optional[Tensor] = None,
        original_batch_idxs: Optional[Tensor] = None,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Compute one step of the search; a sentence of the maximum length can only continue with ``</s>``."""
        assert original_batch_idxs is not None
        rows = (original_batch_idxs.unsqueeze(1) == self.ids).long().argmax(dim=1)
        prompts, most = self.prompts[rows], self.most[rows]
        end = torch.zeros(self.vocab_size, dtype=torch.bool, device=lprobs.device)
        end[self.eos] = True
        short = ((step >= prompts) & (step < self.least) & (step < most)).view(-1, 1, 1)
        long = (step >= most).view(-1, 1, 1)
        free = (step >= prompts).view(-1, 1, 1)
        never = self.never.to(lprobs.device)
        lprobs = lprobs.masked_fill((short & end) | (long & ~end) | (free & never), -torch.inf)
        if isinstance(self.inner, Sampling):  # --sampling-topp requires normalized probabilities
            lprobs = torch.where(free & ~long, lprobs.log_softmax(dim=-1), lprobs)
        return self.inner.step(step, lprobs, scores, prev_output_tokens, original_batch_idxs)
