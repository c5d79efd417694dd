"""Generate text with a trained language model: bounded memory and time per token, however long the text gets."""

import math
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Union, overload

import torch
from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor

from fairseq_mega.compat.features.interactive import warn_unknown
from fairseq_mega.data.text_units import LINE_END, TextUnit, encode_after_line_end, never_written, settled_lines
from fairseq_mega.models.decoding_graph import on_graph

from .context import Context, load_context, read_tokens, save_context
from .scoring import Likelihood, likelihood_of


class TextGenerator(GeneratorHubInterface):
    """The result of ``MegaLanguageModel.from_pretrained``: fairseq's interface, and streaming generation.

    Text goes in and out whatever the tokens are, see :mod:`fairseq_mega.data.text_units`. Several models vote with the
    mean of their probabilities.
    """

    def __init__(self, cfg: Any, task: Any, models: Sequence[Any]) -> None:
        super().__init__(cfg, task, models)
        self.excluded = never_written(task.source_dictionary)
        self.empty = Context((None,) * len(models), task.source_dictionary.eos())

    def likelihood(self, text: str) -> Likelihood:
        """Score a text as ``fairseq-mega-eval-lm`` scores a file of it, read as one segment with the memory carried.

        Args:
            text: not empty, of any length; ``</s>`` follows its last line, too (subwords of documents: its end).

        Returns:
            Tokens, bits per token and per byte, and perplexity. Tokens that are unknown to the model are logged.
        """
        end = LINE_END if self.parts_lines and not text.endswith(LINE_END) else ""
        tokens = self.tokens_of(text + end)
        tokens += [] if self.parts_lines else [self.task.source_dictionary.eos()]
        return likelihood_of(list(self.models), tokens, len(text.encode("utf-8", "surrogateescape")))

    def read(self, text: str, context: Optional[Context] = None) -> Context:
        """Read a text once, to continue it many times.

        Args:
            text: of any length; ``complete(a, context=read(b))`` is ``complete(b + a)``.
            context: a text that was read before this one.

        Returns:
            The text as read: up to the last blank (words), line end (subwords, other encoders) or to the end (bytes);
            the rest is read along with what follows. Its size depends on that rest and on the model, whose chunks
            bound it, not on the length of the text.
        """
        before = context or self.empty
        text = before.unread + text
        parted_by_unit = isinstance(self.bpe, TextUnit) and self.tokenizer is None
        end = self.bpe.settled(text) if parted_by_unit else settled_lines(text)
        *tokens, last = self.tokens_of(text[:end], before._replace(unread=""))
        states = read_tokens(list(self.models), tokens, before.states)[1] if tokens else before.states
        return Context(states, last, text[end:])

    def save_context(self, context: Context, path: Union[str, Path]) -> None:
        """Write a context to a file, see :func:`fairseq_mega.models.streams.context.save_context`."""
        save_context(context, Path(path), list(self.models), self.task.source_dictionary)

    def load_context(self, path: Union[str, Path]) -> Context:
        """Read a context from a file, see :func:`fairseq_mega.models.streams.context.load_context`."""
        return load_context(Path(path), list(self.models), self.task.source_dictionary)

    def complete(
        self,
        prompt: str = "",
        max_tokens: int = 100,
        *,
        context: Optional[Context] = None,
        stop_at_line_end: bool = False,
        seed: Optional[int] = None,
        **sampling: Any,
    ) -> str:
        """Continue a text.

        Args:
            prompt: the text so far, of any length; lines end in ``</s>`` as in the training text, unless that ends
                documents.
            max_tokens: tokens to generate at most.
            context: a text before the prompt, of :meth:`read` or :meth:`load_context`.
            stop_at_line_end: stop before the first line end or ``</s>``.
            seed: of the sampling; None: torch's global generator.
            sampling: ``temperature``, ``top_k`` and ``top_p`` of :func:`draw`.

        Returns:
            The new text, which read after the prompt makes the whole; a line for each ``</s>``. Where it ends within
            a character, the incomplete character is omitted.

        Raises:
            ValueError: as :meth:`stream`.
        """
        generator = None if seed is None else torch.Generator(self.device).manual_seed(seed)
        context = context or self.empty
        unread = self.tokens_of(prompt, context)
        tokens = islice(self._stream_tokens(unread, context, generator=generator, **sampling), max_tokens)
        before = self._text_before(context, prompt)
        if not stop_at_line_end:
            return "".join(self.text_of(tokens, before))
        end = self.task.source_dictionary.eos()
        return "".join(first_line(self.text_of(takewhile(lambda token: token != end, tokens), before)))

    @overload
    def stream(self, prompt: str, *, context: Optional[Context] = None, **sampling: Any) -> Iterator[str]: ...

    @overload
    def stream(self, prompt: Sequence[int], *, context: Optional[Context] = None, **sampling: Any) -> Iterator[int]: ...

    def stream(
        self, prompt: Union[str, Sequence[int]], *, context: Optional[Context] = None, **sampling: Any
    ) -> Union[Iterator[str], Iterator[int]]:
        """Continue ``prompt`` without end, one token at a time: a text by pieces of text, tokens by tokens.

        A piece is the text of one token; the first bytes of a character give an empty piece each, its last one the
        character.

        Args:
            prompt: a text, or tokens, one at least without a context (``</s>`` begins a text); read chunk by chunk.
            context: a text before the prompt, of :meth:`read` or :meth:`load_context`.
            sampling: ``temperature``, ``top_k``, ``top_p`` and ``generator`` of :func:`draw`.

        Raises:
            ValueError: if there is no token to begin with, tokens or sampling options are out of range, or tokens are
                to follow a context with unread text.
        """
        start = context or self.empty
        if isinstance(prompt, str):
            tokens = self._stream_tokens(self.tokens_of(prompt, start), start, **sampling)
            return self.text_of(tokens, self._text_before(start, prompt))
        if start.unread:
            raise ValueError(f"context: {start.unread[-40:]!r} has no tokens before it is complete; give a text")
        return self._stream_tokens(prompt if context is None else [start.last, *prompt], start, **sampling)

    @torch.no_grad()
    def _stream_tokens(self, unread: Sequence[int], context: Context, **sampling: Any) -> Iterator[int]:
        """Tokens that follow those of a context's states and the unread ones."""
        vocab_size = len(self.task.source_dictionary)
        if not (len(unread) and 0 <= min(unread) <= max(unread) < vocab_size):
            raise ValueError(f"prompt {list(unread)[:40]}: give tokens from 0 to {vocab_size - 1}, one at least")
        models = list(self.models)
        states: Sequence[Any] = context.states  # each a StreamState, a GraphStream or None
        while True:
            scores, states = read_tokens(models, unread, states)
            # The states of this loop have no other reader, so that they may change in their place.
            states = [on_graph(model.decoder, self.device, 1, state) or state for model, state in zip(models, states)]
            mean = torch.logsumexp(torch.stack(scores), dim=0) - math.log(len(scores))
            mean[:, self.excluded] = -math.inf
            unread = [int(draw(mean, **sampling))]
            yield unread[0]

    @property
    def parts_lines(self) -> bool:
        """Return whether ``</s>`` ends the lines of a text; otherwise it ends documents."""
        return not isinstance(self.bpe, TextUnit) or self.bpe.parts_lines

    def tokens_of(self, text: str, context: Optional[Context] = None) -> List[int]:
        """Tokens of a text that may continue: ``</s>`` in front, and for the end of each line but the last.

        Where ``</s>`` ends documents, the text is one that continues. With a context its last token is in front, and
        its unread text comes before the text. Tokens that are unknown to the model are logged.
        """
        dictionary = self.task.source_dictionary
        context = context or self.empty
        text = context.unread + text
        lines = text.split("\n") if self.parts_lines else [text]
        begins = self.parts_lines or context.last == dictionary.eos()
        tokens = [context.last]
        for number, line in enumerate(lines, start=1):
            encoded = self._encode(line) if begins else encode_after_line_end(self._encode, line)
            ended = number < len(lines)
            tokens += dictionary.encode_line(encoded, append_eos=ended, add_if_not_exist=False).tolist()
        warn_unknown(text, torch.tensor(tokens), dictionary)
        return tokens

    def _text_before(self, context: Context, prompt: str) -> str:
        """The text before what is generated, from the last blank or line end of the context on."""
        begins = context.last == self.task.source_dictionary.eos()
        return ("" if begins else LINE_END) + context.unread + prompt

    def _encode(self, text: str) -> str:
        return self.apply_bpe(self.tokenize(text))

    def text_of(self, tokens: Iterable[int], before: str = "") -> Iterator[str]:
        """The text of tokens as they come: whole words or characters where the unit allows it, lines otherwise.

        Args:
            tokens: any number of them.
            before: the text that they continue.
        """
        dictionary = self.task.source_dictionary
        written = (LINE_END if token == dictionary.eos() else dictionary[token] for token in tokens)
        if isinstance(self.bpe, TextUnit) and self.tokenizer is None:
            yield from self.bpe.pieces(written, before)
            return
        line: List[str] = []  # other encoders, passed with --bpe or --tokenizer, decode lines
        for token in written:
            if token == LINE_END:
                yield self.detokenize(self.remove_bpe(" ".join(line))) + LINE_END
                line = []
            else:
                line.append(token)
        yield self.detokenize(self.remove_bpe(" ".join(line)))


def first_line(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of a text up to its first line end, which is omitted."""
    for piece in pieces:
        line, end, _ = piece.partition("\n")
        yield line
        if end:
            return


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
        temperature: divides the log probabilities; 0: the likeliest token.
        top_k: only this many likeliest tokens, 0 for all.
        top_p: only the likeliest tokens that together reach this probability (nucleus sampling, Holtzman et al.,
            2020), after temperature and ``top_k``.
        generator: source of the random numbers.

    Returns:
        (B,) long.

    Raises:
        ValueError: if an option is out of range.
    """
    if not temperature >= 0.0 or top_k < 0 or not 0.0 < top_p <= 1.0:
        raise ValueError(
            f"temperature {temperature}, top_k {top_k}, top_p {top_p}: give numbers >= 0, and a top_p in (0, 1]"
        )
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
