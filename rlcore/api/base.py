"""What every model of the RLJob API shares: strictness, camelCase names, and cross-field checks that name a field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError


class ApiModel(BaseModel):
    """Base of all models: frozen, strict, camelCase outside and snake_case inside, unknown fields refused.

    Strict means that the text "5" is never taken for the number 5; a whole number is fine where a float is expected.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
        # RLJob is validated as a whole: building each part's own validator at import would only cost time.
        defer_build=True,
        # Field names such as `model` are the manifest's, not pydantic's.
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Treat null as absent where null has no meaning of its own, as the API server does."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        not_nullable = {
            name
            for field_name, info in cls.model_fields.items()
            if not _takes_null(info)
            for name in (field_name, info.alias)
        }
        return {key: value for key, value in data.items() if value is not None or key not in not_nullable}


def _takes_null(info: FieldInfo) -> bool:
    return info.annotation is Any or type(None) in get_args(info.annotation)


def from_manifest(info: ValidationInfo) -> bool:
    """Whether a manifest is being read, as opposed to objects made in Python or a dump of them."""
    return bool(info.context and info.context.get("manifest"))


class Conflict(NamedTuple):
    """One violated rule between fields: where (names below the model), the offending value, and what is wrong."""

    loc: tuple[str | int, ...]
    value: Any
    message: str


def raise_conflicts(title: str, conflicts: Iterable[Conflict]) -> None:
    """Raise pydantic's ValidationError with all conflicts at their own fields; do nothing where there are none."""
    details = [
        InitErrorDetails(type=PydanticCustomError("conflict", "{text}", {"text": c.message}), loc=c.loc, input=c.value)
        for c in conflicts
    ]
    if details:
        raise ValidationError.from_exception_data(title, details)
