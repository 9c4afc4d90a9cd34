"""A file is either whole or as it was: whatever fails on the way."""

import errno
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.errors import UserError
from unbraid.storage.checksums import check_complete, names, resealing, seal, verify
from unbraid.storage.files import (
    Damaged,
    json_bytes,
    read_arrays,
    read_json,
    read_sealed,
    remove_leftovers,
    write_arrays,
    write_bytes,
    write_json,
    write_sealed,
)


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.bin"


def test_writing_replaces_the_file_and_leaves_nothing_beside_it(path):
    write_bytes(path, b"old")
    write_bytes(path, b"new and longer")
    assert path.read_bytes() == b"new and longer"
    assert list(path.parent.iterdir()) == [path]


def test_writing_makes_the_folders_it_needs(tmp_path):
    write_bytes(tmp_path / "a" / "b" / "file", b"x")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"x"


def test_a_reader_sees_the_old_file_until_the_new_one_is_on_the_disk(path, monkeypatch):
    """The content is flushed before the rename, and the rename itself after."""
    write_bytes(path, b"old")
    seen, flush = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (seen.append(path.read_bytes()), flush(handle))[1])
    write_bytes(path, b"new")
    assert seen == [b"old", b"new"]


def test_an_open_reader_keeps_the_old_file(path):
    write_bytes(path, b"old")
    with path.open("rb") as reader:
        write_bytes(path, b"new")
        assert reader.read() == b"old"


@pytest.mark.parametrize("stage", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_says_why(path, monkeypatch, stage):
    write_bytes(path, b"old")
    with monkeypatch.context() as patched:
        patched.setattr(os, stage, full_disk)
        with pytest.raises(UserError, match="No space left on device") as caught:
            write_bytes(path, b"new")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
    write_bytes(path, b"newer")
    assert path.read_bytes() == b"newer"


def test_a_folder_that_is_a_file_is_refused(path):
    path.write_bytes(b"I am a file")
    with pytest.raises(UserError, match="cannot write"):
        write_bytes(path / "inside" / "x", b"x")


def test_a_path_that_is_a_folder_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        write_bytes(tmp_path / "folder", b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_json_reads_back_as_it_was_written(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    assert read_json(path) == value


def test_json_writes_what_is_not_finite_as_null_and_tuples_as_lists(path):
    write_json(path, {"a": float("nan"), "b": [float("inf"), 1.5], "c": (1, -float("inf"))})
    assert read_json(path) == {"a": None, "b": [None, 1.5], "c": [1, None]}


def test_json_bytes_are_the_same_for_the_same_value():
    assert json_bytes({"b": 1, "a": [0.1]}) == json_bytes({"b": 1, "a": [0.1]})


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b"{'a': 1}", b"[1,]"])
def test_damaged_json_is_refused_by_name(path, content):
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"file\.bin is damaged"):
        read_json(path)


def test_arrays_read_back_bit_for_bit(path, rng):
    arrays = {
        "weights": rng.standard_normal((3, 4, 5)).astype(np.float32),
        "double": rng.standard_normal(7),
        "counts": rng.integers(-5, 5, (2, 3)),
        "flags": rng.random(9) < 0.5,
        "empty": np.zeros((0, 4), np.float32),
        "strided": rng.standard_normal((6, 4)).astype(np.float32)[::2, ::-1],
        "scalar": np.array(3.5),
        "special": np.array([np.nan, np.inf, -0.0], np.float32),
    }
    write_arrays(path, arrays)
    found = read_arrays(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_damaged_arrays_are_refused_by_name(path):
    write_arrays(path, {"a": np.arange(100.0)})
    whole = path.read_bytes()
    for content in (b"", b"junk", whole[:-1], whole[:50], b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"file\.bin is damaged"):
            read_arrays(path)


@pytest.mark.parametrize("read", [read_json, read_arrays])
def test_a_missing_file_is_refused(path, read):
    with pytest.raises(UserError, match="cannot read"):
        read(path)


def test_every_byte_of_a_sealed_object_is_guarded(path):
    write_sealed(path, {"state": "running", "seconds": 1.5, "name": "é"})
    assert read_sealed(path, "state") == {"state": "running", "seconds": 1.5, "name": "é"}
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x01]) + whole[position + 1 :])
        with pytest.raises(UserError):
            read_sealed(path, "state")
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError):
            read_sealed(path, "state")


@pytest.fixture
def folder(tmp_path):
    """A finished folder."""
    folder = tmp_path / "folder"
    write_json(folder / "scores.json", {"values": [1, 2]})
    write_arrays(folder / "deeper" / "weights.safetensors", {"w": np.arange(8.0)})
    write_bytes(folder / ".hidden.1.part", b"left by a kill")
    seal(folder, {"of": "test"})
    return folder


def test_a_finished_folder_lists_its_files_and_verifies(folder):
    assert names(folder) == ["deeper/weights.safetensors", "scores.json"]
    assert verify(folder)["of"] == "test"
    assert read_json(folder / "scores.json") == {"values": [1, 2]}


def test_a_changed_digit_is_noticed_by_whoever_reads_the_file(folder):
    """It is still JSON, of the same length: only the checksum knows."""
    path = folder / "scores.json"
    path.write_bytes(path.read_bytes().replace(b"2", b"3"))
    check_complete(folder)
    for read in (lambda: read_json(path), lambda: verify(folder)):
        with pytest.raises(Damaged, match=r"scores\.json is damaged: its checksum"):
            read()


def test_a_flipped_bit_in_weights_is_noticed(folder):
    path = folder / "deeper" / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(Damaged, match=r"weights\.safetensors is damaged"):
        read_arrays(path)


def test_a_missing_or_shorter_file_is_noticed_without_reading_any(folder):
    path = folder / "scores.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(Damaged, match=r"scores\.json is damaged: it has"):
        check_complete(folder)
    path.unlink()
    with pytest.raises(Damaged, match=r"scores\.json is missing"):
        check_complete(folder)


def test_a_damaged_list_of_checksums_is_noticed(folder):
    path = folder / "checksums.json"
    path.write_bytes(path.read_bytes().replace(b'"of": "test"', b'"of": "best"'))
    with pytest.raises(Damaged, match="does not match its own checksum"):
        read_json(folder / "scores.json")


def test_files_written_later_are_taken_into_the_list(folder):
    with resealing(folder, "scores.json", "figures"):
        write_json(folder / "scores.json", {"values": [4]})
        write_bytes(folder / "figures" / "a.png", b"png")
    assert read_json(folder / "scores.json") == {"values": [4]}
    assert "figures/a.png" in verify(folder)["files"]


def test_a_kill_while_files_are_written_later_leaves_nothing_that_looks_damaged(folder):
    """A generator that is never resumed is what a kill leaves."""
    killed = resealing(folder, "scores.json")
    killed.__enter__()
    write_json(folder / "scores.json", {"values": [4]})
    assert read_json(folder / "scores.json") == {"values": [4]}
    assert "scores.json" not in verify(folder)["files"]
    with resealing(folder, "scores.json"):
        write_json(folder / "scores.json", {"values": [5]})
    assert "scores.json" in verify(folder)["files"]


def test_a_failure_while_files_are_written_later_lists_no_damage(folder):
    """What was damaged before is not listed as it is found."""
    path = folder / "scores.json"
    path.write_bytes(path.read_bytes().replace(b"2", b"3"))
    with pytest.raises(KeyboardInterrupt), resealing(folder, "scores.json"):
        raise KeyboardInterrupt
    with pytest.raises(Damaged, match=r"scores\.json is damaged"):
        read_json(path)


def test_a_list_that_changes_within_a_tick_of_the_clock_is_read_again(folder, monkeypatch):
    """Same size and same time, as two writes in quick succession have."""
    path = folder / "checksums.json"
    before = path.stat()
    assert read_json(folder / "scores.json") == {"values": [1, 2]}
    with resealing(folder, "scores.json"):
        write_json(folder / "scores.json", {"values": [1, 3]})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert read_json(folder / "scores.json") == {"values": [1, 3]}


@pytest.mark.parametrize(
    "content", [b'{"a": "\\ud800", "sha256": ""}', b'{"a": ' + b"[" * 900 + b"]" * 900 + b', "sha256": ""}']
)
def test_json_that_we_could_not_have_written_is_refused_by_name(path, content):
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"file\.bin is damaged"):
        read_sealed(path, "a")


def test_what_killed_writers_left_can_be_removed(folder):
    remove_leftovers(folder)
    assert not (folder / ".hidden.1.part").exists()
