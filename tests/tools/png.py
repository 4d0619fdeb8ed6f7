"""Makes pictures of pages small: PNG with a palette of the 256 commonest colours; the others take the nearest."""

import collections
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks(data):
    at = len(SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += length + 12


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def unfilter(kind, line, above, step):
    """Undoes what was subtracted from a line, in place (PNG, 9.2)."""
    if kind == 2:
        for i, up in enumerate(above):
            line[i] = (line[i] + up) & 255
        return
    for i in range(len(line) if kind else 0):
        left = line[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + above[i]) // 2
        else:
            guess = min((left, above[i], corner), key=lambda v, p=left + above[i] - corner: abs(p - v))
        line[i] = (line[i] + guess) & 255


def pixels(data):
    """(width, [lines of (red, green, blue)]) of a PNG of 8 bits, with or without alpha, not interlaced."""
    parts = collections.defaultdict(bytes)
    for kind, part in chunks(data):
        parts[kind] += part
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert depth == 8 and colour in (2, 6) and not interlaced, "another kind of PNG"
    step = 4 if colour == 6 else 3
    raw = zlib.decompress(parts[b"IDAT"])
    above = bytearray(width * step)
    lines = []
    for y in range(height):
        at = y * (width * step + 1)
        line = bytearray(raw[at + 1 : at + 1 + width * step])
        unfilter(raw[at], line, above, step)
        lines.append(list(zip(line[0::step], line[1::step], line[2::step])))
        above = line
    return width, lines


def small(data):
    """The same picture, of 256 colours at most."""
    width, lines = pixels(data)
    count = collections.Counter(pixel for line in lines for pixel in line)
    palette = [pixel for pixel, _ in count.most_common(256)]
    index = {pixel: i for i, pixel in enumerate(palette)}
    for pixel in count:
        if pixel not in index:
            index[pixel] = min(range(len(palette)), key=lambda i, p=pixel: sum((a - b) ** 2 for a, b in zip(p, palette[i])))
    raw = b"".join(b"\0" + bytes(index[pixel] for pixel in line) for line in lines)
    head = struct.pack(">IIBBBBB", width, len(lines), 8, 3, 0, 0, 0)
    return (
        SIGNATURE
        + chunk(b"IHDR", head)
        + chunk(b"PLTE", bytes(part for pixel in palette for part in pixel))
        + chunk(b"IDAT", zlib.compress(raw, 9))
        + chunk(b"IEND", b"")
    )
