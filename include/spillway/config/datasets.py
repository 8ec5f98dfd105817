"""What ``datasets.yaml`` may hold."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from spillway.config import notation
from spillway.config.schema import AnyText, Entry, Prefix, Quantity, Text, TierWord, Unique
from spillway.model import CacheRule, Dataset, Tier, TierRule

TAGS_MAX = 10
"""No S3 object has more."""


class TierRuleEntry(Entry):
    """``prefix`` is below the dataset's own; a rule with a ``tag`` and without a prefix is for all of the dataset."""

    prefix: Annotated[Prefix, Field(min_length=1)] | None = None
    tier: TierWord
    tag: Annotated[dict[Text, AnyText], Field(min_length=1, max_length=TAGS_MAX)] | None = None

    @model_validator(mode="after")
    def _keeps_what_it_does_not_know(self) -> Self:
        """A mark that keeps data at home would be missing on whatever nobody has marked yet."""
        if self.tag is not None and self.tier is not Tier.PUBLIC:
            problem = "a tag can only say what is public, and what lacks it is core; name the tag of what may leave"
            raise notation.refused(f"{problem}, or leave `tag` out")
        if self.tag is None and self.prefix is None:
            raise notation.refused("expected a prefix below the dataset's own, or a tag")
        return self


class RemoteReadEntry(Entry):
    connection: Text


class CacheEntry(Entry):
    connection: Text
    max_gib: Quantity


class DatasetEntry(Entry):
    name: Text
    home: Text
    prefix: Prefix
    tier: TierWord = Tier.CORE
    rules: tuple[TierRuleEntry, ...] = ()
    include: tuple[Text, ...] = ()
    exclude: tuple[Text, ...] = ()
    size_gib: Quantity | None = None
    remote_read: RemoteReadEntry | None = None
    cache: CacheEntry | None = None

    def dataset(self) -> Dataset:
        rules = tuple(
            TierRule(prefix=self.prefix + (rule.prefix or ""), tier=rule.tier, tags=rule.tag or {})
            for rule in self.rules
        )
        # A rule for all of it stands in its tier's place: what lacks the tag is core by that rule.
        tier = Tier.PUBLIC if any(rule.prefix is None for rule in self.rules) else self.tier
        connection = None if self.remote_read is None else self.remote_read.connection
        cache = None if self.cache is None else CacheRule(**dict(self.cache))
        return Dataset(**dict(self) | {"tier": tier, "rules": rules, "remote_read": connection, "cache": cache})


class DatasetsFile(Entry):
    datasets: Annotated[tuple[DatasetEntry, ...], Unique]
