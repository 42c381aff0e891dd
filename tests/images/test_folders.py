"""Folders of models as the applications lay them out."""

import pytest

from graphc_images.errors import ModelError
from graphc_images.folders import ModelFolders

LAYOUTS = {
    "A1111": {
        "models/Stable-diffusion/anime/Dream.safetensors": ("checkpoint", "anime/Dream"),
        "models/Stable-diffusion/v1-5.ckpt": ("checkpoint", "v1-5"),
        "models/VAE/ft-mse.pt": ("vae", "ft-mse"),
        "models/Lora/style.safetensors": ("lora", "style"),
        "models/ESRGAN/4x.pth": ("upscaler", "4x"),
        "models/ControlNet/canny.safetensors": ("controlnet", "canny"),
        "embeddings/easy.pt": ("embedding", "easy"),
    },
    "ComfyUI": {
        "models/checkpoints/sdxl.safetensors": ("checkpoint", "sdxl"),
        "models/diffusion_models/flux.gguf": ("diffusion model", "flux"),
        "models/clip/t5xxl.safetensors": ("text encoder", "t5xxl"),
        "models/text_encoders/clip_l.safetensors": ("text encoder", "clip_l"),
        "models/vae_approx/taesd.pth": ("preview decoder", "taesd"),
        "models/loras/style.safetensors": ("lora", "style"),
    },
    "Easy Diffusion": {
        "stable-diffusion/sd-v1-5.safetensors": ("checkpoint", "sd-v1-5"),
        "lora/more.safetensors": ("lora", "more"),
        "realesrgan/x4.pth": ("upscaler", "x4"),
    },
}


def made(folder, files):
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return ModelFolders(folder)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, tmp_path):
    folders = made(tmp_path, [*LAYOUTS[layout], "models/readme.txt", "outputs/picture.png"])
    found = {str(file.path.relative_to(tmp_path)): (file.kind, file.name) for file in folders.files}
    assert found == LAYOUTS[layout]


def test_a_folder_of_files(tmp_path):
    folders = made(tmp_path, ["a.safetensors", "notes.txt", "deep/b.safetensors"])
    assert [(file.kind, file.name) for file in folders.files] == [("checkpoint", "a")]


@pytest.mark.parametrize("name", ["anime/Dream", "Dream", "dream.safetensors", "ANIME\\Dream.safetensors"])
def test_names(name, tmp_path):
    folders = made(tmp_path, LAYOUTS["A1111"])
    assert folders.find("checkpoint", name) == tmp_path / "models/Stable-diffusion/anime/Dream.safetensors"


def test_a_path_is_a_name(tmp_path):
    folders = made(tmp_path, LAYOUTS["A1111"])
    path = tmp_path / "elsewhere.safetensors"
    path.write_bytes(b"")
    assert folders.find("checkpoint", str(path)) == path


def test_a_model_is_looked_for_among_main_parts_too(tmp_path):
    assert made(tmp_path, LAYOUTS["ComfyUI"]).find("checkpoint", "flux").name == "flux.gguf"


def test_what_is_not_there(tmp_path):
    folders = made(tmp_path, LAYOUTS["A1111"])
    with pytest.raises(ModelError, match="no checkpoint 'v1-6'; there is v1-5"):
        folders.find("checkpoint", "v1-6")
    with pytest.raises(ModelError, match="the folders have none of this kind"):
        folders.find("preprocessor", "depth")
    with pytest.raises(ModelError, match="no such folder"):
        ModelFolders(tmp_path / "nowhere")


def test_names_that_several_have(tmp_path):
    folders = made(tmp_path, ["checkpoints/a/x.safetensors", "checkpoints/b/x.safetensors"])
    with pytest.raises(ModelError, match="any of a/x, b/x"):
        folders.find("checkpoint", "x")


def test_a_file_that_came_later_is_found_when_asked_to_look_again(tmp_path):
    folders = made(tmp_path, ["checkpoints/a.safetensors"])
    assert len(folders.files) == 1
    (tmp_path / "checkpoints/b.safetensors").write_bytes(b"")
    assert len(folders.files) == 1
    folders.refresh()
    assert [file.name for file in folders.files] == ["a", "b"]


def test_links_that_lead_back_end(tmp_path):
    folders = made(tmp_path, ["checkpoints/a.safetensors"])
    (tmp_path / "checkpoints/loop").symlink_to(tmp_path / "checkpoints")
    assert [file.name for file in folders.files] == ["a"]


def test_what_strangers_send_names_no_files_elsewhere(tmp_path):
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(b"")
    folder = tmp_path / "models"
    (folder / "lora").mkdir(parents=True)
    (folder / "lora" / "style.safetensors").write_bytes(b"")
    mine, theirs = ModelFolders(folder), ModelFolders(folder, paths=False)
    assert mine.find("lora", str(outside)) == outside
    assert theirs.find("lora", "style") == mine.find("lora", "style")
    for name in (str(outside), "../../outside", "../outside.safetensors", str(folder / "lora" / "style.safetensors")):
        with pytest.raises(ModelError, match="there is no lora"):
            theirs.find("lora", name)


def test_a_hash_is_known_while_the_file_is_as_it_was(tmp_path, monkeypatch):
    from graphc_images.hashes import kept, known, sha256

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "a.safetensors"
    file.write_bytes(b"content")
    assert known(file) == ""
    assert kept(file) == known(file) == sha256(file)
    file.write_bytes(b"other content")
    assert known(file) == ""
    assert kept(file) == sha256(file)
    assert known(tmp_path / "nothing") == ""
