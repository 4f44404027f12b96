"""Field types that several parts of the API share: names, references, durations, quantities, free-form objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, StringConstraints, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from rlcore.api.quantity import DURATION_PATTERN, QUANTITY_PATTERN, format_duration, parse_duration, parse_quantity

DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
MODULE_REFERENCE = (
    r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
)

ENVIRONMENT_ID = r"^([A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:)?[A-Za-z0-9_][A-Za-z0-9_./-]*$"
POLICY_NAME = r"^[A-Za-z0-9_][-A-Za-z0-9_.]*$"
PARAMETER_NAME = r"^[a-z][A-Za-z0-9]*$"
STORAGE_URI = r"^[a-z][a-z0-9+.-]*://\S*$"
NO_SPACES = r"^\S+$"
RELEASE = r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$"
CURRENCY = r"^[A-Z]{3}$"

PATTERN_HELP = {
    DNS_LABEL: 'lower-case letters, digits and "-", beginning with a letter and not ending with "-"',
    DNS_SUBDOMAIN: 'lower-case letters, digits, "-" and ".", beginning and ending with a letter or digit',
    MODULE_REFERENCE: 'an importable Python object, "package.module:name"',
    ENVIRONMENT_ID: 'a Gymnasium id such as CartPole-v1 or ALE/Pong-v5, or "package.module:factory"',
    POLICY_NAME: 'letters, digits, "_", "-" and ".", beginning with a letter, a digit or "_"',
    PARAMETER_NAME: "the camelCase name of a hyper-parameter, such as learningRate",
    STORAGE_URI: "a URL such as s3://bucket/prefix",
    NO_SPACES: "text without spaces",
    RELEASE: "a version of three numbers, such as 2.52.0",
    CURRENCY: "three capital letters, such as USD",
}
"""What each pattern means, for messages."""

ObjectName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
"""The name of a Kubernetes object in the same namespace."""

ModuleReference = Annotated[str, StringConstraints(min_length=3, max_length=253, pattern=MODULE_REFERENCE)]
"""An importable Python object: "package.module:name"."""

PolicyName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=POLICY_NAME)]
"""The name of one policy of a multi-agent job."""

Label = Annotated[str, StringConstraints(max_length=253)]
"""A key or value of labels, selectors and the like; Kubernetes checks the rest."""

ImageName = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=NO_SPACES)]
"""A container image reference."""

FreeForm = Annotated[dict[str, Any], Field(max_length=256)]
"""A JSON object that rlcore hands on as it stands."""


@dataclass(frozen=True)
class OneOf:
    """A choice between names that are known only at run time; typed as plain text."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


@dataclass(frozen=True)
class DurationRange:
    """The allowed range of a duration, both ends included, in seconds."""

    min_s: int
    max_s: int

    def __call__(self, text: str) -> str:
        seconds = parse_duration(text)
        if not self.min_s <= seconds <= self.max_s:
            raise ValueError(f"{text} is out of range; allowed: {self.text}")
        return text

    @property
    def text(self) -> str:
        """The range as the user reads it."""
        return f"{format_duration(self.min_s)} to {format_duration(self.max_s)}"


def _needs_unit(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; write {value}s for seconds, or use m, h, d")
    return value


def duration(min_s: int, max_s: int) -> Any:
    """The annotations of a duration field; use as `Annotated[str, *duration(1, 60)]`."""
    allowed = DurationRange(min_s, max_s)
    schema = {
        "type": "string",
        "pattern": DURATION_PATTERN,
        "minLength": 2,
        "maxLength": 32,
        "x-range": allowed.text,
    }
    return BeforeValidator(_needs_unit), AfterValidator(allowed), WithJsonSchema(schema)


def _quantity_text(value: Any) -> Any:
    if isinstance(value, float):
        raise ValueError(f'{value} is a fraction; write "{round(value * 1000)}m", or quote it: "{value}"')
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _checked_quantity(text: str) -> str:
    parse_quantity(text)
    return text


Quantity = Annotated[
    str,
    BeforeValidator(_quantity_text),
    AfterValidator(_checked_quantity),
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN, "maxLength": 24, "x-range": "a quantity"}
    ),
]
"""A Kubernetes quantity: a whole number, or text such as "500m" or "4Gi"."""
