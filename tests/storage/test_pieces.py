"""Arrays that are written piece by piece make the file that safetensors makes, and are read where they lie."""

import numpy as np
import pytest
from safetensors.numpy import save

from unbraid.storage.files import Damaged, read_arrays
from unbraid.storage.pieces import Piecewise, map_arrays, write_pieces

ARRAYS = {
    "stack.decoder": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "age": np.ones((2, 3)),
    "step": np.array(7, dtype=np.int64),
    "features": np.arange(6, dtype=np.int32).reshape(2, 3),
    "none": np.zeros((0, 4), np.float32),
    "fired": np.array([True, False]),
}


def test_the_file_is_the_one_that_safetensors_writes(tmp_path):
    rows = ARRAYS["stack.decoder"]
    pieces = (rows[member, some] for member in range(2) for some in (slice(0, 1), slice(1, 3)))
    write_pieces(tmp_path / "a", {**ARRAYS, "stack.decoder": Piecewise(rows.dtype, rows.shape, pieces)})
    assert (tmp_path / "a").read_bytes() == save(ARRAYS)


def test_mapped_arrays_are_what_was_written(tmp_path):
    write_pieces(tmp_path / "a", ARRAYS)
    mapped, read = map_arrays(tmp_path / "a"), read_arrays(tmp_path / "a")
    assert mapped.keys() == read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(mapped[name], array)
        assert mapped[name].dtype == read[name].dtype == array.dtype
        assert mapped[name].shape == read[name].shape == array.shape


@pytest.mark.parametrize("content", [b"", b"12345678", b"\x05" + bytes(7) + b"{]  x", b"\x02" + bytes(7) + b"[]"])
def test_what_is_no_such_file_is_named(tmp_path, content: bytes):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(Damaged, match="is not a safetensors file"):
        map_arrays(tmp_path / "a")
