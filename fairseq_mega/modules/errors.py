"""Errors that name a field of a configuration; the caller can replace the field by its option."""

from typing import Any, Dict, Mapping, Sequence


class FieldError(ValueError):
    """A field is out of range, or does not suit the input.

    Args:
        field: its name.
        message: in it ``{field}`` is the field, and ``{NAME}`` the value under that name, or another field.
        values: of the message, by their names in it.
    """

    def __init__(self, field: str, message: str, **values: object) -> None:
        self.field, self.message, self.values = field, message, values
        super().__init__(self.under({}))

    def under(self, names: Mapping[str, str]) -> str:
        """Return the message with other names in place of the fields' own, for instance options of a command."""
        words = _Words({**names, **self.values, "field": names.get(self.field, self.field)})
        return self.message.format_map(words)


def check_probability(field: str, value: float) -> None:
    """Raise a FieldError if the value of a field is not a probability of dropping."""
    if not 0.0 <= value < 1.0:
        raise FieldError(field, "{field} {value}: a dropout probability lies in [0, 1), for example 0.1", value=value)


def check_at_least(field: str, value: int, least: int = 1) -> None:
    """Raise a FieldError if the value of a field is smaller."""
    if value < least:
        raise FieldError(field, "{field} {value}: must be at least {least}", value=value, least=least)


def check_choice(field: str, name: str, known: Sequence[str]) -> None:
    """Raise a FieldError if the value of a field is not one of the known names."""
    if name not in known:
        raise FieldError(field, "{field} {name}: choose from {known}", name=name, known=", ".join(known))


def check_multiple(field: str, total: int, count: int, parts: str) -> None:
    """Raise a FieldError if the value of a field is not a multiple of ``count``, which the message calls ``parts``."""
    if total % count:
        raise FieldError(
            field, "{field} {total}: must be a multiple of " + parts + " = {count}", total=total, count=count
        )


def check_layer(config: Any, least: Mapping[str, int], **choices: Sequence[str]) -> None:
    """Raise a FieldError for a field of a layer's configuration that is out of range.

    Args:
        config: its dropouts and ``stochastic_depth`` are probabilities, its ``chunk_size`` is -1 or at least 1.
        least: the smallest values of fields.
        choices: the names that fields can have.
    """
    for field, value in vars(config).items():
        if field in least:
            check_at_least(field, value, least[field])
        elif field in choices:
            check_choice(field, value, choices[field])
        elif field == "chunk_size" and (value == 0 or value < -1):
            message = "{field} {value}: give a chunk length of at least 1, or -1 for full attention"
            raise FieldError(field, message, value=value)
        elif field == "rope_base" and not value > 1.0:
            raise FieldError(field, "{field} {value}: must be greater than 1", value=value)
        elif field == "stochastic_depth" or (field.endswith("dropout") and field != "feature_dropout"):
            check_probability(field, value)


class _Words(Dict[str, Any]):
    """Words of a message; a field without another name keeps its own."""

    def __missing__(self, name: str) -> str:
        return name
