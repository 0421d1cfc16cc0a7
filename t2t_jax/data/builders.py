"""WMT14 as TensorFlow Datasets (TFDS) downloads and prepares it, without TensorFlow.

This module is imported only to build a cache. TFDS 4.9 reads and writes `array_record` files
without TensorFlow, but uses `tf.io.gfile` to unpack archives and to sort splits above a gigabyte;
`_LOCAL` replaces these few functions.
"""

import functools
import os
import re
import resource
import types
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow_datasets as tfds
from tensorflow_datasets.core import shuffle
from tensorflow_datasets.core.download import extractor

from t2t_jax.data.raw import FilesMissing, Raw, Stream
from t2t_jax.data.tokenise import CHUNK
from t2t_jax.errors import UsageError

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_FILES = types.SimpleNamespace(GFile=open, exists=os.path.exists, remove=os.remove)
_LOCAL = types.SimpleNamespace(
    io=types.SimpleNamespace(gfile=_FILES),
    compat=types.SimpleNamespace(as_text=os.fsdecode),
    # Local files do not raise TensorFlow's error for too many open files.
    errors=types.SimpleNamespace(ResourceExhaustedError=()),
)


def wmt14(source: str, target: str, root: Path, directory: str) -> Mapping[str, Stream]:
    """The splits of WMT14: TFDS's training data, newstest2013 for dev, newstest2014 for test.

    Archives are read from `directory` if it has files of their names; others are downloaded.
    """
    from tensorflow_datasets.translate import wmt, wmt14

    foreign = source if target == "en" else target
    builder = wmt14.Wmt14Translate(
        data_dir=os.fspath(root / "tfds"), config=f"{foreign}-en", file_format="array_record"
    )
    parts = [wmt.DATASET_MAP[name] for names in builder.subsets.values() for name in names]
    urls = sorted({url for part in parts for url in part.get_url(foreign)})
    _prepare(builder, urls, root, directory)

    def read(split: str) -> Iterator[Raw]:
        examples = builder.as_data_source(split=split)
        for first in range(0, len(examples), CHUNK):
            rows = range(first, min(first + CHUNK, len(examples)))
            for pair in examples.__getitems__(rows):
                yield Raw(pair[source], pair[target])

    return {
        ours: Stream(f"{builder.info.full_name} {theirs}", functools.partial(read, theirs))
        for ours, theirs in _SPLITS.items()
    }


def _prepare(builder: Any, urls: Iterable[str], root: Path, directory: str) -> None:
    if builder.is_prepared():
        return
    downloads = root / "downloads"
    _check_reachable(builder, urls, downloads, directory)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # TFDS sorts in 1000 open files
    config = tfds.download.DownloadConfig(manual_dir=directory or None, try_download_gcs=False)
    try:
        with mock.patch.object(extractor, "tf", _LOCAL), mock.patch.object(shuffle, "tf", _LOCAL):
            builder.download_and_prepare(download_dir=os.fspath(downloads), download_config=config)
    except tfds.download.download_manager.NonMatchingChecksumError as error:
        match = re.search(r"Artifact (\S+), downloaded to (\S+),", str(error))
        url, path = match.groups() if match else (f"archive of {builder.name}", "a download")
        raise UsageError(
            f"{path} is not the published {url} (its sha256 differs): delete it and download it "
            "again."
        ) from error
    except tfds.download.extractor.ExtractError as error:
        raise UsageError(f"{error}; download the archive again.") from error
    except (OSError, tfds.download.util.DownloadError) as error:
        if builder.is_prepared():  # by another process
            return
        raise FilesMissing(f"{builder.name} could not be prepared: {error}") from error


def _check_reachable(builder: Any, urls: Iterable[str], downloads: Path, directory: str) -> None:
    """Raises FilesMissing at once if a file is missing; TFDS would try to download it ten times."""
    missing = []
    for url in urls:
        info = builder.url_infos[url]
        by_hand = directory and (Path(directory) / info.filename).exists()
        cached = tfds.core.download.resource.get_dl_fname(url, info.checksum)
        if not by_hand and not any(downloads.rglob(cached)):
            missing.append(url)
    try:
        for url in missing:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10).close()
    except OSError as error:
        raise FilesMissing(
            f"{builder.name} cannot be downloaded from here ({error}): put these files into a "
            f"directory and give it with --directory: {', '.join(missing)}."
        ) from error
