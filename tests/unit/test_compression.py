"""LZ4 columns: bit-exact, out of band, only where it pays."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rlcore import compression
from rlcore.compression import PackedBatch, pack, pack_column, sampled_ratio, unpack, unpack_column
from rlcore.sample_batch import MultiAgentBatch, SampleBatch

DTYPES = st.sampled_from([np.float32, np.uint8, np.int64, np.bool_, np.int8])


def image_batch() -> MultiAgentBatch:
    rng = np.random.default_rng(0)
    frames = np.zeros((64, 4, 84, 84), np.uint8)
    frames[:, :, 10:20, 10:20] = rng.integers(0, 255, (64, 4, 10, 10), dtype=np.uint8)
    noise = rng.standard_normal((64, 512)).astype(np.float32)
    return MultiAgentBatch({"p": SampleBatch({"observations": frames, "noise": noise}, policy_version=3)}, count=64)


@given(arrays.arrays(DTYPES, arrays.array_shapes(max_dims=3, max_side=40)), st.sampled_from(["auto", "lz4"]))
def test_every_column_comes_back_bit_for_bit(column, mode):
    back = unpack_column(pack_column(column, mode))
    assert back.dtype == column.dtype
    assert back.shape == column.shape
    assert back.tobytes() == column.tobytes()


def test_a_sampled_ratio_decides_column_by_column():
    packed = pack(image_batch(), "auto")
    assert isinstance(packed, PackedBatch)
    codecs = {name: column.codec for name, column in packed.policies["p"].items()}
    assert codecs == {"observations": "lz4", "noise": "raw"}
    assert packed.size_bytes < image_batch().size_bytes / 5


def test_a_batch_that_gains_nothing_travels_as_it_is():
    noise = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    batch = MultiAgentBatch({"p": SampleBatch({"noise": noise})}, count=64)
    assert pack(batch, "auto") is batch
    assert pack(image_batch(), "none").size_bytes == image_batch().size_bytes


def test_unpacking_restores_versions_layouts_and_counts():
    batch = image_batch()
    back = unpack(pack(batch, "lz4"))
    assert back.count == 64
    assert back.policy_version == 3
    for name, column in batch.policy_batches["p"].items():
        assert (back.policy_batches["p"][name] == column).all()


def test_packed_bytes_travel_out_of_band_and_without_text():
    packed = pack(image_batch(), "lz4")
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(packed, protocol=5, buffer_callback=buffers.append)
    assert len(data) < 2000
    assert sum(memoryview(buffer).nbytes for buffer in buffers) == packed.size_bytes


def test_columns_larger_than_one_block_are_cut(monkeypatch):
    monkeypatch.setattr(compression, "BLOCK_BYTES", 1000)
    column = np.repeat(np.arange(700, dtype=np.int64), 2)
    packed = pack_column(column, "lz4")
    assert len(packed.blocks) == 12
    assert (unpack_column(packed) == column).all()


def test_a_block_of_the_wrong_size_is_refused():
    packed = pack_column(np.zeros(5000, np.uint8), "lz4")
    wrong = compression.PackedColumn(packed.dtype, (4000,), "lz4", packed.blocks)
    with pytest.raises(ValueError, match="4000 bytes"):
        unpack_column(wrong)
    short = compression.PackedColumn(packed.dtype, (6000,), "lz4", packed.blocks)
    with pytest.raises(ValueError, match="holds 5000 bytes where 6000"):
        unpack_column(short)


def test_small_columns_are_not_worth_a_look():
    assert sampled_ratio(np.zeros(100, np.uint8)) == 1.0
    assert sampled_ratio(np.zeros(100_000, np.uint8)) > 50
