"""One request becomes several; names of files; hashes and what else headers say."""

import hashlib
import json
import os
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from graphc_images.commands.options import setting_of_text
from graphc_images.errors import SettingError
from graphc_images.hashes import Hashes
from graphc_images.headers import metadata_of
from graphc_images.pictures.names import Facts, file_for, next_number
from graphc_images.prompts.styles import Style
from graphc_images.prompts.wildcards import Wildcards
from graphc_images.requests import drawn, in_matrix, in_styles, lines_of
from graphc_images.settings import LARGEST_SEED, Settings


def test_a_line_counts_before_what_is_given():
    text = 'a\n--prompt b --seed_resize_from_w 64 --seed_resize_from_h 32 --batch_size 2\n--negative_prompt "no no" --lora x:0.5'
    asked = lines_of(text, "p.txt", {"prompt": "given", "steps": 5}, setting_of_text)
    assert [each.prompt for each in asked] == ["a", "b", "given"]
    assert asked[1].seed_resize_from == (64, 32)
    assert (asked[1].batch_size, asked[1].steps) == (2, 5)
    assert (asked[2].negative_prompt, asked[2].loras) == ("no no", {"x": 0.5})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.txt: there are no prompts"),
        ("a\n--steps 0", "p.txt: line 2: steps: 0"),
        ("\n--steps", "p.txt: line 2: --steps has no value"),
        ("--only_masked maybe", "p.txt: line 1: --only_masked: 'maybe' is no switch"),
        ("--tilin 1", "p.txt: line 1: there is no option --tilin"),
    ],
)
def test_a_wrong_line_is_named(text, message):
    with pytest.raises(SettingError) as error:
        lines_of(text, "p.txt", {}, setting_of_text)
    assert message in str(error.value)


def test_a_matrix_has_one_seed():
    asked = in_matrix(Settings("a|b|c"))
    assert [each.prompt for each in asked] == ["a", "a, b", "a, c", "a, b, c"]
    assert len({each.seed for each in asked}) == 1
    assert asked[0].seed >= 0


def test_styles_go_around_both_prompts():
    styles = {"x": Style("x", "old {prompt} photo", "blurred"), "y": Style("y", "big", "")}
    found = in_styles(Settings("cat", "bad"), ["x", "y"], styles)
    assert (found.prompt, found.negative_prompt) == ("old cat photo, big", "bad, blurred")


def test_each_picture_is_drawn_by_its_own_seed(tmp_path):
    (tmp_path / "animal.txt").write_text("cat\ndog\nbird\n")
    asked = Settings("a {big|small|tiny|old} __animal__", "{x|y}", seed=LARGEST_SEED - 1, batches=2, batch_size=2)
    found = drawn(asked, Wildcards(None, {"animal": tmp_path / "animal.txt"}))
    assert [each.seed for each in found] == [LARGEST_SEED - 1, LARGEST_SEED, 0, 1]
    assert {each.batches * each.batch_size for each in found} == {1}
    assert len({each.prompt for each in found}) > 1
    assert found == drawn(asked, Wildcards(None, {"animal": tmp_path / "animal.txt"}))


FACTS = Facts(
    Settings("a/b: (cat)\nnice", "bad", 64, 32, steps=7, sampler="DPM++ 2M", scheduler="Karras", cfg_scale=3.5, seed=5),
    "some model", "0123456789", "vae", 2, datetime(2024, 5, 6, 7, 8, 9),
)  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("[seed]-[steps]-[cfg].png", "5-7-3.5.png"),
        ("[prompt].png", "a_b__(cat)_nice.png"),
        ("[prompt_words].png", "a b cat nice.png"),
        ("[sampler_scheduler] [width]x[height].png", "DPM++ 2M Karras 64x32.png"),
        ("[date]/[datetime<%H.%M>].png", "2024-05-06/07.08.png"),
        ("[model_name][model_hash][vae_filename][generation_number].jpg", "some model0123456789vae2.jpg"),
        ("[unknown][1].png", "[unknown][1].png"),
        ("[prompt_hash].png", hashlib.sha256(b"a/b: (cat)\nnice").hexdigest()[:8] + ".png"),
    ],
)
def test_names_of_files(pattern, name):
    assert file_for(pattern, FACTS) == Path(name)


def test_names_are_new(tmp_path):
    assert file_for(str(tmp_path / "[number]-[seed].png"), FACTS).name == "00000-5.png"
    for name in ("00007-1.png", "00003-2.png", "123.png", "x.png"):
        (tmp_path / name).touch()
    assert next_number(tmp_path) == 8
    assert file_for(str(tmp_path / "x.png"), FACTS).name == "x-2.png"
    (tmp_path / "x-2.png").touch()
    assert file_for(str(tmp_path / "x.png"), FACTS).name == "x-3.png"


def test_a_name_cannot_leave_its_folder():
    facts = Facts(Settings("../../etc/passwd", seed=1), model="../..")
    assert file_for("o/[prompt][model_name].png", facts).parts == ("o", ".._.._etc_passwd.._.png")


@pytest.fixture
def lora(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "style.safetensors"
    save_file({"a": np.arange(4, dtype=np.float32)}, path, {"ss_output_name": "style"})
    return path


def test_a_hash_is_kept_until_the_file_changes(tmp_path, monkeypatch, lora):
    from graphc_images import hashes

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    expected = hashlib.sha256(lora.read_bytes()).hexdigest()
    assert Hashes().of_model(lora) == expected[:10]
    count, compute = [], hashes.sha256
    monkeypatch.setattr(hashes, "sha256", lambda *given, **more: count.append(given) or compute(*given, **more))
    assert Hashes().of_model(lora) == expected[:10]
    assert not count
    lora.write_bytes(lora.read_bytes() + b"1234")
    os.utime(lora, ns=(1, 1))
    assert Hashes().of_model(lora) == hashlib.sha256(lora.read_bytes()).hexdigest()[:10]
    assert len(count) == 1
    for kept in (tmp_path / "cache" / "graphc" / "hashes").iterdir():
        kept.write_text("[]")
    assert Hashes().of_model(lora) == hashlib.sha256(lora.read_bytes()).hexdigest()[:10]


def test_a_loras_hash_is_that_of_its_numbers(lora, tmp_path):
    from safetensors.numpy import save_file

    numbers = np.arange(4, dtype=np.float32)
    assert Hashes().of_lora(lora) == hashlib.sha256(numbers.tobytes()).hexdigest()[:12]
    save_file({"a": numbers}, tmp_path / "other.safetensors", {"ss_output_name": "another name"})
    assert Hashes().of_lora(tmp_path / "other.safetensors") == Hashes().of_lora(lora)
    save_file({"a": numbers}, tmp_path / "said.safetensors", {"sshs_model_hash": "ab" * 32})
    assert Hashes().of_lora(tmp_path / "said.safetensors") == "ab" * 6


def test_what_is_not_there_has_no_hash(tmp_path, caplog):
    assert Hashes().of_model(tmp_path / "none") == ""
    assert Hashes().of_model(tmp_path) == ""
    assert "it has no hash" in caplog.text


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", json.dumps([]).encode()])
def test_damaged_headers_say_nothing(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    assert metadata_of(path) == {}
    assert len(Hashes().of_lora(path)) == 12
