"""What a registry has told, for the other processes of the same driver.

Spark plans each micro-batch in a process that may be a new one. What an earlier one was told is in
a file, which is read only while the registry is away. A file is forgotten with its driver.

No registry gives an id to another schema, so an id that was told always is the one of the schema
that was told. What may have changed is which schema is the latest one, and of which the bytes are:

- **Of another query nothing is taken**: what is told is kept by the checkpoint and the name of a
  query, or by the run that Spark tells. Where it tells neither, queries with the same options count
  as the same one.
- **A query that is started again with its checkpoint** looks like one that goes on. For as long as
  one that goes on does, 10 s, a minute while the registry is away, it may write with the schema
  that was the latest before. With Avro and a registry's Protobuf, bytes are made by the schema
  that was told, so readers decode them rightly. A JSON Schema is compared with the columns again.
  Another message in a Protobuf file counts as another question.
- **Bytes that the user has encoded**, with the id of the latest schema: nobody but the registry
  knows which that is now, so each micro-batch asks, and no job takes an earlier answer. Only while
  the registry is away a query's own earlier answer is taken.
- A checkpoint that has no micro-batch yet is that of a new query, even if another one has had the
  same place. Only one in the driver's own file system can be looked at.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from spark_kafka_sink.base.private_folder import PrivateFolderError, private_folder, read_own
from spark_kafka_sink.base.process import identity_of
from spark_kafka_sink.registry.answers import Schema

logger = logging.getLogger(__name__)

_PURPOSE = "registry"


class Remembered:
    """owner: id of the process with whose end it is forgotten"""

    def __init__(self, owner: int) -> None:
        self._identity = identity_of(owner)

    def read(self, asked: str) -> Schema | None:
        """What was told of ``asked``, which says all that the answer depends on; else None."""
        try:
            path = self._path(asked)
            return None if path is None else _schema(json.loads(read_own(path)))
        except (OSError, PrivateFolderError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def write(self, asked: str, schema: Schema) -> None:
        """Nothing fails where it cannot be written: it is told once in the log."""
        try:
            path = self._path(asked)
            if path is None:
                return
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            part.write_text(json.dumps(schema._asdict()), encoding="utf-8")
            part.replace(path)
            self._remove_others(path.parent)
        except (OSError, PrivateFolderError) as error:
            logger.warning(
                f"what the schema registry has told is not kept for later micro-batches: {error}"
            )

    def _path(self, asked: str) -> Path | None:
        if self._identity is None:
            return None
        digest = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return private_folder(_PURPOSE) / f"{self._identity}_{digest}.json"

    def _remove_others(self, folder: Path) -> None:
        """Files of processes that have ended."""
        for path in folder.iterdir():
            owner = path.name.partition("_")[0]
            number = owner.partition("-")[0]
            if number.isdecimal() and identity_of(int(number)) != owner:
                path.unlink(missing_ok=True)


def _schema(found: Any) -> Schema:
    """Raises ValueError, LookupError or TypeError for what is none: a disk may have been full."""
    if not isinstance(found, dict):
        raise ValueError
    references = tuple((name, subject, int(n)) for name, subject, n in found.pop("references"))
    files = tuple((name, text) for name, text in found.pop("files"))
    schema = Schema(**found, references=references, files=files)
    if not isinstance(schema.id, int) or not isinstance(schema.text, str):
        raise ValueError
    return schema
