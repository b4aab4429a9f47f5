"""The command line on quantized checkpoints of safetensors."""

from __future__ import annotations

import numpy as np
import pytest

import cbquant
from cbquant.cli import main, tensors
from tests import checkpoint_files as cf
from tests.cli_files import run_error, run_json

DAMAGE = {
    "deepseek_v3": ("a.weight_scale_inv", np.float32(np.nan)),
    "deepseek_v3_bf16": ("a.weight_scale_inv", np.float32(np.inf)),
    "deepseek_v4": ("a.scale", np.uint8(255)),
    "gpt_oss": ("up_proj_scales", np.uint8(255)),
    "modelopt_nvfp4": ("a.weight_scale", np.uint8(0xFF)),
    "compressed_tensors_mxfp8": ("a.weight_scale", np.uint8(255)),
    "bitsandbytes": ("a.weight.absmax", np.float32(-np.inf)),
}


def write(tmp_path, kind):
    found, name, fmt, values = cf.checkpoint(kind)
    return cf.write(tmp_path / "m.safetensors", found), name, fmt, values


def test_inspect_lists_weights(tmp_path, capsys):
    path, name, fmt, values = write(tmp_path, "compressed_tensors_nvfp4")
    listed = {tensor["name"]: tensor for tensor in run_json(capsys, "inspect", path)["tensors"]}
    assert sorted(listed) == [name, "a.input_global_scale"][::-1]
    weight = listed[name]
    assert (weight["format"], weight["shape"], weight["note"]) == (fmt, list(values.shape), None)
    assert weight["parts"] == ["a.weight_packed", "a.weight_scale", "a.weight_global_scale"]
    assert weight["bytes"] == 200 + 25 + 4
    assert weight["bits_per_weight"] == 8 * 229 / 400
    assert main(["inspect", str(path)]) == 0
    assert "nvfp4_planes" in capsys.readouterr().out


def test_notes_are_told_of_many_the_first(tmp_path, capsys):
    found = {f"{i}.weight_packed": np.ones((2, 4), np.int32) for i in range(6)}
    path = cf.write(tmp_path / "m.safetensors", found)
    assert main(["inspect", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("packed integers of compressed-tensors") == 4
    assert "2 notes more" in captured.err
    assert all("packed integers" in tensor["note"] for tensor in run_json(capsys, "inspect", path)["tensors"])


@pytest.mark.parametrize("elements", [7, 130, 1 << 23])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["deepseek_v3", "gpt_oss", "modelopt_nvfp4", "bitsandbytes_odd"])
def test_dequant_decodes_them_a_slice_at_a_time(tmp_path, monkeypatch, kind, dtype, elements):
    monkeypatch.setattr(tensors, "_SLICE_ELEMENTS", elements)
    path, name, *_ = write(tmp_path, kind)
    assert main(["dequant", str(path), name, "-o", str(tmp_path / "out.npz"), "--dtype", dtype]) == 0
    expected = cbquant.open(path)[name].dequant(dtype)
    with np.load(tmp_path / "out.npz") as arrays:
        found = arrays[name]
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_dequant_says_what_stands_against_it(tmp_path, capsys):
    found = {
        "fp8.weight": np.ones((2, 4), cf.E4M3),
        "a.weight": np.ones((2, 4), cf.E4M3),
        "a.weight_scale_inv": np.ones(3, np.float32),
    }
    path, out = cf.write(tmp_path / "m.safetensors", found), tmp_path / "out.npz"
    message = "tensor 'fp8.weight' is FP8 without scales; --unscaled-fp8 takes its codes for numbers"
    assert message in run_error(capsys, "dequant", path, "-o", out)
    assert "tensor 'a.weight': 'a.weight_scale_inv' is F32 (3,)" in run_error(capsys, "dequant", path, "a.*", "-o", out)
    assert main(["dequant", str(path), "fp8.weight", "-o", str(out), "--unscaled-fp8"]) == 0
    with np.load(out) as arrays:
        np.testing.assert_array_equal(arrays["fp8.weight"], np.ones((2, 4)))
    assert main(["dequant", str(path), "-o", str(out), "--skip-unknown", "--force"]) == 0
    assert "left out: tensor 'a.weight': 'a.weight_scale_inv'" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "part", "value"), [(kind, *damage) for kind, damage in DAMAGE.items()])
def test_validate_finds_scales_that_are_no_numbers(tmp_path, capsys, kind, part, value):
    found, name, fmt, _ = cf.checkpoint(kind)
    path = cf.write(tmp_path / "m.safetensors", found)
    report = run_json(capsys, "validate", path)
    scales = np.array(found[part])
    assert (report["findings"], report["not_checked"]) == ([], [])
    assert report["blocks"] >= scales.size
    place = scales.size - 2
    flat = scales.reshape(-1)
    (flat.view(np.uint8) if isinstance(value, np.uint8) else flat)[place] = value
    report = run_json(capsys, "validate", cf.write(path, {**found, part: scales}), code=1)
    finding = {"name": name, "format": fmt, "blocks": scales.size, "bad": 1, "first": [place]}
    assert report["findings"] == [finding]


@pytest.mark.parametrize(("dtype", "code"), [(cf.E4M3, 0xFF), (cf.E5M2, 0xFC), (cf.E5M2, 0x7E)])
def test_validate_looks_at_the_numbers_of_fp8(tmp_path, capsys, dtype, code):
    codes = np.ones((3, 130, 140), dtype)
    codes.view(np.uint8)[2, 129, 5] = code
    found = {"a": codes, "a_scale_inv": np.ones((3, 2, 2), np.float32)}
    report = run_json(capsys, "validate", cf.write(tmp_path / "m.safetensors", found), code=1)
    (finding,) = report["findings"]
    assert (finding["blocks"], finding["bad"], finding["first"]) == (12, 1, [10])


def test_validate_says_what_it_cannot_check(tmp_path, capsys):
    found = {"a.weight": np.ones((2, 4), cf.E4M3), "a.weight_scale_inv": np.ones(3, np.float32)}
    path = cf.write(tmp_path / "m.safetensors", found)
    assert main(["validate", str(path)]) == 0
    assert "not checked: tensor 'a.weight': 'a.weight_scale_inv' is F32 (3,)" in capsys.readouterr().err


def test_validate_goes_on_behind_a_tensor_that_cannot_be_given(tmp_path, capsys):
    found, name, *_ = cf.checkpoint("bitsandbytes")
    found |= {"a.weight.quant_map": np.zeros(16, np.float32), "b": np.array([np.nan], np.float32)}
    report = run_json(capsys, "validate", cf.write(tmp_path / "m.safetensors", found), code=1)
    assert (report["tensors"], report["not_checked"]) == (1, [name])
    assert [finding["name"] for finding in report["findings"]] == ["b"]


@pytest.mark.parametrize("kind", ["deepseek_v3", "modelopt_nvfp4", "bitsandbytes_nested"])
def test_compare_with_the_numbers(tmp_path, capsys, kind):
    path, name, fmt, values = write(tmp_path, kind)
    dense = cf.write(tmp_path / "dense.safetensors", {name: values})
    (row,) = run_json(capsys, "compare", dense, path, "--names", name)["tensors"]
    assert (row["format_a"], row["format_b"], row["relative_error"]) == ("f32", fmt, 0)
    (row,) = [row for row in cbquant.compare(dense, path) if row.name == name]
    assert row.relative_error == 0


def test_compare_says_what_stands_against_it(tmp_path, capsys):
    found = {"a.weight": np.ones((2, 4), cf.E4M3), "a.weight_scale_inv": np.ones(3, np.float32)}
    path = cf.write(tmp_path / "m.safetensors", found)
    rows = run_json(capsys, "compare", path, path)["tensors"]
    assert "tensor 'a.weight': 'a.weight_scale_inv' is F32 (3,)" in rows[0]["note"]


def test_quantize_takes_tiles_and_unscaled_fp8(tmp_path, capsys):
    pytest.importorskip("gguf")
    codes, lone = cf._fp8(np.random.default_rng(0), (40, 64)), np.ones((4, 32), cf.E4M3)
    scales = np.array([[1, 2], [3, 4]], np.float32)
    found = {"a.weight": codes, "a.weight_scale_inv": scales, "b.weight": lone}
    path, dst = cf.write(tmp_path / "m.safetensors", found), tmp_path / "new.gguf"
    assert "'a.weight' is unknown_F8_E4M3" in run_error(capsys, "quantize", path, dst, "--type", "f32")
    words = ("--type", "f32", "--tile", "32,32", "--unscaled-fp8")
    report = run_json(capsys, "quantize", path, dst, *words)
    assert [tensor["source"] for tensor in report["tensors"]] == ["fp8_e4m3", "fp8_e4m3"]
    assert report["told"] == []
    file = cbquant.open(dst)
    np.testing.assert_array_equal(file["a.weight"], codes.astype(np.float32) * cf.spread(scales, (40, 64), 32, 32))
    np.testing.assert_array_equal(file["b.weight"], lone.astype(np.float32))


def test_a_tile_of_all_columns(tmp_path, capsys):
    found = {"a.weight": np.ones((4, 32), cf.E4M3), "a.weight_scale_inv": np.arange(2, dtype=np.float32).reshape(2, 1)}
    path = cf.write(tmp_path / "m.safetensors", found)
    words = ("inspect", path, "--tile", "2,all")
    assert [tensor["format"] for tensor in run_json(capsys, *words)["tensors"]] == ["fp8_e4m3"]
    for wrong in ("2", "2,2,2", "0,2", "a,b", ""):
        assert "--tile" in run_error(capsys, "inspect", path, "--tile", wrong)
