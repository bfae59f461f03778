"""What notebooks show: tables, and curves as SVG."""

from __future__ import annotations

import html as _html
import math
from collections.abc import Iterable, Sequence
from typing import Any

escape = _html.escape

WIDTH, HEIGHT, LEFT, BOTTOM = 480, 180, 52, 22
COLOURS = ("#1f6fb4", "#c8501e", "#3a8a3a", "#7a4fa0")


def bytes_text(n: float) -> str:
    """Bytes for people.

    >>> bytes_text(1536), bytes_text(5 * 2**30)
    ('1.5 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def seconds_text(s: float) -> str:
    """Seconds for people.

    >>> seconds_text(0.0123), seconds_text(200)
    ('12.3 ms', '3 min 20 s')
    """
    if not math.isfinite(s):
        return "-"
    if s < 1:
        return f"{s * 1e3:.1f} ms"
    return f"{s:.1f} s" if s < 60 else f"{int(s // 60)} min {int(s % 60)} s"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with a line of headings."""
    cells = "".join(f"<th>{escape(str(h))}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _points(ys: Sequence[float], lo: float, hi: float) -> str:
    """A polyline's points; numbers that are not finite leave no point."""
    span = hi - lo if hi > lo else 1.0
    step = (WIDTH - LEFT - 8) / max(1, len(ys) - 1)
    found = []
    for i, y in enumerate(ys):
        if math.isfinite(y):
            found.append(f"{LEFT + i * step:.1f},{8 + (HEIGHT - BOTTOM - 8) * (hi - y) / span:.1f}")
    return " ".join(found)


def curves(series: dict[str, Sequence[float]], what: str) -> str:
    """Curves over the same steps in one picture; '' where there is nothing to draw."""
    finite = [y for ys in series.values() for y in ys if math.isfinite(y)]
    if not finite:
        return ""
    lo, hi = min(finite), max(finite)
    base, right = HEIGHT - BOTTOM, WIDTH - 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(what)}" '
        'font-family="sans-serif" font-size="11">',
        f'<path d="M{LEFT},8 V{base} H{right}" fill="none" stroke="#888"/>',
        f'<text x="{LEFT - 4}" y="16" text-anchor="end" fill="#666">{hi:.3g}</text>',
        f'<text x="{LEFT - 4}" y="{base}" text-anchor="end" fill="#666">{lo:.3g}</text>',
    ]
    for i, (name, ys) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<polyline points="{_points(ys, lo, hi)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{LEFT + 8 + 110 * i}" y="{HEIGHT - 6}" fill="{colour}">{escape(name)}</text>')
    return "".join(parts) + "</svg>"
