"""TFDS reads archives without TensorFlow and without network; the archives are made here."""

import gzip
import hashlib
import importlib.util
import io
import random
import tarfile

import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core import shuffle
from tensorflow_datasets.translate.wmt14 import Wmt14Translate

from t2t_jax.config import Data
from t2t_jax.data import builders, parallel
from t2t_jax.data import prepare as preparation
from t2t_jax.data.cache import open_dataset
from t2t_jax.data.prepare import prepare
from t2t_jax.errors import UsageError
from tests.process import python
from tests.toy import quiet

WORDS = {
    "en": "the a dog cat house street sees loves buys green big old".split(),
    "de": "der die das Hund Katze Haus Straße sieht liebt kauft grün groß".split(),
    "fr": "le la chien chat maison rue voit aime achète vert grand vieux".split(),
}


def lines(language, n, seed):
    draw = random.Random(f"{language} {seed}")
    return [f"{' '.join(draw.choices(WORDS[language], k=5))} {i} {seed}" for i in range(n)]


def text(rows):
    return "".join(f"{row}\n" for row in rows).encode()


def sgm(rows):
    return text([f'<seg id="{i}">{row}</seg>' for i, row in enumerate(rows, 1)])


def infos(directory, urls):
    """Returns TFDS's size and checksum of each file made here."""
    known = {}
    for url in urls:
        path = directory / url.rsplit("/", 1)[1]
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        known[url] = tfds.download.checksums.UrlInfo(
            size=tfds.core.utils.Size(path.stat().st_size), checksum=digest, filename=path.name
        )
    return known


STATMT = "http://www.statmt.org/"
ARCHIVES = {
    "europarl": STATMT + "wmt13/training-parallel-europarl-v7.tgz",
    "commoncrawl": STATMT + "wmt13/training-parallel-commoncrawl.tgz",
    "news": STATMT + "wmt14/training-parallel-nc-v9.tgz",
    "un": STATMT + "wmt13/training-parallel-un.tgz",
    "giga": STATMT + "wmt10/training-giga-fren.tar",
    "dev": "http://data.statmt.org/wmt19/translation-task/dev.tgz",
}
PARTS = {"de": ("europarl", "commoncrawl", "news"), "fr": tuple(ARCHIVES)[:5]}


def make_archives(directory, foreign):
    """Writes small archives of WMT14; returns the expected split -> (foreign, English)."""
    path = {
        "europarl": f"training/europarl-v7.{foreign}-en.",
        "commoncrawl": f"commoncrawl.{foreign}-en.",
        "news": f"training/news-commentary-v9.{foreign}-en.",
        "un": f"un/undoc.2000.{foreign}-en.",
    }
    files: dict[str, dict[str, bytes]] = {part: {} for part in (*PARTS[foreign], "dev")}
    train = ([], [])
    for n, part in enumerate(PARTS[foreign]):
        for side, language in zip(train, (foreign, "en"), strict=True):
            rows = lines(language, 40 + n, part)
            side += rows
            if part == "giga":
                name = f"giga-fren.release2.fixed.{language}.gz"
                files[part][name] = gzip.compress(text(rows))
            else:
                files[part][path[part] + language] = text(rows)
    dev, test = ([lines(x, n, "dev") for x in (foreign, "en")] for n in (13, 11))
    files["dev"] = {
        f"dev/newstest2013.{foreign}": text(dev[0]),
        "dev/newstest2013.en": text(dev[1]),
        f"dev/newstest2014-{foreign}en-src.{foreign}.sgm": sgm(test[0]),
        f"dev/newstest2014-{foreign}en-ref.en.sgm": sgm(test[1]),
    }
    directory.mkdir()
    for part, members in files.items():
        archive = directory / ARCHIVES[part].rsplit("/", 1)[1]
        with tarfile.open(archive, "w:gz" if archive.suffix == ".tgz" else "w") as tar:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return {"train": train, "dev": dev, "test": test}


@pytest.fixture
def archives(tmp_path, monkeypatch, request):
    foreign = getattr(request, "param", "de")
    expected = make_archives(tmp_path / "archives", foreign)
    urls = [ARCHIVES[part] for part in (*PARTS[foreign], "dev")]
    monkeypatch.setattr(Wmt14Translate, "url_infos", infos(tmp_path / "archives", urls))
    return tmp_path / "archives", expected


def test_tensorflow_is_not_installed():
    """If TensorFlow were installed, these tests would not show that it is not needed."""
    assert importlib.util.find_spec("tensorflow") is None


@pytest.mark.parametrize("archives", ["de", "fr"], indirect=True)
@pytest.mark.parametrize("in_memory", [True, False])
def test_wmt14_is_read_from_its_archives(archives, tmp_path, monkeypatch, in_memory):
    directory, expected = archives
    monkeypatch.setattr(builders, "CHUNK", 7)
    if not in_memory:  # as for a split of more than a gigabyte
        monkeypatch.setattr(shuffle, "MAX_MEM_BUFFER_SIZE", 0)
    foreign = "fr" if len(expected["train"][0]) > 130 else "de"
    streams = builders.wmt14("en", foreign, tmp_path, str(directory))
    assert list(streams) == ["train", "dev", "test"]
    for split, (theirs, english) in expected.items():
        pairs = [(raw.source.decode(), raw.target.decode()) for raw in streams[split].read()]
        assert sorted(pairs) == sorted(zip(english, theirs, strict=True))


def test_wmt14_is_prepared_in_both_directions(archives, tmp_path):
    directory, expected = archives
    fields = {"corpus": "wmt14", "vocabulary": 90, "directory": str(directory)}
    for source, target in (("en", "de"), ("de", "en")):
        data = Data(**fields, source=source, target=target)
        dataset = open_dataset(prepare(data, tmp_path / "cache", quiet))
        sides = dict(zip(("de", "en"), expected["test"], strict=True))
        written = zip(
            dataset.splits["test"].sources, dataset.splits["test"].references, strict=True
        )
        assert sorted(written) == sorted(zip(sides[source], sides[target], strict=True))
        assert dataset.meta["splits"]["train"]["pairs"] == 40 + 41 + 42


def test_the_stub_of_tensorflow_is_removed_afterwards(archives, tmp_path):
    from tensorflow_datasets.core.download import extractor

    before = [shuffle.tf, extractor.tf]
    builders.wmt14("en", "de", tmp_path, str(archives[0]))
    assert [shuffle.tf, extractor.tf] == before


def test_an_archive_with_another_checksum_is_refused(archives, tmp_path):
    path = archives[0] / "training-parallel-nc-v9.tgz"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(
        UsageError, match=r"nc-v9\.tgz is not the published http://www\.statmt\.org/wmt14/"
    ):
        builders.wmt14("en", "de", tmp_path, str(archives[0]))


def offline(monkeypatch):
    def refuse(request, timeout):
        raise OSError("no network")

    monkeypatch.setattr(builders.urllib.request, "urlopen", refuse)


def test_a_missing_archive_is_named_without_a_download(archives, tmp_path, monkeypatch):
    offline(monkeypatch)
    directory, _ = archives
    (directory / "training-parallel-nc-v9.tgz").unlink()
    (directory / "training-parallel-commoncrawl.tgz").unlink()
    data = Data(corpus="wmt14", vocabulary=90, directory=str(directory))
    fail = pytest.fail  # TFDS would try ten times, for minutes
    monkeypatch.setattr(Wmt14Translate, "download_and_prepare", lambda *_, **__: fail("called"))
    with pytest.raises(UsageError) as caught:
        prepare(data, tmp_path / "cache", quiet)
    message = str(caught.value)
    assert "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz" in message
    assert "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz" in message
    assert "europarl" not in message
    assert "\n" not in message


def test_downloaded_archives_are_not_requested_again(archives, tmp_path, monkeypatch):
    requested = []
    answer = lambda request, timeout: requested.append(request.full_url) or io.BytesIO()  # noqa: E731
    monkeypatch.setattr(builders.urllib.request, "urlopen", answer)
    builder = Wmt14Translate(data_dir=str(tmp_path), config="de-en", file_format="array_record")
    first, second = ARCHIVES["europarl"], ARCHIVES["news"]
    name = tfds.download.resource.get_dl_fname(first, builder.url_infos[first].checksum)
    (tmp_path / "downloads" / "wmt").mkdir(parents=True)
    (tmp_path / "downloads" / "wmt" / name).write_bytes(b"")
    builders._check_reachable(builder, [first, second], tmp_path / "downloads", "")
    assert requested == [second]


@pytest.fixture
def captions(tmp_path, monkeypatch):
    """Multi30k in miniature, and the list of the files that are downloaded from it."""
    directory, requested, published = tmp_path / "captions", [], {}
    directory.mkdir()
    for stem, n in (("train", 150), ("val", 12), ("test_2016_flickr", 9)):
        for language in parallel.LANGUAGES:
            data = gzip.compress(text(lines(language, n, stem)), mtime=0)
            (directory / f"{stem}.{language}.gz").write_bytes(data)
            published[f"{stem}.{language}.gz"] = hashlib.sha256(data).hexdigest()
    assert set(published) == set(parallel.FILES)
    monkeypatch.setattr(parallel, "FILES", published)

    def answer(url, timeout):
        requested.append(url.removeprefix(parallel.URL))
        return (directory / requested[-1]).open("rb")

    monkeypatch.setattr(parallel.urllib.request, "urlopen", answer)
    return directory, requested


@pytest.mark.parametrize(("source", "target"), [("en", "fr"), ("de", "en")])
def test_multi30k_downloaded_equals_the_local_copy(captions, tmp_path, source, target):
    directory, requested = captions
    fields = {"corpus": "multi30k", "vocabulary": 75, "source": source, "target": target}
    online = prepare(Data(**fields), tmp_path / "online", quiet)
    stems = "train", "val", "test_2016_flickr"
    assert requested == [f"{stem}.{x}.gz" for stem in stems for x in (source, target)]
    local = prepare(Data(**fields, directory=str(directory)), tmp_path / "local", quiet)
    assert online.name == local.name
    assert open_dataset(online).fingerprint == open_dataset(local).fingerprint
    assert open_dataset(online).splits["test"].sources == lines(source, 9, "test_2016_flickr")
    assert open_dataset(online).splits["dev"].references == lines(target, 12, "val")
    prepare(Data(**fields, max_length=99), tmp_path / "online", quiet)
    assert len(requested) == 6  # what was downloaded is not requested again


def test_a_changed_file_of_multi30k_is_refused(captions, tmp_path):
    (captions[0] / "val.en.gz").write_bytes(gzip.compress(b"other\n"))
    with pytest.raises(UsageError, match=r"val\.en\.gz is not the published file"):
        prepare(Data(corpus="multi30k", target="de"), tmp_path, quiet)


def test_multi30k_without_network_names_the_files_to_download(tmp_path, monkeypatch):
    offline(monkeypatch)
    with pytest.raises(UsageError) as caught:
        prepare(Data(corpus="multi30k", target="fr"), tmp_path, quiet)
    message = str(caught.value)
    assert "put these files into a directory and give it with --directory: train.en.gz" in message
    for stem in ("train", "val", "test_2016_flickr"):
        assert f"{stem}.en.gz, {stem}.fr.gz" in message
    assert message.count("https://raw.githubusercontent.com/multi30k/dataset/") == 1


def test_opening_a_corpus_does_not_import_tfds():
    code = f"import sys, {preparation.__name__}; print('tensorflow_datasets' in sys.modules)"
    assert python(code) == "False\n"
