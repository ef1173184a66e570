"""The report page in a real Chromium: it works, is accessible, and loads nothing."""

from itertools import pairwise

import pytest
from planted import FACTS

pytestmark = pytest.mark.browser

ALL = ["certified", "many", "bare", "short", "hostile", "planted"]
PHONE, SMALLEST = {"width": 360, "height": 740}, {"width": 320, "height": 640}


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_asked_for_and_nothing_complains(visit, pages, name):
    seen = visit(pages[name])
    assert seen.requests == [pages[name].as_uri()]
    assert seen.complaints == []
    assert seen.page.locator("script").count() == 1
    assert seen.page.locator("img").count() == 0


def test_a_script_that_came_in_would_not_run_and_nothing_could_be_sent(visit, pages):
    seen = visit(pages["certified"])
    seen.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x';"
        "document.body.append(i); }"
    )
    seen.page.wait_for_timeout(200)
    assert seen.page.evaluate("() => window.ran") is None
    assert seen.requests == [pages["certified"].as_uri()]


# -- findings --------------------------------------------------------------------------------


def test_every_planted_fact_is_visible(visit, pages):
    page = visit(pages["planted"]).page
    said = " ".join(page.inner_text("body").split())
    assert [fact for fact, words in FACTS.items() if words not in said] == []


PIXELS = """
(canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let [count, sum] = [0, 0];
  for (let i = 0; i < data.length; i += 4) if (data[i + 3]) { count += 1; sum += i * data[i]; }
  return [count, sum];
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_cloud_turns_by_mouse_and_by_keyboard(visit, pages, scheme):
    page = visit(pages["planted"], color_scheme=scheme).page
    cloud = page.locator(".space canvas")
    assert cloud.is_visible()
    assert not page.locator(".space > svg").is_visible()
    seen = [cloud.evaluate(PIXELS)]
    assert seen[0][0] > 2000
    cloud.scroll_into_view_if_needed()
    box = cloud.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 80, middle[1] + 30, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    seen.append(cloud.evaluate(PIXELS))
    cloud.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(100)
    seen.append(cloud.evaluate(PIXELS))
    assert len({tuple(one) for one in seen}) == 3
    page.mouse.move(*middle)
    for step in range(60):  # some point is under the mouse on the way
        page.mouse.move(middle[0] - 90 + 3 * step, middle[1])
        if page.locator(".space .at").text_content():
            break
    assert page.locator(".space .at").text_content().startswith("Pointed at: row ")


def test_the_cloud_is_a_plot_on_paper_and_without_scripts(visit, pages):
    page = visit(pages["planted"]).page
    page.emulate_media(media="print")
    assert page.locator(".space > svg").is_visible()
    assert not page.locator(".space canvas").is_visible()
    page = visit(pages["planted"], java_script_enabled=False).page
    assert page.locator(".space > svg").is_visible()
    assert not page.locator(".space canvas").is_visible()


# -- sorting ---------------------------------------------------------------------------------


def column(page, number):
    return page.locator(f"#table tbody tr > :nth-child({number})").all_text_contents()


def state(page):
    return [head.get_attribute("aria-sort") for head in page.locator("#table thead th").all()]


def test_sorting_by_mouse(visit, pages):
    page = visit(pages["certified"]).page
    assert state(page) == ["ascending", *[None] * 6]
    order = column(page, 1)
    page.get_by_role("button", name="Variance").click()
    assert state(page) == [None, "ascending", *[None] * 5]
    variances = [float(word) for word in column(page, 2)]
    assert variances == sorted(variances)
    assert page.locator("#told").text_content() == "Sorted by Variance, smallest first."
    page.get_by_role("button", name="Variance").click()
    assert state(page)[1] == "descending"
    assert column(page, 1) == order
    assert page.locator("#told").text_content() == "Sorted by Variance, largest first."


def test_sorting_by_keyboard(visit, pages):
    page = visit(pages["certified"]).page
    page.get_by_role("button", name="Component", exact=True).focus()
    page.keyboard.press("Enter")
    assert state(page)[0] == "descending"
    assert column(page, 1) == ["8", "7", "6", "5", "4", "3", "2", "1"]
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Variance"
    page.keyboard.press("Space")
    assert state(page)[:2] == [None, "ascending"]
    assert page.evaluate("() => document.activeElement.textContent") == "Variance"


def test_what_has_no_number_stands_last_either_way(visit, pages):
    page = visit(pages["certified"]).page
    for first in ("7", "7"):
        page.get_by_role("button", name="Cluster").click()
        assert column(page, 1)[:2] == [first, "8"]
        assert column(page, 7)[2:] == ["–"] * 6


def test_sorting_numbers_as_numbers(visit, pages):
    page = visit(pages["many"]).page
    page.get_by_role("button", name="Component", exact=True).click()
    assert column(page, 1)[:3] == ["60", "59", "58"]
    page.get_by_role("button", name="Proven within").click()
    keys = page.eval_on_selector_all(
        "#table tbody tr", "rows => rows.map(row => Number(row.dataset.keys.split(' ')[5]))"
    )
    assert keys == sorted(keys)


def test_the_page_is_whole_without_scripts(visit, pages):
    page = visit(pages["certified"], java_script_enabled=False).page
    assert page.locator("#table tbody tr").count() == 8
    assert page.locator("button").count() == 0
    assert page.locator("#table thead th").first.text_content() == "Component"


def test_the_code_can_be_copied(visit, pages):
    page = visit(pages["certified"]).page
    page.get_by_role("button", name="Copy").first.click()
    page.wait_for_function("() => document.getElementById('told').textContent")
    lines = page.locator("pre code").first.text_content()
    if page.locator("#told").text_content() != "Copied":  # then selected, for the keyboard
        assert page.evaluate("() => getSelection().toString()").strip() == lines.strip()
    assert "load(" in lines


# -- accessibility ---------------------------------------------------------------------------


@pytest.mark.parametrize("viewport", [PHONE, SMALLEST], ids=["360", "320"])
@pytest.mark.parametrize("name", ALL)
def test_a_phone_never_scrolls_sideways(visit, pages, name, viewport):
    page = visit(pages[name], viewport=viewport).page
    width = page.evaluate("() => document.documentElement.scrollWidth")
    assert width == viewport["width"]
    # Wide content is inside a box that scrolls by itself.
    beyond = page.evaluate(
        "() => [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg')"
        "&& e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    )
    assert beyond == []


@pytest.mark.parametrize("name", ["certified", "many"])
def test_the_figures_stay_in_their_boxes(visit, pages, name):
    """At every width: a bound such as 0.000001° is long, and must not wrap."""
    page = visit(pages[name]).page
    assert "0.00000" in page.locator(".figures").text_content() or name == "certified"
    for width in range(320, 1300, 20):
        page.set_viewport_size({"width": width, "height": 740})
        beyond = page.evaluate(
            "() => [...document.querySelectorAll('.figures dd')]"
            ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
        )
        assert beyond == [], width


CONTRAST = """
() => {
  const numbers = (words) => words.match(/[\\d.]+/g).map(Number);
  const turned = ([r, g, b]) => {  // invert(1) hue-rotate(180deg), by the standard's matrix
    [r, g, b] = [255 - r, 255 - g, 255 - b];
    return [-0.574 * r + 1.43 * g + 0.144 * b, 0.426 * r + 0.43 * g + 0.144 * b,
            0.426 * r + 1.43 * g - 0.856 * b].map(v => Math.min(255, Math.max(0, v)));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a] = numbers(getComputedStyle(at).backgroundColor);
      if (a === undefined || a === 1) return [r, g, b];
      if (a !== 0) throw new Error("half transparent: " + at.outerHTML.slice(0, 80));
    }
    return [255, 255, 255];
  };
  const found = [];
  const check = (element, pseudo) => {
    const style = getComputedStyle(element, pseudo);
    const svg = element.closest("figure svg");
    let colour = numbers(svg ? style.fill : style.color).slice(0, 3);
    if (svg && getComputedStyle(svg).filter !== "none") colour = turned(colour);
    const [one, two] = [light(colour), light(ground(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    found.push([ratio, element.outerHTML.slice(0, 100) + (pseudo || "")]);
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (walk.currentNode.textContent.trim() && !element.closest("script, .hidden")) check(element);
  }
  for (const button of document.querySelectorAll("thead button")) check(button, "::after");
  return found;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["certified", "bare", "short", "planted"])
def test_contrast(visit, pages, name, scheme):
    page = visit(pages[name], color_scheme=scheme).page
    found = page.evaluate(CONTRAST)
    assert len(found) > 100
    assert [pair for pair in found if pair[0] < 4.5] == []
    dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 23, 26)") == (scheme == "dark")


@pytest.mark.parametrize("name", ALL)
def test_headings_landmarks_and_words_for_pictures(visit, pages, name):
    page = visit(pages[name]).page
    levels = page.eval_on_selector_all(
        "h1, h2, h3, h4, h5, h6", "all => all.map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert page.locator("html").get_attribute("lang") == "en"
    for landmark in ("main", "nav", "header", "footer"):
        assert page.locator(landmark).count() == 1
    figures = page.locator("figure")
    assert figures.count() >= 3
    for figure in figures.all():
        words = figure.locator("svg[role=img]").get_attribute("aria-label")
        assert len(words) > 20
        assert figure.locator("figcaption").text_content().strip()
    unnamed = page.eval_on_selector_all(
        "svg:not([role=img])", "all => all.filter(s => s.ariaHidden !== 'true').length"
    )
    assert unnamed == 0
    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))
    targets = page.eval_on_selector_all("a", "all => all.map(a => a.hash.slice(1))")
    assert set(targets) <= set(ids)


def test_the_first_stop_skips_to_the_content(visit, pages):
    page = visit(pages["certified"]).page
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    box = page.locator(".skip").bounding_box()
    assert box["y"] >= 0  # and is visible then
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"


def test_boxes_that_scroll_are_reached_by_keyboard(visit, pages):
    page = visit(pages["certified"], viewport=PHONE).page
    page.get_by_role("region", name="Table of components").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.scroll:has(#table)').scrollLeft > 0")


# -- printing --------------------------------------------------------------------------------


def test_print(visit, pages, tmp_path):
    page = visit(pages["many"], color_scheme="dark").page
    page.emulate_media(media="print")
    for gone in ("nav", ".skip", ".copy"):
        assert not page.locator(gone).first.is_visible()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.evaluate("() => getComputedStyle(document.querySelector('figure svg')).filter") == (
        "none"
    )
    # All rows are printed, none is hidden in a box that scrolls.
    hidden = page.eval_on_selector(
        ".scroll:has(#table)", "box => box.scrollHeight - box.clientHeight"
    )
    assert hidden == 0
    box = page.eval_on_selector(".scroll:has(#table)", "box => getComputedStyle(box).overflow")
    assert box == "visible"  # a box that scrolls would cut columns
    head = page.eval_on_selector("thead button", "button => getComputedStyle(button).display")
    assert head == "contents"  # Chromium drops buttons from headings repeated on the next sheet
    page.set_viewport_size({"width": 680, "height": 960})  # A4 less its margins, in CSS pixels
    wide = page.eval_on_selector("#table", "table => table.getBoundingClientRect().right")
    assert wide <= 680
    path = tmp_path / "page.pdf"
    page.pdf(path=path, format="A4")
    assert path.read_bytes().startswith(b"%PDF")
    assert path.stat().st_size > 20_000
