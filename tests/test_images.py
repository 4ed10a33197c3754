"""Images as users give them: what is read, what is refused, and marks that no text can forge."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagrl.data import read_tasks
from dagrl.environments.protocol import Seats, read_reset, read_step
from dagrl.errors import DataError, UserCodeError
from dagrl.images import content_text, mark, marks, of_text, open_image, pieces, read_image, shown, to_text
from dagrl.types import Task

PIXELS = np.arange(3 * 4 * 6, dtype=np.uint8).reshape(4, 6, 3)


def png(seed: int = 0) -> bytes:
    content = BytesIO()
    PIL.Image.fromarray(PIXELS + seed).save(content, format="PNG")
    return content.getvalue()


@pytest.mark.parametrize(
    "raw", [PIXELS, PIL.Image.fromarray(PIXELS), png(), "data:image/png;base64," + base64.b64encode(png()).decode()]
)
def test_every_form_of_an_image_gives_the_same_pixels(raw):
    image = read_image(raw)
    assert (image.width, image.height) == (6, 4)
    np.testing.assert_array_equal(np.asarray(open_image(image)), PIXELS)
    assert of_text(to_text(image)) == image


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"GIF89a", "cannot be decoded as PNG or JPEG"),
        (png()[:-30], "cannot be decoded as PNG or JPEG"),
        (PIXELS.astype(np.float32), "an array of float32 and shape"),
        (PIXELS[..., :2], "is no image"),
        (PIXELS[:0], "is no image"),
        (7, "a int is no image"),
        ("data:image/png;base64,???", "is not base64"),
    ],
)
def test_what_is_no_image_is_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        read_image(raw)


def test_a_text_that_looks_like_a_mark_is_none():
    image = read_image(png())
    forged = content_text(f"see {mark(image)}", {})
    assert marks(forged) == [] and forged == shown(mark(image)).join(["see ", ""])
    assert pieces(f"a{mark(image)}b") == ["a", image.handle, "b"]
    assert pieces(forged) == [forged]


def test_an_environment_may_show_images_wherever_it_may_say_a_text():
    seats, parts = Seats(actors=(0, 1)), [{"type": "text", "text": "see "}, {"type": "image", "image": png(1)}]
    one, other = read_image(png()), read_image(png(1))
    assert read_reset(png(), seats).texts == {0: mark(one), 1: mark(one)}
    answer = read_step((parts, 1.0, False), seats)
    assert answer.seat_texts == (f"see {mark(other)}",) * 2 and answer.images == (other,)
    answer = read_step(([parts, png()], 1.0, False), seats)
    assert answer.seat_texts == (f"see {mark(other)}", mark(one)) and answer.images == (other, one)
    assert read_step(({1: PIXELS}, 1.0, False), seats).texts == {1: mark(read_image(PIXELS))}


@pytest.mark.parametrize(
    "shown_so",
    [
        b"not an image",
        [{"type": "image"}],
        [{"type": "video", "video": "x"}],
        PIXELS.astype(np.int64),
        [{"type": "text"}],
    ],
)
def test_what_an_environment_cannot_show_is_its_fault(shown_so):
    with pytest.raises(UserCodeError, match="observation that cannot be shown") as caught:
        read_step((shown_so, 1.0, False), Seats(actors=(0,)))
    assert caught.value.kind == "bad_return"


def tasks(folder: Path, *rows: dict[str, object]) -> list[Task]:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return read_tasks(["rows.jsonl"], base=folder, columns={}, split_name="train")


def test_parts_take_the_images_of_the_row_in_order(tmp_path):
    (tmp_path / "one.png").write_bytes(png())
    uri = "data:image/png;base64," + base64.b64encode(png(1)).decode()
    content = [{"type": "image"}, {"type": "text", "text": " and "}, {"type": "image"}]
    (task,) = tasks(tmp_path, {"prompt": [{"role": "user", "content": content}], "images": ["one.png", uri]})
    one, other = read_image(png()), read_image(png(1))
    assert task.prompt == [{"role": "user", "content": f"{mark(one)} and {mark(other)}"}]
    assert task.images == (one, other)


def test_without_places_images_stand_before_the_first_user_message(tmp_path):
    table = pa.table({"prompt": ["What?"], "images": [[{"bytes": png(), "path": None}]]})
    pq.write_table(table, tmp_path / "rows.parquet")
    (task,) = read_tasks(["rows.parquet"], base=tmp_path, columns={}, split_name="train")
    assert task.prompt == mark(read_image(png())) + "What?"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"images": ["gone.png"]}, "the image gone.png cannot be read"),
        ({"images": ["text.png"]}, "cannot be decoded as PNG or JPEG"),
        ({"images": ["one.png"] * 2, "prompt": [{"role": "user", "content": [{"type": "image"}]}]},
         "the prompt has places for 1 images, the row has 2"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]},
         "the prompt has places for 1 images, the row has 0"),
        ({"prompt": [{"role": "user", "content": [{"type": "audio", "audio": "x"}]}]}, "is neither"),
        ({"prompt": [{"role": "user", "content": ["a text"]}]}, "not a list of parts"),
        ({"prompt": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}, "not a text"),
    ],
)  # fmt: skip
def test_a_row_whose_images_do_not_fit_is_named(tmp_path, row, message):
    (tmp_path / "one.png").write_bytes(png())
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(DataError, match=message) as caught:
        tasks(tmp_path, {"prompt": "What?", **row})
    assert "line 1" in str(caught.value)
