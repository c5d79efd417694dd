"""Tables that compare trainings in float32 and in bfloat16."""

from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.report.lra_cells import mean_and_deviation
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .language_models import MODELS

SCORES = {"sacrebleu": ("BLEU", 2), "perplexity": ("perplexity", 2)}
TITLES = {"fp32": "float32", "bf16": "bfloat16"}


def of_seeds(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each model and test set below a folder, and a column for each precision: mean and deviation
    over seeds.
    """
    (name,) = words
    found: Dict[Tuple[str, ...], Dict[str, List[float]]] = {}
    seeds = set()
    for path in sorted((folder / name).rglob("*.json")):
        result = read_result(path)
        settings = result["settings"]
        score = next(score for score in SCORES if score in result["scores"])
        row = (MODELS.get(result["label"], result["label"]), settings.get("test", settings.get("subset", "")), score)
        found.setdefault(row, {}).setdefault(settings["precision"], []).append(result["scores"][score])
        seeds.add(result["seed"])
    used = [name for name in precision.SETS if any(name in values for values in found.values())]
    rows = []
    for (model, test, score), values in sorted(found.items()):
        title, digits = SCORES[score]
        means = {
            TITLES.get(name, name): mean_and_deviation(values[name], digits) if name in values else "" for name in used
        }
        rows.append({"model": model, "text": test, f"score, {len(seeds)} seeds": title, **means})
    return table_of(rows)
