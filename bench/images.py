"""Images for benchmarks: textured noise, and TIFF with JPEG tiles, which Pillow does not write."""
import concurrent.futures, io, struct
import numpy as np


def texture(height, width, seed):
    """Blurred noise in three scales: compresses like a photograph."""
    random = np.random.default_rng(seed)
    image = np.zeros((height, width, 3), np.float32)
    for scale in (4, 16, 64):
        small = random.random((height // scale, width // scale, 3), np.float32)
        image += small.repeat(scale, 0).repeat(scale, 1)
    return (image * 70 + random.random((height, width, 3), np.float32) * 12).clip(0, 255).astype(np.uint8)


def jpeg(pixels):
    from PIL import Image
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85, subsampling="4:2:0")
    return out.getvalue()


def write_jpeg_tiff(path, image, tile=512):
    """A BigTIFF of JPEG tiles, each with its own tables."""
    height, width, _ = image.shape
    places = [(y, x) for y in range(0, height, tile) for x in range(0, width, tile)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        tiles = list(pool.map(lambda p: jpeg(image[p[0]:p[0] + tile, p[1]:p[1] + tile]), places))
    with open(path, "wb") as file:
        file.write(b"II" + struct.pack("<HHHQ", 43, 8, 0, 0))
        offsets = []
        for data in tiles:
            offsets.append(file.tell())
            file.write(data + b"\0" * (len(data) % 2))
        tables = []
        for values in (offsets, [len(t) for t in tiles]):
            tables.append(file.tell())
            file.write(struct.pack(f"<{len(values)}Q", *values))
        three = struct.unpack("<Q", struct.pack("<HHHH", 8, 8, 8, 0))[0]
        entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, three), (259, 3, 1, 7), (262, 3, 1, 6),
                   (277, 3, 1, 3), (284, 3, 1, 1), (322, 4, 1, tile), (323, 4, 1, tile),
                   (324, 16, len(tiles), tables[0]), (325, 16, len(tiles), tables[1]),
                   (530, 3, 2, 2 | 2 << 16)]
        directory = file.tell()
        file.write(struct.pack("<Q", len(entries)))
        for tag, kind, count, value in entries:
            file.write(struct.pack("<HHQQ", tag, kind, count, value))
        file.write(struct.pack("<Q", 0))
        file.seek(8)
        file.write(struct.pack("<Q", directory))
