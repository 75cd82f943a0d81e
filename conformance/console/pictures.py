"""Small pictures of the console's pages for the documentation: PNG files with a reduced palette."""

import io

from PIL import Image

WIDTH, HEIGHT = 1000, 620
COLOURS = 24


def save_picture(page, path):
    """Save the upper part of a page as a small file."""
    screen = Image.open(io.BytesIO(page.screenshot()))
    small = screen.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
