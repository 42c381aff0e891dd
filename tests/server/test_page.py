"""The page at `/`, in a browser, as a person uses it."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, find_browser
from PIL import Image
from served import Served, until, write_models
from test_controlnet import write_control

from graphc_server.service import Setup

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PAGE = Path(__file__).parents[2] / "graphc_server" / "page"
SMALL = {"steps": 2, "width": 64, "height": 64}
WIDTHS = (320, 800, 1440)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = write_models(tmp_path_factory.mktemp("webui"), "one", "two")
    for kind, names in (("Lora", ("round shapes", "painted")), ("embeddings", ("kindly",))):
        (folder / "models" / kind).mkdir()
        for name in names:
            (folder / "models" / kind / f"{name}.safetensors").write_bytes(b"no tensors")
    (folder / "models" / "ControlNet").mkdir()
    write_control(folder / "models" / "ControlNet" / "edges.safetensors")
    return folder


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    with Served(Setup((models,), tmp_path_factory.mktemp("data"), threads=1)) as running:
        yield running


@pytest.fixture(scope="module")
def opened():
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    with Browser(program, 1440, 900) as browser:
        yield browser


@pytest.fixture
def browser(opened, served):
    """The page as somebody sees it who comes for the first time, with a small picture chosen."""
    opened.resize(1440, 900)
    opened.visit(f"{served.url}/page/icon.svg")
    kept = json.dumps({"chosen": {**SMALL, "seed": 1}})
    opened.run(f"localStorage.clear(); localStorage.setItem('graphc', {json.dumps(kept)})")
    load(opened, served)
    yield opened
    assert [each for each in opened.complaints() if '"source": "network"' not in each] == []  # answers of 4xx are shown
    until(lambda: served.get("/graphc/v1/jobs")["count"] == 0)


def load(browser, served, path="/"):
    browser.visit(served.url + path)
    browser.until("document.querySelector('#prompt')")


def write(browser, selector, text):
    """Put a text in the place of what a field has."""
    browser.click(selector)
    browser.run("document.activeElement.select()")
    browser.type(text)


def paint(browser, served, prompt="a red circle"):
    """A picture, which the page shows; how it is listed in the gallery."""
    before = newest(served)
    write(browser, "#prompt", prompt)
    browser.press("Enter", ctrl=True)
    return shown_finished(browser, served, prompt, before)


def shown_finished(browser, served, prompt, before):
    """The same of what was asked for already."""
    picture = finished(served, prompt, before)
    browser.until(f"document.querySelector('#canvas img')?.src.endsWith({json.dumps(picture['url'])})")
    return picture


def newest(served):
    """The last picture of the gallery; None if there is none."""
    return next(iter(served.get("/graphc/v1/pictures", params={"limit": 1})["pictures"]), None)


def finished(served, prompt, before=None):
    """The last picture, as soon as it is another than before, and of this prompt."""
    return until(lambda: (found := newest(served)) and found != before and found["prompt"] == prompt and found)


def settings_of(served, picture):
    return served.get(picture["address"])["settings"]


def pixels(served, picture):
    return np.asarray(Image.open(io.BytesIO(served.client.get(picture["url"]).content)).convert("RGB")).astype(int)


def drop_picture(browser, served, picture, tmp_path):
    path = tmp_path / "dropped.png"
    path.write_bytes(served.client.get(picture["url"]).content)
    browser.drop("#stage", path)


def go(browser, view):
    browser.click(f"nav a[data-view={view}]")
    browser.until(f"!document.getElementById('{view}').hidden")


def open_group(browser, name):
    if not browser.run(f"document.querySelector('[data-group={name}]').open"):
        browser.click(f"[data-group={name}] summary")


def shown(browser):
    return browser.run("document.querySelector('#canvas img')?.src ?? ''")


def test_a_picture_is_painted_with_progress_and_shown(browser, served):
    browser.run("window.told = []; new MutationObserver(() => told.push(document.getElementById('step').textContent))"
                ".observe(document.getElementById('step'), { childList: true, subtree: true })")  # fmt: skip
    browser.run("window.previews = new Set(); new MutationObserver(() => { const seen = document.querySelector('img.preview');"
                " if (seen) previews.add(seen.src); }).observe(document.getElementById('canvas'),"
                " { childList: true, subtree: true, attributes: true })")  # fmt: skip
    open_group(browser, "sampling")
    write(browser, "#p-steps", "30")
    picture = paint(browser, served, "a red circle left of a blue square")
    browser.until("document.getElementById('progress').hidden")
    assert any("of 30" in text for text in browser.run("told"))
    assert browser.run("[...previews].every((each) => each.startsWith('data:image/webp'))")
    assert browser.run("previews.size") >= 1
    assert settings_of(served, picture)["steps"] == 30
    assert browser.run("document.querySelector('#canvas img').alt") == "a red circle left of a blue square"
    assert browser.run("document.querySelector('#recent button').getAttribute('aria-pressed')") == "true"


def test_a_picture_is_cancelled_or_finished_early(browser, served):
    open_group(browser, "sampling")
    write(browser, "#p-steps", "150")
    write(browser, "#prompt", "cancelled")
    browser.click("#paint")
    browser.until("document.getElementById('step').textContent.startsWith('Step')")
    browser.click("#cancel")
    browser.until("document.getElementById('progress').hidden")
    write(browser, "#prompt", "finished early")
    browser.click("#paint")
    browser.until("document.getElementById('step').textContent.startsWith('Step')")
    browser.click("#finish")
    assert settings_of(served, finished(served, "finished early"))["steps"] == 150
    assert served.get("/graphc/v1/pictures", params={"search": "cancelled"})["pictures"] == []


def test_tokens_are_counted_and_names_completed(browser):
    write(browser, "#prompt", "a red circle")
    browser.until("document.querySelector('.prompt .tokens').textContent === '3 / 75 tokens'")
    browser.type(" <lora:rou")
    browser.until("document.querySelector('.names:not([hidden])')")
    assert browser.run("document.getElementById('prompt').getAttribute('aria-expanded')") == "true"
    browser.press("Enter")
    assert browser.run("document.getElementById('prompt').value") == "a red circle <lora:round shapes:1>"
    browser.type(" kin")
    browser.until("document.querySelector('.names:not([hidden])')")
    browser.press("Tab")
    assert browser.run("document.getElementById('prompt').value").endswith("> kindly")
    browser.type(" <")
    browser.until("document.querySelectorAll('.names:not([hidden]) li').length === 2")
    browser.press("ArrowDown")
    assert browser.run("document.querySelector('.names [aria-selected=true]').textContent").startswith("round")
    browser.press("Escape")
    assert browser.run("document.querySelector('.names:not([hidden])')") is None


def test_loras_have_weights(browser):
    write(browser, "#prompt", "a circle")
    browser.click(".networks > button")
    browser.type("pain")
    browser.click(".choices button")
    assert browser.run("document.getElementById('prompt').value") == "a circle <lora:painted:1>"
    slider = ".loras input"
    browser.run(f"document.querySelector('{slider}').focus()")
    for _ in range(4):
        browser.press("ArrowLeft")
    assert browser.run("document.getElementById('prompt').value") == "a circle <lora:painted:0.8>"
    browser.click(".loras button")
    assert browser.run("document.getElementById('prompt').value") == "a circle"
    assert browser.run("document.querySelectorAll('.loras li').length") == 0


def test_a_picture_is_shown_that_is_done_before_its_job_is_known(browser, served):
    browser.run("""(() => { const fetched = window.fetch;
        window.fetch = async (path, options) => { const answer = await fetched(path, options);
            if (options?.method === 'POST' && path === '/graphc/v1/jobs') await new Promise((done) => setTimeout(done, 4000));
            return answer; }; })()""")
    paint(browser, served, "sooner than its answer")
    browser.until("document.getElementById('progress').hidden")


def test_a_picture_dropped_has_its_settings_again(browser, served, tmp_path):
    first = paint(browser, served, "what was dropped")
    write(browser, "#prompt", "something else")
    open_group(browser, "seed")
    write(browser, "#p-seed", "99")
    drop_picture(browser, served, first, tmp_path)
    browser.until("document.getElementById('prompt').value === 'what was dropped'")
    assert browser.run("document.getElementById('p-seed').value") == "1"
    browser.click("#paint")
    second = shown_finished(browser, served, "what was dropped", first)
    assert (pixels(served, first) == pixels(served, second)).all()
    (tmp_path / "plain.png").write_bytes((PAGE / "icon.svg").read_bytes())
    browser.drop("#stage", tmp_path / "plain.png")
    assert browser.until("document.getElementById('faults').innerText").startswith("picture: Invalid encoded image")


def test_a_mask_is_painted_and_taken_back(browser, served, tmp_path):
    first = paint(browser, served, "before the mask")
    browser.click("#actions button:nth-child(3)")
    browser.until("document.querySelector('.editor canvas')")
    x, y = browser.place(".editor canvas")
    masked = """(() => { const c = document.querySelector('.editor canvas');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const sums = [0, 0];
        for (let i = 0; i < d.length / 4; i++) if (d[4 * i + 3] > 128) sums[Number(i % c.width >= c.width / 2)]++;
        return sums; })()"""
    browser.drag((x - 150, y - 200), (x - 150, y), (x - 150, y + 200))
    left, right = browser.run(masked)
    assert left > 300
    assert right == 0
    browser.drag((x + 150, y), (x + 160, y + 10))
    assert browser.run(masked)[1] > 20
    browser.press("z", ctrl=True)
    assert browser.run(masked) == [left, 0]
    browser.press("]")
    browser.press(" ")
    assert browser.run(masked) != [left, 0]
    browser.press("z", ctrl=True)
    assert browser.run(masked) == [left, 0]
    open_group(browser, "picture")
    write(browser, "[data-name=denoising_strength] input", "1")
    picture = paint(browser, served, "under the mask")
    assert settings_of(served, picture)["mask_blur"] == 4
    one, other = pixels(served, first), pixels(served, picture)
    assert np.abs(one[:, 48:] - other[:, 48:]).max() <= 2
    assert np.abs(one[:, :24] - other[:, :24]).max() > 20


def test_edges_are_dragged_outwards(browser, served):
    paint(browser, served, "before it grew")
    browser.click("#actions button:nth-child(3)")
    browser.until("document.querySelector('.editor canvas')")
    x, y = browser.place(".handle[data-side=right]")
    browser.drag((x, y), (x + 60, y), (x + 200, y))
    added = browser.run("Number(document.querySelector('.handle[data-side=right]').getAttribute('aria-valuenow'))")
    assert added >= 16
    assert added % 8 == 0
    browser.run("document.querySelector('.handle[data-side=top]').focus()")
    browser.press("ArrowUp")
    browser.press("ArrowUp")
    browser.press("ArrowDown")
    assert browser.run("document.querySelector('.editor .size').textContent") == f"{64 + added} × 72"
    picture = paint(browser, served, "after it grew")
    assert pixels(served, picture).shape == (72, 64 + added, 3)


def test_two_pictures_are_compared(browser, served):
    paint(browser, served, "the first of two")
    open_group(browser, "seed")
    write(browser, "#p-seed", "5")
    paint(browser, served, "the second of two")
    go(browser, "gallery")
    browser.until("document.querySelectorAll('#pictures li').length >= 2")
    for place in (1, 2):
        browser.click(f"#pictures li:nth-child({place}) .mark input")
    browser.click("#compare")
    browser.until("!document.getElementById('create').hidden && document.querySelector('.compare input')")
    before = browser.run("document.querySelector('.compare .above').style.clipPath")
    browser.run("document.querySelector('.compare input').focus()")
    for _ in range(10):
        browser.press("ArrowRight")
    assert browser.run("document.querySelector('.compare .above').style.clipPath") != before
    assert browser.run("document.querySelector('.compare .edge').style.left") == "55%"
    browser.click("#actions button")
    browser.until("document.querySelector('#canvas img.picture')")


def test_the_gallery_is_searched_used_again_and_cleared(browser, served):
    kept = paint(browser, served, "an orange triangle")
    paint(browser, served, "a green star")
    go(browser, "gallery")
    write(browser, "#search", "triangle orange")
    browser.until("document.querySelectorAll('#pictures li').length === 1")
    browser.click("#pictures .tile")
    browser.until("document.getElementById('detail').open")
    text = browser.run("document.getElementById('detail').innerText")
    assert "an orange triangle" in text
    assert "Euler a" in text
    browser.press("Escape")
    write(browser, "#search", "")
    browser.until("document.querySelectorAll('#pictures li').length >= 2")
    browser.run("document.querySelector('#pictures .tile').focus()")
    browser.press("ArrowRight")
    assert browser.run("document.activeElement.closest('li') === document.querySelector('#pictures li:nth-child(2)')")
    browser.press("Enter")
    browser.until("document.getElementById('detail').open")
    browser.click("#detail .main")
    browser.until(
        "document.getElementById('prompt').value === 'an orange triangle' && !document.getElementById('create').hidden"
    )
    go(browser, "gallery")
    write(browser, "#search", "triangle orange")
    browser.until("document.querySelectorAll('#pictures li').length === 1")
    browser.click("#pictures .tile")
    browser.until("document.getElementById('detail').open")
    for _ in range(2):
        browser.click("#detail .fault")
    browser.until("document.querySelectorAll('#pictures li').length === 0")
    assert served.client.get(kept["address"]).status_code == 404


def test_the_queue_is_shown_and_changed(browser, served):
    long = served.post("/graphc/v1/jobs", {"settings": {**SMALL, "steps": 500, "batches": 20, "prompt": "long"}})["id"]
    until(lambda: served.service.painter.turn)
    for prompt in ("one", "two", "three"):
        write(browser, "#prompt", prompt)
        browser.press("Enter", ctrl=True)
    browser.until("document.getElementById('waiting').textContent === '4'")
    go(browser, "queue")
    names = "[...document.querySelectorAll('#jobs p')].map((each) => each.textContent)"
    browser.until(f"{names}.length === 4")
    assert browser.run(names) == ["long", "one", "two", "three"]
    browser.click("#jobs li:nth-child(4) [aria-label^=Sooner]")
    browser.until(f"{names}.join() === 'long,one,three,two'")
    browser.click("#jobs li:nth-child(2) [aria-label^=Cancel]")
    browser.until(f"{names}.join() === 'long,three,two'")
    served.client.delete(f"/graphc/v1/jobs/{long}").raise_for_status()
    browser.until("!document.getElementById('idle').hidden")
    assert [each["prompt"] for each in served.get("/graphc/v1/pictures", params={"limit": 2})["pictures"]] == [
        "two",
        "three",
    ]


def test_a_plot_fills_a_table(browser, served):
    write(browser, "#prompt", "a plot")
    open_group(browser, "plot")
    browser.run("document.querySelector('[data-group=plot]').scrollIntoView()")
    for axis, name, values in (("x", "Seed", "1-3"), ("y", "CFG Scale", "2, 5")):
        browser.run(f"""(() => {{ const select = document.getElementById('axis-{axis}'); select.value = '{name}';
            select.dispatchEvent(new Event('change')); }})()""")
        write(browser, f"#axis-{axis} + input", values)
    assert browser.run("document.getElementById('paint').textContent") == "Paint the plot"
    browser.click("#paint")
    browser.until("document.querySelectorAll('.plot td .thumb').length === 6")
    assert browser.run("[...document.querySelectorAll('.plot th')].map((each) => each.textContent)") == [
        "Seed: 1", "Seed: 2", "Seed: 3", "CFG Scale: 2.0", "CFG Scale: 5.0",
    ]  # fmt: skip
    write(browser, "#axis-x + input", "1-")
    browser.click("#paint")
    assert "'1-' is not a number" in browser.until("document.getElementById('faults').innerText")


def test_parameters_are_kept_and_those_that_count_are_shown(browser, served):
    assert browser.run("document.querySelector('[data-name=hires_denoising_strength]').hidden")
    open_group(browser, "again")
    write(browser, "#p-hires_scale", "1.5")
    assert not browser.run("document.querySelector('[data-name=hires_denoising_strength]').hidden")
    assert browser.run("document.querySelector('[data-group=noise]').hidden")
    browser.click("#everything")
    assert not browser.run("document.querySelector('[data-group=noise]').hidden")
    open_group(browser, "sampling")
    churn = "document.querySelector('[data-name=s_churn]').hidden"
    assert browser.run(churn)
    browser.run(
        "(() => { const s = document.getElementById('p-sampler'); s.value = 'Euler'; s.dispatchEvent(new Event('change')); })()"
    )
    assert not browser.run(churn)
    load(browser, served)
    assert browser.run("document.getElementById('p-hires_scale').value") == "1.5"
    picture = paint(browser, served, "made larger")
    assert pixels(served, picture).shape == (96, 96, 3)


def test_a_controlnet_is_chosen(browser, served, tmp_path):
    first = paint(browser, served, "without a ControlNet")
    path = tmp_path / "followed.png"
    path.write_bytes(served.client.get(first["url"]).content)
    open_group(browser, "control")
    browser.click("[data-name=controls] > button")
    browser.call("DOM.enable")
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    field = browser.call("DOM.querySelector", nodeId=root, selector=".control input[type=file]")["nodeId"]
    browser.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])
    browser.until("document.querySelector('.control img').src.startsWith('data:image/png')")
    picture = paint(browser, served, "with a ControlNet")
    assert "Model: edges" in served.get(picture["address"])["labels"]["ControlNet 0"]
    assert browser.run("document.getElementById('says-control').textContent") == "edges"
    browser.click(".control > button")
    assert "ControlNet 0" not in served.get(paint(browser, served, "without one again")["address"])["labels"]


def test_what_was_asked_for_before_a_reload_is_followed(browser, served):
    open_group(browser, "sampling")
    write(browser, "#p-steps", "150")
    write(browser, "#prompt", "before the reload")
    browser.click("#paint")
    browser.until("document.getElementById('step').textContent.startsWith('Step')")
    load(browser, served)
    browser.until("document.getElementById('step').textContent.startsWith('Step')")
    browser.click("#finish")
    browser.until("document.querySelector('#canvas img')?.alt === 'before the reload'")
    browser.until("document.getElementById('progress').hidden")


def test_models_are_switched_and_errors_are_said(browser, served):
    assert browser.run("[...document.getElementById('model').options].map((each) => each.value)") == ["one", "two"]
    browser.run(
        "(() => { const s = document.getElementById('model'); s.value = 'two'; s.dispatchEvent(new Event('change')); })()"
    )
    assert paint(browser, served, "by the other")["model"] == "two"
    open_group(browser, "size")
    write(browser, "#p-width", "63")
    browser.click("#paint")
    assert "width: 63" in browser.until("document.getElementById('faults').innerText")
    assert browser.run("document.getElementById('faults').getAttribute('role')") == "alert"


def test_nothing_comes_from_elsewhere_and_no_other_script_runs(browser, served):
    load(browser, served)
    assert all(url.startswith((served.url, "data:", "about:", "blob:")) for url in browser.requests())
    evil = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    picture = paint(browser, served, evil)
    go(browser, "gallery")
    browser.until("document.querySelector('#pictures .tile')")
    browser.click("#pictures .tile")
    browser.until("document.getElementById('detail').open")
    assert browser.run("document.querySelector('.said').textContent") == evil
    assert browser.run("document.title") == "Gallery · graphc"
    answer = served.client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert picture
    for path in PAGE.iterdir():
        text = path.read_text()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), path
        assert "https://" not in text, path
        assert "innerHTML" not in text.replace("outerHTML", ""), path
        assert served.client.get(f"/page/{path.name}").headers["x-content-type-options"] == "nosniff"


CONTRAST = """(() => {
    const channels = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
        .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
        .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const found = channels(getComputedStyle(each).backgroundColor);
            if ((found[3] ?? 1) > 0.9) return found;
        }
        return [255, 255, 255];
    };
    const low = [];
    for (const element of document.querySelectorAll('body *')) {
        if (!element.checkVisibility({ checkVisibilityCSS: true }) || element.closest('.unseen, :disabled, .skip')) continue;
        if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
        const [one, other] = [channels(getComputedStyle(element).color), behind(element)].map(light).sort((a, b) => b - a);
        if ((one + 0.05) / (other + 0.05) < 4.5) low.push([element.outerHTML.slice(0, 120), (one + 0.05) / (other + 0.05)]);
    }
    return low;
})()"""
VIEWS = ("create", "gallery", "queue")
NAMED = {
    "button",
    "link",
    "textbox",
    "combobox",
    "checkbox",
    "switch",
    "slider",
    "spinbutton",
    "searchbox",
    "img",
    "image",
    "dialog",
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_laid_out_named_and_readable_at_every_width(browser, served, tmp_path, dark):
    paint(
        browser,
        served,
        "a picture for the gallery, with a prompt that is quite long so that it has to be cut somewhere",
    )
    browser.click("#everything")
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for width in WIDTHS:
        browser.resize(width, 900, dark=dark)
        for view in VIEWS:
            go(browser, view)
            browser.drawn()
            assert browser.run("document.documentElement.scrollWidth") <= width, (width, view)
            assert browser.run(CONTRAST) == [], (width, view, dark)
            browser.picture(tmp_path / f"{view}-{width}.png")
            assert len(set(Image.open(tmp_path / f"{view}-{width}.png").convert("L").getdata())) > 20
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    for node in tree:
        if node.get("role", {}).get("value") in NAMED and not node["ignored"]:
            assert node.get("name", {}).get("value", "").strip(), node


def test_it_is_used_by_keys_alone(browser, served):
    """From the beginning, in the order in which things are seen; what has the focus is seen to have it."""
    seen = []
    for _ in range(16):
        browser.press("Tab")
        seen.append(
            browser.run("""(() => { const now = document.activeElement;
            const style = getComputedStyle(now);
            const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
            return [now.id || now.className || now.textContent.trim(), outlined]; })()""")
        )
    names = [name for name, _ in seen]
    assert all(outlined for _, outlined in seen), seen
    assert names[0] == "skip"
    order = ["model", "theme", "prompt", "p-negative_prompt"]
    assert [name for name in names if name in order] == order
    load(browser, served)
    browser.press("Tab")
    browser.press("Enter")
    browser.type("by keys alone")
    browser.press("Enter", ctrl=True)
    assert finished(served, "by keys alone")
    browser.until("document.getElementById('spoken').textContent === 'The picture is finished'")
