"""The trainer's image as an OCI image layout, built without a container engine.

Its base is the host's root file system: the sandbox's node agent lays the image's layers over it, so the C library and
the Python interpreter are the host's, and everything else that runs in the pod comes out of the image. One layer holds
the third-party libraries, copied from the distributions that are installed here; the other holds the part of Spillway
that runs inside the container. The interpreter starts isolated: it knows its own standard library and the image's
folder, neither the host's site-packages nor an environment of this project.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import spillway
from spillway.errors import SandboxError
from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.registries.layout import LayoutRegistry
from spillway.sandbox.image_layer import LAYER_MEDIA_TYPE, Layer, bytecode, pack

REPOSITORY = "train"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = f"numpy{importlib.metadata.version('numpy')}-py{PYTHON}"

ROOT = PurePosixPath("/opt/spillway")
LIBRARIES = ROOT / "lib"
START = ROOT / "bin" / "train"
MANIFEST_MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_MEDIA_TYPE = "application/vnd.oci.image.config.v1+json"
LIBRARIES_LABEL = "dev.spillway.libraries"

DISTRIBUTIONS = (
    "numpy", "cryptography", "cffi", "boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3",
)  # fmt: skip
OWN_MODULES = ("__init__.py", "model", "errors", "codec.py", "threads.py", "stores", "checkpoints", "trainer")
BOTOCORE_SERVICES = frozenset({"s3", "sts"})

ENVIRONMENT = {
    "PYTHONPATH": str(LIBRARIES),
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    # One thread a process: sums in another order would make a resumed run differ from an undisturbed one.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}

START_SCRIPT = f"""\
import runpy
import sys

sys.path.append({str(LIBRARIES)!r})
runpy.run_module("spillway.trainer", run_name="__main__", alter_sys=True)
"""


def build_trainer_image(root: Path, *, repository: str = REPOSITORY, tag: str = TAG) -> str:
    """Build the image into the layout of ``repository`` below ``root``; gives its digest, the same for the same input.

    The layer of libraries, which takes seconds, is taken over from the image of that tag while its versions stay.

    Raises:
        SandboxError: one of the libraries is not installed here.
    """
    layout = LayoutRegistry(root)
    versions = {name: _version(name) for name in DISTRIBUTIONS}
    key = _libraries_key(versions)
    libraries = _known_layer(layout, repository, tag, key) or pack(dict(_with_bytecode(_library_files())))
    own = pack({**dict(_with_bytecode(_own_files())), START: START_SCRIPT.encode()})
    config = json.dumps(_configuration(versions, key, (libraries, own)), indent=1).encode()
    layers = [_descriptor(layer.body, LAYER_MEDIA_TYPE) for layer in (libraries, own)]
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA_TYPE,
        "config": _descriptor(config, CONFIG_MEDIA_TYPE),
        "layers": layers,
    }
    for blob in (libraries.body, own.body, config):
        if not layout.has_blob(repository, digest_of(blob)):
            layout.put_blob(repository, digest_of(blob), iter([blob]), size_bytes=len(blob))
    body = json.dumps(document, indent=1).encode()
    manifest = Manifest(digest=digest_of(body), media_type=MANIFEST_MEDIA_TYPE, body=body)
    layout.put_manifest(repository, tag, manifest)
    return manifest.digest


def interpreter() -> Path:
    """The host's Python that runs this process, outside of any virtual environment."""
    return Path(sys.base_prefix, "bin", f"python{PYTHON}").resolve()


def entrypoint() -> tuple[str, ...]:
    """The program that a container of the image runs; the job's command are its arguments.

    The interpreter starts isolated, without site-packages; -B and -u because it does not read its variables then.
    """
    return (str(interpreter()), "-I", "-S", "-B", "-u", str(START))


def _configuration(versions: Mapping[str, str], key: str, layers: tuple[Layer, ...]) -> dict[str, Any]:
    return {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "Entrypoint": list(entrypoint()),
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "spillway trainer",
                "org.opencontainers.image.version": spillway.__version__,
                "dev.spillway.python": platform.python_version(),
                **{f"dev.spillway.library.{name}": version for name, version in versions.items()},
                LIBRARIES_LABEL: key,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }


def _descriptor(body: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(body), "size": len(body)}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError as problem:
        raise SandboxError(
            f"the trainer's image needs the library '{name}', which is not installed here; "
            "install requirements.txt into the environment that runs the sandbox"
        ) from problem


def _libraries_key(versions: Mapping[str, str]) -> str:
    """What the layer of libraries depends on: the versions, the interpreter, and the rules of this very module."""
    rules = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    inputs = json.dumps([dict(versions), sys.version, rules], sort_keys=True)
    return hashlib.sha256(inputs.encode()).hexdigest()


def _known_layer(layout: LayoutRegistry, repository: str, tag: str, key: str) -> Layer | None:
    """The layer of libraries of the image that has the tag now, if it was built from the same."""
    if layout.resolve(repository, tag) is None:
        return None
    manifest = json.loads(layout.manifest(repository, tag).body)
    digest = manifest["layers"][0]["digest"]
    config_digest = manifest["config"]["digest"]
    if not (layout.has_blob(repository, digest) and layout.has_blob(repository, config_digest)):
        return None
    config = json.loads(b"".join(layout.read_blob(repository, config_digest)))
    if config["config"]["Labels"].get(LIBRARIES_LABEL) != key:
        return None
    return Layer(body=b"".join(layout.read_blob(repository, digest)), diff_id=config["rootfs"]["diff_ids"][0])


def _with_bytecode(files: Iterator[tuple[PurePosixPath, bytes]]) -> Iterator[tuple[PurePosixPath, bytes]]:
    for path, content in files:
        yield path, content
        compiled = bytecode(path, content) if path.suffix == ".py" else None
        if compiled is not None:
            yield compiled


def _library_files() -> Iterator[tuple[PurePosixPath, bytes]]:
    for name in DISTRIBUTIONS:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if _wanted(PurePosixPath(file)):
                yield LIBRARIES / file, Path(str(distribution.locate_file(file))).read_bytes()


def _wanted(path: PurePosixPath) -> bool:
    """Whether the trainer needs a library's file: no scripts, no tests, no headers, of botocore S3 and STS only."""
    match path.parts:
        case ("..", *_):
            return False
        case (folder, *_) if folder.endswith(".dist-info"):
            return path.name == "METADATA" or "licenses" in path.parts
        case ("numpy", "f2py" | "distutils", *_):
            return False
        case ("botocore" | "boto3", "data", service, _, *_):
            return service in BOTOCORE_SERVICES
        case ("boto3", "examples", *_):
            return False
    if {"tests", "__pycache__", "include", "_examples"}.intersection(path.parts):
        return False
    return path.suffix not in {".pyi", ".pyc", ".a", ".pxd", ".h", ".c"}


def _own_files() -> Iterator[tuple[PurePosixPath, bytes]]:
    package = Path(spillway.__file__).parent
    for name in OWN_MODULES:
        part = package / name
        for file in sorted(part.rglob("*.py")) if part.is_dir() else [part]:
            yield LIBRARIES / "spillway" / file.relative_to(package).as_posix(), file.read_bytes()
