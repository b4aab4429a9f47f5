"""`cbquant.open` on models that are split over several files."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import cbquant
from tests import gguf_bytes as gb


def write_shards(folder: Path, tensors: int = 5, per_shard: int = 2) -> list[Path]:
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama", split_max_tensors=per_shard)
    for i in range(tensors):
        writer.add_tensor(f"t{i}", np.full((2, 3), i, np.float32))
    gb.save(writer)
    return sorted(folder.glob("model-*.gguf"))


def test_any_shard_opens_the_whole_model(tmp_path):
    shards = write_shards(tmp_path)
    assert len(shards) == 3
    for shard in shards:
        file = cbquant.open(shard)
        assert (file.path, file.paths) == (shard, tuple(shards))
        assert list(file) == ["t0", "t1", "t2", "t3", "t4"]
        assert [tensor[0, 0] for tensor in file.values()] == [0, 1, 2, 3, 4]
        assert [file.infos[name].path for name in ("t0", "t4")] == [shards[0], shards[2]]
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["split.no"] == 0
        assert "in 3 shards" in repr(file)


def test_missing_shard_is_named(tmp_path):
    shards = write_shards(tmp_path)
    shards[1].unlink()
    with pytest.raises(FileNotFoundError, match=r"model-00002-of-00003\.gguf"):
        cbquant.open(shards[2])


def test_renamed_shard_is_refused(tmp_path):
    shards = write_shards(tmp_path)
    for name in ("model.gguf", "model-00001-of-00002.gguf"):
        with pytest.raises(ValueError, match=r"split.count is 3, .* name must end in -NNNNN-of-00003\.gguf"):
            cbquant.open(shards[0].rename(tmp_path / name))
        shards = [tmp_path / name]


def test_exchanged_shards_are_refused(tmp_path):
    shards = write_shards(tmp_path)
    shards[0].rename(tmp_path / "x")
    shards[1].rename(shards[0])
    (tmp_path / "x").rename(shards[1])
    with pytest.raises(ValueError, match=r"00001-of-00003\.gguf: split.no is 1, expected 0"):
        cbquant.open(shards[0])


def shard(number: int, names: str, **extra: int) -> bytes:
    values = {"split.no": number, "split.count": 2, **extra}
    pairs = [gb.pair(key, gb.UINT64, gb.u64(value)) for key, value in values.items()]
    return gb.gguf(pairs, [gb.info(name, [1], gb.F32, 0) for name in names], bytes(4))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (shard(1, "ab"), "00002-of-00002.gguf: tensor 'a' stands in .*00001-of-00002.gguf too"),
        (shard(1, "b", **{"split.count": 3}), "00002-of-00002.gguf: split.count is 3, expected 2"),
        (shard(1, "b", **{"split.tensors.count": 5}), "split.tensors.count is 5, expected 2"),
        (b"", "00002-of-00002.gguf: at byte 0: magic: expected 4 more bytes, the file has 0"),
        (b"PK\3\4", r"00002-of-00002.gguf: at byte 0: magic: expected b'GGUF', got b'PK"),
        (gb.gguf([gb.pair("split.no", gb.STRING, gb.string("1"))]), "split.no: .* integer, got string"),
    ],
)
def test_shards_that_do_not_fit_are_refused(tmp_path, second, message):
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(shard(0, "a"))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    with pytest.raises(ValueError, match=message):
        cbquant.open(tmp_path / "m-00001-of-00002.gguf")


def test_shards_may_have_no_split_metadata(tmp_path):
    for number, name in enumerate("ab", start=1):
        path = tmp_path / f"m-0000{number}-of-00002.gguf"
        path.write_bytes(gb.gguf([], [gb.info(name, [1], gb.F32, 0)], bytes(4)))
    assert list(cbquant.open(path)) == ["a", "b"]
    alone = tmp_path / "m-00001-of-00001.gguf"
    alone.write_bytes(gb.sample())
    assert cbquant.open(alone).paths == (alone,)
    for name in ("m-00003-of-00002.gguf", "m-00000-of-00001.gguf"):
        with pytest.raises(ValueError, match=r"there is no shard [30] of [21]"):
            cbquant.open(alone.rename(tmp_path / name))
        alone = tmp_path / name
