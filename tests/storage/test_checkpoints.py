"""Every kind of damage is seen and named, and the checkpoint before it is used."""

import errno
import json
import os

import numpy as np
import pytest

from unbraid.errors import UserError
from unbraid.storage.checkpoints import Checkpoint, Log, load_latest, matches_mark, read_log, save_checkpoint

KEY = "train-stack-0123"


def checkpoint(step):
    arrays = {
        "weights": np.random.default_rng(step).standard_normal((3, 4)).astype(np.float32),
        "age": np.full(3, step),
    }
    return Checkpoint(step, arrays, {"log_bytes": 10 * step, "note": "é", "seconds": 0.1 * step, "list": [1, 2]})


def assert_is(found, step):
    wanted = checkpoint(step)
    assert found is not None
    assert (found.step, found.facts) == (wanted.step, wanted.facts)
    assert found.arrays.keys() == wanted.arrays.keys()
    assert all(np.array_equal(array, wanted.arrays[name]) for name, array in found.arrays.items())


@pytest.fixture
def folder(tmp_path):
    """A folder with checkpoints of steps 10 and 20."""
    for step in (10, 20):
        save_checkpoint(tmp_path / "checkpoints", checkpoint(step), KEY)
    return tmp_path / "checkpoints"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_checkpoint_reads_back_bit_for_bit(folder):
    found, damaged = load_latest(folder, KEY)
    assert_is(found, 20)
    assert damaged == []


def test_the_newest_is_the_one_with_most_steps_not_the_last_name(tmp_path):
    for step in (999, 1000):
        save_checkpoint(tmp_path, checkpoint(step), KEY)
    assert_is(load_latest(tmp_path, KEY)[0], 1000)


def test_the_last_two_are_kept(folder):
    for step in (30, 40, 50):
        save_checkpoint(folder, checkpoint(step), KEY)
    assert [name.split(".")[0] for name in names(folder)] == [f"step-{s:09d}" for s in (40, 40, 50, 50)]
    assert_is(load_latest(folder, KEY)[0], 50)


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path):
    assert load_latest(tmp_path, KEY) == (None, [])
    assert load_latest(tmp_path / "absent", KEY) == (None, [])


def test_saving_the_same_step_again_replaces_it(folder):
    save_checkpoint(folder, checkpoint(20), KEY)
    assert_is(load_latest(folder, KEY)[0], 20)
    assert len(names(folder)) == 4


def arrays_of(folder, step):
    return folder / f"step-{step:09d}.safetensors"


def card_of(folder, step):
    return folder / f"step-{step:09d}.json"


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


def garbage(path):
    path.write_bytes(b"\x00\xffnot this")


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 0x10
    path.write_bytes(bytes(content))


def remove(path):
    path.unlink()


def other_json(path):
    path.write_text("[1, 2]")


def null_json(path):
    path.write_text("null")


def change_a_fact(path):
    card = json.loads(path.read_bytes())
    path.write_text(json.dumps({**card, "facts": {**card["facts"], "log_bytes": 1}}))


def change_the_step(path):
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "step": 21}))


def drop_the_checksum(path):
    card = json.loads(path.read_bytes())
    del card["sha256"]
    path.write_text(json.dumps(card))


DAMAGES = [(arrays_of, damage) for damage in (truncate, empty, garbage, flip_a_byte, remove)] + [
    (card_of, damage)
    for damage in (truncate, empty, garbage, other_json, null_json, change_a_fact, change_the_step, drop_the_checksum)
]
over_damages = pytest.mark.parametrize(("part", "damage"), DAMAGES, ids=lambda f: f.__name__)


@over_damages
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(folder, part, damage):
    damage(part(folder, 20))
    found, damaged = load_latest(folder, KEY)
    assert_is(found, 10)
    assert len(damaged) == 1
    assert "step-000000020" in damaged[0]
    assert "damaged" in damaged[0]


@over_damages
def test_when_all_are_damaged_there_is_none(folder, part, damage):
    damage(part(folder, 10))
    damage(part(folder, 20))
    found, damaged = load_latest(folder, KEY)
    assert found is None
    assert len(damaged) == 2


def test_every_single_byte_of_a_checkpoint_is_guarded(folder):
    for path in (arrays_of(folder, 20), card_of(folder, 20)):
        whole = path.read_bytes()
        for position in range(0, len(whole), 3):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x01]) + whole[position + 1 :])
            found, damaged = load_latest(folder, KEY)
            assert found is not None
            assert (found.step, len(damaged)) == (10, 1), f"byte {position} of {path.name}"
        path.write_bytes(whole)


def test_arrays_whose_card_was_never_written_do_not_count(folder):
    """A kill between the two writes."""
    arrays_of(folder, 30).write_bytes(arrays_of(folder, 20).read_bytes())
    found, damaged = load_latest(folder, KEY)
    assert_is(found, 20)
    [sentence] = damaged
    assert "step-000000030 has no JSON file" in sentence
    save_checkpoint(folder, checkpoint(40), KEY)
    assert not arrays_of(folder, 30).exists()


def test_a_save_that_fails_for_lack_of_space_keeps_what_was_there(folder, monkeypatch):
    def full_disk(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = names(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(UserError, match="No space left"):
            save_checkpoint(folder, checkpoint(30), KEY)
    assert names(folder) == before
    assert_is(load_latest(folder, KEY)[0], 20)


@pytest.mark.parametrize("calls", range(1, 5))
def test_a_save_stopped_at_any_of_its_flushes_leaves_a_whole_checkpoint(folder, monkeypatch, calls):
    """A write flushes the file, then the folder: two writes, four flushes, and each may be the last."""

    class Killed(BaseException):
        pass

    flush, left = os.fsync, [calls]

    def die(handle):
        left[0] -= 1
        if not left[0]:
            raise Killed
        flush(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        with pytest.raises(Killed):
            save_checkpoint(folder, checkpoint(30), KEY)
    found, damaged = load_latest(folder, KEY)
    assert_is(found, 30 if calls == 4 else 20)
    assert ["step-000000030 has no JSON file" in sentence for sentence in damaged] == [True] * (calls in (2, 3))
    save_checkpoint(folder, checkpoint(40), KEY)
    assert_is(load_latest(folder, KEY)[0], 40)


def test_a_step_saved_again_with_a_damaged_newer_one_present_survives(folder):
    """A run went back to step 10 because 20 was torn, and was stopped again at 15."""
    truncate(arrays_of(folder, 20))
    save_checkpoint(folder, checkpoint(15), KEY)
    found, _ = load_latest(folder, KEY)
    assert_is(found, 15)


def test_after_damage_an_earlier_save_counts_and_the_damaged_future_is_gone(folder):
    for card in folder.glob("*.json"):
        card.write_text("{}")
    assert save_checkpoint(folder, checkpoint(5), KEY).is_file()
    found, damaged = load_latest(folder, KEY)
    assert_is(found, 5)
    assert damaged == []
    assert names(folder) == ["step-000000005.json", "step-000000005.safetensors"]


def test_a_checkpoint_of_another_stage_is_named_and_passed_over(folder):
    found, passed_over = load_latest(folder, "train-stack-4567")
    assert found is None
    assert len(passed_over) == 2
    assert "is of another stage (train-stack-0123)" in passed_over[0]


def test_a_log_is_held_against_what_it_was_at_a_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    with Log(path, keep=0) as log:
        log.append({"step": 1})
        mark = log.mark()
        log.append({"step": 2})
    assert matches_mark(path, mark)
    path.write_bytes(path.read_bytes().replace(b"1", b"7"))
    assert not matches_mark(path, mark)
    path.unlink()
    assert not matches_mark(path, mark)


def test_a_damaged_log_is_refused_by_name(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": \n')
    with pytest.raises(UserError, match=r"log\.jsonl is damaged"):
        read_log(path)
