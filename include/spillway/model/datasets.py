"""Datasets as they are declared: which objects belong to one, of which tier each is, and who may read it from where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from spillway.model.declared import Cluster, Tier

DELETE_SHARE_MAX = 0.2
"""What one mirroring, of a dataset or of tags, may delete at a site where nobody has allowed more by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyScope:
    """Which keys belong to a dataset: those below ``prefix`` whose rest matches a pattern of ``include`` (empty: any
    does) and none of ``exclude``. Patterns are those of ``fnmatch``, upper and lower case differ, ``*`` spans slashes.
    """

    prefix: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def holds(self, key: str) -> bool:
        if not key.startswith(self.prefix):
            return False
        if not self.include and not self.exclude:
            return True
        rest = key[len(self.prefix) :]
        included = not self.include or any(fnmatchcase(rest, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(rest, pattern) for pattern in self.exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRule:
    """The tier of the objects whose keys begin with ``prefix``, which ends with a slash.

    With ``tags``, which only a rule of tier public has, only of those that carry them all, with these values; the
    others are core.
    """

    prefix: str
    tier: Tier
    tags: Mapping[str, str] = field(default_factory=dict)

    def is_met(self, tags: Mapping[str, str]) -> bool:
        """Whether an object with these tags is what the rule is for."""
        return self.tags.items() <= tags.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """That what is read of a dataset from other sites is kept there, encrypted.

    ``connection`` is the one whose password is the key; ``max_gib`` bounds it at each site, as it is stored.
    """

    connection: str
    max_gib: float

    @property
    def limit_bytes(self) -> int:
        return int(self.max_gib * 1024**3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetUse:
    """That a job reads a dataset; ``part``: only its objects of that tier, None: all of them.

    Only a public part can be named: whoever may read core objects may read the others too.
    """

    name: str
    part: Tier | None = None

    def record_at(self, site: Cluster) -> str:
        """Under which name the copy at the site is recorded: where no core data is, it is of the public part alone."""
        return self.name if self.part is None or not site.may_hold(Tier.CORE) else f"{self.name}@{self.part}"

    def records_beside(self, site: Cluster) -> tuple[str, ...]:
        """The names of other records of the dataset that the site may have: of what other jobs read of it there."""
        uses = (DatasetUse(name=self.name, part=part) for part in (None, Tier.PUBLIC))
        return tuple({use.record_at(site) for use in uses} - {self.record_at(site)})

    def tier_of(self, dataset: Dataset) -> Tier:
        """The tier of whatever is made from what is read of it."""
        return self.part or dataset.strictest

    def __str__(self) -> str:
        """For people."""
        return self.name if self.part is None else f"{self.name} (its {self.part} part)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A folder of objects at its home site. ``prefix`` ends with a slash or is empty.

    ``tier`` is of the objects that none of ``rules`` names; the prefixes of rules are whole keys' beginnings.
    ``include`` and ``exclude`` say which objects belong to it, as in ``KeyScope``. ``size_gib`` is about how large it
    is, for as long as no copy was counted; None where nobody has said it. ``remote_read`` is the Connection
    with which pods at sites that may not store it read it at its home; None: they may not. ``cache`` says
    that they may keep what they read, encrypted; None: nothing of it is kept.
    """

    name: str
    home: str
    prefix: str
    tier: Tier
    rules: tuple[TierRule, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    size_gib: float | None = None
    remote_read: str | None = None
    cache: CacheRule | None = None

    @property
    def scope(self) -> KeyScope:
        return KeyScope(prefix=self.prefix, include=self.include, exclude=self.exclude)

    def tier_of(self, key: str, tags: Mapping[str, str] | None = None) -> Tier:
        """The tier of an object: of the longest prefix that its key begins with, core where two of them disagree.

        What is not of this dataset is core, and so is what the tags decide of which nobody has asked for the tags.
        """
        rules = self._deciding(key)
        public = rules and all(rule.tier is Tier.PUBLIC and rule.is_met(tags or {}) for rule in rules)
        return Tier.PUBLIC if public else Tier.CORE

    def asks_tags(self, key: str) -> bool:
        """Whether the tags of the object decide: without them it is core, and they may make it public."""
        rules = self._deciding(key)
        return any(rule.tags for rule in rules) and all(rule.tier is Tier.PUBLIC for rule in rules)

    def _deciding(self, key: str) -> list[TierRule]:
        named = [rule for rule in self._every_rule if key.startswith(rule.prefix)]
        longest = max((len(rule.prefix) for rule in named), default=0)
        return [rule for rule in named if len(rule.prefix) == longest]

    @property
    def has_tag_rules(self) -> bool:
        """Whether the tags of any object decide."""
        return any(self.asks_tags(rule.prefix) for rule in self.rules)

    @property
    def tiers(self) -> frozenset[Tier]:
        """Every tier that an object of it may have."""
        by_prefix = frozenset(self.tier_of(rule.prefix) for rule in self._every_rule)
        return by_prefix | {Tier.PUBLIC} if self.has_tag_rules else by_prefix

    @property
    def strictest(self) -> Tier:
        """The tier of whatever is made from it: core where any object of it may be."""
        return Tier.CORE if Tier.CORE in self.tiers else Tier.PUBLIC

    @property
    def _every_rule(self) -> tuple[TierRule, ...]:
        return (TierRule(prefix=self.prefix, tier=self.tier), *self.rules)
