"""Generate text with a trained language model: bounded memory and time per token, however long the text gets."""

import math
from typing import Any, Iterator, List, Optional, Sequence

import torch
from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor

PREFILL = 4096  # tokens of a prompt that one call reads where the model has no chunks


class TextGenerator(GeneratorHubInterface):
    """What ``MegaLanguageModel.from_pretrained`` returns: fairseq's interface, and streaming generation.

    Several models vote with the mean of their probabilities.
    """

    @torch.no_grad()
    def complete(
        self,
        prompt: str = "",
        max_tokens: int = 100,
        *,
        stop_at_line_end: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: Optional[int] = None,
    ) -> str:
        """Continue a text.

        Args:
            prompt: what was said so far, of any length; lines end in ``</s>`` as in the training text.
            max_tokens: tokens to generate at most.
            stop_at_line_end: stop before the first ``</s>``.
            temperature, top_k, top_p: see :func:`draw`.
            seed: of the sampling; None: torch's global generator.

        Returns:
            The new text, a line for each ``</s>``.
        """
        dictionary = self.task.source_dictionary
        lines = prompt.split("\n")
        tokens = [dictionary.eos()]
        for number, line in enumerate(lines):
            ended = number + 1 < len(lines)
            text = self.apply_bpe(self.tokenize(line))
            tokens += dictionary.encode_line(text, append_eos=ended, add_if_not_exist=False).tolist()
        generator = None if seed is None else torch.Generator(self.device).manual_seed(seed)
        found: List[List[int]] = [[]]
        stream = self.stream(tokens, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        for _, token in zip(range(max_tokens), stream):
            if token == dictionary.eos():
                if stop_at_line_end:
                    break
                found.append([])
            else:
                found[-1].append(token)
        return "\n".join(self.decode(torch.tensor(line, dtype=torch.long)) for line in found)

    @torch.no_grad()
    def stream(
        self,
        prompt: Sequence[int],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: Optional[torch.Generator] = None,
    ) -> Iterator[int]:
        """Yield the tokens that follow ``prompt``, one by one, without end.

        Args:
            prompt: tokens, one at least (``</s>`` begins a text); read chunk by chunk.
            temperature, top_k, top_p, generator: see :func:`draw`.

        Raises:
            ValueError: if there is no token to begin with, or sampling options are out of range.
        """
        if len(prompt) == 0:
            raise ValueError("prompt: one token at least is needed, for instance </s> at the beginning of a text")
        check_sampling(temperature, top_k, top_p)
        states: List[Any] = [None] * len(self.models)
        unread = torch.tensor([list(prompt)], device=self.device)
        dictionary = self.task.source_dictionary
        while True:
            scores = []
            for index, model in enumerate(self.models):
                model.eval()
                piece = model.decoder.chunk_size if model.decoder.chunk_size > 0 else PREFILL
                for tokens in unread.split(piece, dim=1):
                    log_probs, states[index] = model.decoder.advance(tokens, states[index])
                scores.append(log_probs)
            mean = torch.logsumexp(torch.stack(scores), dim=0) - math.log(len(scores))
            mean[:, [dictionary.pad(), dictionary.bos()]] = -math.inf  # no text holds them
            unread = draw(mean, temperature, top_k, top_p, generator).unsqueeze(1)
            yield int(unread)


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raise a ValueError, naming the option, where one of :func:`draw` is out of range."""
    if not (temperature >= 0.0 and math.isfinite(temperature)):
        raise ValueError(f"temperature {temperature}: give 0 for the likeliest token, or a positive number")
    if top_k < 0:
        raise ValueError(f"top_k {top_k}: give 0 for no limit, or a number of tokens")
    if not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p {top_p}: give a probability in (0, 1]")


def draw(
    log_probs: Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: Optional[torch.Generator] = None,
) -> Tensor:
    """Draw the next token of each row.

    Args:
        log_probs: (B, V) float.
        temperature: divides the log probabilities; 0 takes the likeliest token.
        top_k: only this many likeliest tokens, 0 for all.
        top_p: only the likeliest tokens that together reach this probability (nucleus sampling, Holtzman et al.,
            2020), after temperature and ``top_k``.
        generator: source of the random numbers.

    Returns:
        (B,) long.
    """
    if temperature == 0.0:
        return log_probs.argmax(dim=-1)
    scores, tokens = (log_probs.float() / temperature).sort(dim=-1, descending=True)
    if top_k > 0:
        scores, tokens = scores[:, :top_k], tokens[:, :top_k]
    probabilities = scores.softmax(dim=-1)
    if top_p < 1.0:
        before = probabilities.cumsum(dim=-1) - probabilities  # of likelier tokens
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
    rank = torch.multinomial(probabilities, 1, generator=generator)
    return tokens.gather(1, rank).squeeze(1)
