"""``s3://bucket/key`` as its two parts."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_core.api import ConfigError

SCHEME = "s3://"


@dataclass(frozen=True, slots=True)
class Place:
    """A key, or the beginning of keys, in a bucket.

    Attributes:
        bucket: The bucket.
        key: The key, without a slash at either end; empty for the whole bucket.
    """

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Place:
        """The place a URI names.

        Raises:
            ConfigError: If it is none.
        """
        if not is_s3(uri):
            raise ConfigError(f"'{uri}' is not an s3:// URI", remedy="write s3://bucket/folder")
        bucket, _, key = uri[len(SCHEME) :].partition("/")
        if not bucket:
            raise ConfigError(f"'{uri}' names no bucket", remedy="write s3://bucket/folder")
        return cls(bucket, key.strip("/"))

    def __truediv__(self, below: str) -> Place:
        return Place(self.bucket, f"{self.key}/{below}".strip("/"))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    @property
    def prefix(self) -> str:
        """Prefix of the keys below it."""
        return f"{self.key}/" if self.key else ""


def is_s3(uri: str) -> bool:
    """Whether a URI is one of S3."""
    return uri[: len(SCHEME)].lower() == SCHEME
