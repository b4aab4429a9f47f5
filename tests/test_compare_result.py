"""What `compare` returns: a table, JSON, a picture."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import cbquant


@pytest.fixture
def result():
    x = np.linspace(1, 2, 64).reshape(2, 32)
    a = {"good": x, "bad<b>": x, "same": x, "zero": 0 * x, "only": x}
    return cbquant.compare(a, {"good": x + 0.01, "bad<b>": x + 1, "same": x, "zero": x})


def test_it_prints_as_a_table(result):
    lines = repr(result).splitlines()
    assert lines[0] == ("b against a: 5 tensors: 1 equal, 3 measured, 1 not; largest relative error inf in 'zero'")
    assert " ".join(lines[1].split()) == "tensor a b RMSE relative error cosine worst block at its error note"
    assert lines[3].split() == ["bad<b>", "f64", "f64", "1", "0.6543", "0.997091", "(0,", "0)", "0.6543"]
    assert lines[6].endswith("only in a")
    html = result._repr_html_()
    assert "bad&lt;b&gt;" in html
    assert html.count("<tr>") == 6
    assert repr(cbquant.compare({}, {})).startswith("b against a: 0 tensors: 0 equal, 0 measured\n")


def test_a_long_table_shows_its_ends():
    many = {f"t{number:03}": np.ones(1) for number in range(100)}
    lines = repr(cbquant.compare(many, many)).splitlines()
    assert len(lines) == 2 + 30 + 1 + 30
    assert lines[32].split() == ["..."] * 9


def test_names_of_a_file_do_no_harm():
    text = repr(cbquant.compare({"two\nlines\x1b[31m": np.ones(1)}, {}))
    assert r"two\nlines\x1b[31m" in text
    assert "\x1b" not in text


def test_orders(result):
    def names(by):
        return [row.name for row in result.ordered(by)]

    assert names("file") == ["good", "bad<b>", "same", "zero", "only"]
    assert names("name") == ["bad<b>", "good", "only", "same", "zero"]
    assert names("error") == ["zero", "bad<b>", "good", "same", "only"]
    assert names("rmse")[-2:] == ["same", "only"]
    assert names("cosine") == ["bad<b>", "good", "same", "zero", "only"]
    assert names("worst") == ["zero", "bad<b>", "good", "same", "only"]
    with pytest.raises(ValueError, match=r"by: expected 'file', 'name'.*, got 'size'"):
        result.ordered("size")


def test_json(result):
    report = json.loads(result.to_json(), parse_constant=pytest.fail)
    assert (report["a"], report["b"], report["block"]) == ("a", "b", 32)
    rows = {row["name"]: row for row in report["tensors"]}
    assert rows["good"]["relative_error"] == result[0].relative_error
    assert rows["good"]["worst_at"] == list(result[0].worst_at)
    assert rows["zero"]["relative_error"] is None
    assert rows["same"]["is_equal"] is True
    assert result.to_dict()["tensors"][0]["shape"] == (2, 32)


def test_plot(result, tmp_path):
    figure = result.plot(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["good  f64 > f64", "bad<b>  f64 > f64"]  # what is equal or infinite cannot be drawn
    assert "3 equal or not compared" in figure.get_suptitle()
    result.plot(tmp_path / "errors.svg")
    assert "<svg" in (tmp_path / "errors.svg").read_text()


def test_plot_of_nothing_and_of_odd_names(tmp_path):
    nothing = cbquant.compare({}, {}).plot()
    assert "no tensor differs" in nothing.axes[0].texts[0].get_text()
    odd = {"$x_{\n": np.ones(2), "Grüße\x1b": np.ones(2)}
    cbquant.compare(odd, {name: 2 * x for name, x in odd.items()}).plot(tmp_path / "odd.png")


def test_plot_names_the_extra(result, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install \"cbquant\[plot\]\""):
        result.plot()
