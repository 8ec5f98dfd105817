"""Checkpoints of a folder's files as a process of its own, to be measured, and the same bytes without any care.

    python -m spillway.testing.checkpoint_bench commit|change|restore|blast FOLDER ADDRESS

ADDRESS is the bucket's, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spillway.checkpoints.store import CheckpointStore
from spillway.stores.s3 import open_store

RUN = "bench"
BLAST_THREADS = 8
BLAST_PART_BYTES = 16 << 20


def commit(checkpoints: CheckpointStore, step: int, folder: Path, changed: dict[str, bytes]) -> float:
    """Seconds of a commit of the files, some of them with other bytes."""
    began = time.perf_counter()
    checkpoints.commit(
        step=step,
        attempt=1,
        world_size=1,
        parts={file.name: changed.get(file.name, file) for file in sorted(folder.iterdir())},
        data_cursor={},
        metrics={},
        now=datetime.now(UTC),
    )
    return time.perf_counter() - began


def change(checkpoints: CheckpointStore, folder: Path) -> dict[str, float]:
    """Seconds of a whole commit and of the next one, in which two files are other ones."""
    whole = commit(checkpoints, 1, folder, {})
    first_two = sorted(folder.iterdir())[:2]
    changed = {file.name: b"changed" + file.read_bytes()[7:] for file in first_two}
    return {"whole": whole, "changed": commit(checkpoints, 2, folder, changed)}


def blast(address: dict[str, Any], folder: Path) -> None:
    """What the server can take: the same number of bytes from memory, with no digest of anything."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=address["endpoint_url"],
        region_name=address["region"],
        aws_access_key_id=address["access_key"],
        aws_secret_access_key=address["secret_key"],
        config=Config(
            s3={"payload_signing_enabled": False, "addressing_style": "path"},
            request_checksum_calculation="when_required",
            max_pool_connections=BLAST_THREADS,
        ),
    )
    part = bytes(range(256)) * (BLAST_PART_BYTES // 256)
    uploads = []
    for file in sorted(folder.iterdir()):
        target = {"Bucket": address["bucket"], "Key": f"blast/{file.name}"}
        upload = client.create_multipart_upload(**target)["UploadId"]
        uploads.append(({**target, "UploadId": upload}, file.stat().st_size // BLAST_PART_BYTES))

    def send(job: tuple[dict[str, Any], int]) -> dict[str, Any]:
        target, number = job
        answer = client.upload_part(**target, PartNumber=number, Body=part)
        return {"PartNumber": number, "ETag": answer["ETag"]}

    with ThreadPoolExecutor(BLAST_THREADS) as pool:
        sent = [
            (target, [pool.submit(send, (target, number)) for number in range(1, parts + 1)])
            for target, parts in uploads
        ]
        for target, parts in sent:
            done: Any = [part.result() for part in parts]
            client.complete_multipart_upload(**target, MultipartUpload={"Parts": done})


def main(verb: str, folder: Path, address: dict[str, Any]) -> None:
    """Do it; prints what it measured itself as JSON."""
    if verb == "blast":
        blast(address, folder)
        return
    checkpoints = CheckpointStore(open_store(name="bench", **address), RUN)
    if verb == "restore":
        checkpoints.restore(checkpoints.manifests()[-1], folder)
        return
    checkpoints.fence(1)
    print(json.dumps(change(checkpoints, folder) if verb == "change" else commit(checkpoints, 1, folder, {})))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
