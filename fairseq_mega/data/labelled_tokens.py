"""Binarised sequences of tokens with a label for some of their positions."""

from typing import Any, Dict, List

from fairseq.data import Dictionary, IdDataset, NestedDictionaryDataset, NumelDataset, RightPadDataset, data_utils

LABELS = ".labels"  # end of the name of a split's labels


class LabelledTokens(NestedDictionaryDataset):
    """Tokens as the input of a language model, with labels as its targets in place of the next tokens.

    A label that is the padding token is not scored. ``ntokens`` of a batch counts the others.

    Args:
        path: of the binarised tokens, without the ending; the labels lie beside them, with LABELS behind the name.
        dictionary: of tokens and labels.

    Raises:
        FileNotFoundError: if one of the two is missing.
        ValueError: if they have different lengths.
    """

    def __init__(self, path: str, dictionary: Dictionary) -> None:
        parts = [data_utils.load_indexed_dataset(name, dictionary) for name in (path, f"{path}{LABELS}")]
        if None in parts:
            raise FileNotFoundError(f"Dataset not found: {path}, {path}{LABELS}")
        tokens, labels = parts
        if tokens.sizes.tolist() != labels.sizes.tolist():
            raise ValueError(f"{path}: tokens and labels have different lengths")
        self.pad = dictionary.pad()
        net_input = {"src_tokens": RightPadDataset(tokens, self.pad), "src_lengths": NumelDataset(tokens)}
        target = RightPadDataset(labels, self.pad)
        super().__init__({"id": IdDataset(), "net_input": net_input, "target": target}, sizes=[tokens.sizes])

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Return a batch."""
        batch = super().collater(samples)
        if batch:
            batch.update(nsentences=len(samples), ntokens=int(batch["target"].ne(self.pad).sum()))
        return batch
