"""Draws the fraction of the FMA peak against the length: plot_benchmark.py RESULTS_FOLDER PICTURE.svg"""

import math
import pathlib
import re
import sys

from benchmark_results import Results

WIDTH, HEIGHT = 820, 396
TOP, BOTTOM = 92, 322  # of both panels
PANELS = [("every key", "", 64), ("causal mask", " causal", 452)]  # title, suffix of the row's name, left edge
PANEL_WIDTH = 336
GREY = "#7d8590"  # text and grid: readable on white and on black
CURVES = [  # label, kind of process, who, colour
    ("attn", "as_it_is", "attn", "#2f81f7"),
    ("SDPA with MKL's AVX-512", "mkl_avx512", "SDPA", "#db6d28"),
    ("SDPA", "as_it_is", "SDPA", "#a371f7"),
]
ROW = re.compile(r"prefill/fp32 T(\d+) D64$")


def text(x, y, words, anchor="middle", size=12, fill=GREY, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}"{more}>{words}</text>'


def rule(x1, y1, x2, y2, opacity):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GREY}" stroke-opacity="{opacity}"/>'


class Panel:
    def __init__(self, title, suffix, left, lengths):
        self.title, self.suffix, self.left, self.lengths = title, suffix, left, lengths

    def x(self, length):
        first, last = math.log2(self.lengths[0]), math.log2(self.lengths[-1])
        return self.left + 20 + (PANEL_WIDTH - 40) * (math.log2(length) - first) / max(last - first, 1)

    def y(self, fraction):
        return BOTTOM - (BOTTOM - TOP) * fraction

    def frame(self):
        right = self.left + PANEL_WIDTH
        yield text(self.left + PANEL_WIDTH / 2, TOP - 14, self.title, size=13, more=' font-weight="600"')
        for percent in range(0, 101, 20):
            y = self.y(percent / 100)
            yield rule(self.left, y, right, y, 0.6 if percent == 0 else 0.22)
            yield text(self.left - 8, y + 4, f"{percent} %", anchor="end")
        for length in self.lengths:
            yield rule(self.x(length), BOTTOM, self.x(length), BOTTOM + 5, 0.6)
            yield text(self.x(length), BOTTOM + 20, length)
        yield text(self.left + PANEL_WIDTH / 2, BOTTOM + 42, "T, queries and keys")

    def curve(self, results, who, colour, above):
        named = [(length, results.fraction(f"prefill/fp32 T{length} D64{self.suffix}", who)) for length in self.lengths]
        points = [(self.x(length), self.y(fraction), fraction) for length, fraction in named if fraction is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"/>'
        for x, y, fraction in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{fraction:.0%}</title></circle>'
        for x, y, fraction in points[-1:]:
            yield text(x, y - 9 if above else y + 18, f"{fraction:.0%}".replace("%", " %"), fill=colour, more=' font-weight="600"')


def legend():
    x = 64
    for label, _, _, colour in CURVES:
        yield f'<line x1="{x}" y1="50" x2="{x + 22}" y2="50" stroke="{colour}" stroke-width="2.5"/>'
        yield f'<circle cx="{x + 11}" cy="50" r="3.5" fill="{colour}"/>'
        yield text(x + 30, 54, label, anchor="start")
        x += 66 + 7 * len(label)


def picture(folder):
    results = {kind: Results(folder, kind) for kind in ("as_it_is", "mkl_avx512")}
    context = results["as_it_is"].context
    lengths = sorted(int(found[1]) for found in map(ROW.match, results["as_it_is"].rows) if found)
    title = "Fraction of a core's FMA peak, float32, B1 H8 D64, one thread"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{title}">'
    )
    yield text(64, 26, title, anchor="start", size=15, more=' font-weight="600"')
    yield from legend()
    if lengths:
        for panel in (Panel(*panel, lengths) for panel in PANELS):
            yield from panel.frame()
            for label, kind, who, colour in CURVES:
                yield from panel.curve(results[kind], who, colour, above=label != "SDPA")
    note = f"{context['cpu']}, {context['simd']}, LibTorch {context['libtorch']}; a causal row counts the scores that the mask leaves"
    yield text(WIDTH - 32, HEIGHT - 6, note, anchor="end", size=10)
    yield "</svg>"


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text("\n".join(picture(sys.argv[1])) + "\n")
