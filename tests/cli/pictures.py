"""Small sets of images and masks for the tests of the command: bright discs on noise, as PNG.

    python3 pictures.py FOLDER COUNT WIDTH HEIGHT
"""
import os
import random
import struct
import sys
import zlib


def write_png(path, width, height, channels, pixels):
    """8 bits; 1 channel is grey, 3 are colours; `pixels` is bytes, row by row."""
    row = width * channels
    raw = b"".join(b"\0" + pixels[y * row:(y + 1) * row] for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) +
                   chunk(b"IEND", b""))


def write_set(folder, count, width, height, seed=5):
    os.makedirs(folder + "/images")
    os.makedirs(folder + "/masks")
    chance = random.Random(seed)
    for i in range(count):
        discs = [(chance.randrange(width), chance.randrange(height), chance.randrange(4, 9))
                 for _ in range(6)]
        image, mask = bytearray(), bytearray()
        for y in range(height):
            for x in range(width):
                inside = any((x - a) ** 2 + (y - b) ** 2 <= r * r for a, b, r in discs)
                mask.append(inside)
                image += bytes(max(0, min(255, int(chance.gauss(170 if inside else 80, 20))))
                               for _ in range(3))
        write_png(f"{folder}/images/s{i:02d}.png", width, height, 3, image)
        write_png(f"{folder}/masks/s{i:02d}.png", width, height, 1, mask)


if __name__ == "__main__":
    write_set(sys.argv[1], *map(int, sys.argv[2:5]))
