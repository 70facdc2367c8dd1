"""Writes the table of a benchmark, and a link to its picture: benchmark_table.py RESULTS_FOLDER README PICTURE

Replaces what stands between the markers; a file that does not exist is made.
"""

import os
import pathlib
import sys

from benchmark_results import Results

BEGIN, END = "<!-- benchmark:begin -->", "<!-- benchmark:end -->"
HEAD = ["", "attn", "SDPA", "SDPA, MKL's AVX-512", "eager", "× SDPA", "× MKL's AVX-512", "× eager", "of peak"]


def number(value):
    if value is None:
        return "–"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def ratio(mine, other):
    return "–" if other is None else f"{mine / other:.2f}"


def line(cells):
    return "| " + " | ".join(cells) + " |"


def table(as_it_is, unlocked):
    yield line(HEAD)
    yield "|---|" + "--:|" * (len(HEAD) - 1)
    group = None
    for full_name, row in as_it_is.rows.items():
        row_group, name = full_name.split("/", 1)
        if row_group != group:
            group = row_group
            yield line([f"**{group}**, {row['unit']}"] + [""] * (len(HEAD) - 1))
        theirs = unlocked.rows.get(full_name, {})
        yield line(
            [name]
            + [number(value) for value in (row["attn"], row.get("SDPA"), theirs.get("SDPA"), row.get("eager"))]
            # The last opponent meets the attn of its own process: projections depend on MKL as well.
            + [ratio(row["attn"], row.get("SDPA")), ratio(theirs.get("attn"), theirs.get("SDPA")), ratio(row["attn"], row.get("eager"))]
            + [f"{row['of_peak']:.0%}".replace("%", " %") if "of_peak" in row else "–"]
        )


def machine(context):
    peak = f"{float(context['peak_float32']):.0f} GFLOP/s"
    if "peak_bfloat16" in context:
        peak += f", in bfloat16 {float(context['peak_bfloat16']):.0f}"
    return (
        f"Measured by `./scripts/benchmark` on {context['cpu']} ({context['num_cpus']} cores, {context['simd']}), one thread, "
        f"LibTorch {context['libtorch']}, attn {context['attn']}. FMA peak of a core: {peak}."
    )


def backends(rows):
    """Which backend the figures of attn are of."""
    ran = {row["backend"] for row in rows.values() if row["backend"]}
    if len(ran) == 1:
        return f"attn ran on `{ran.pop()}` in every row."
    return " ".join(
        f"On `{backend}`: {', '.join(name for name, row in rows.items() if row['backend'] == backend)}." for backend in sorted(ran)
    )


def two_threads(one, two):
    """How much faster two threads are than one, by length."""
    names = [name for name in two.rows if name in one.rows]
    if not names:
        return
    yield ""
    yield "Two threads over one:"
    yield ""
    yield line(["", "attn", "SDPA"])
    yield "|---|--:|--:|"
    for name in names:
        gains = [f"{two.rows[name][who] / one.rows[name][who]:.2f}" for who in ("attn", "SDPA")]
        yield line([name.split("/", 1)[1], *gains])


def text_of(folder, picture):
    one, unlocked, two = (Results(folder, kind) for kind in ("as_it_is", "mkl_avx512", "two_threads"))
    link = f"![Fraction of the FMA peak by length, attn and SDPA]({picture})"
    lines = [machine(one.context), backends(one.rows), "", link, "", *table(one, unlocked), *two_threads(one, two)]
    return "\n".join([BEGIN, *lines, END])


def main(folder, readme, picture):
    readme = pathlib.Path(readme)
    page = readme.read_text() if readme.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = page.partition(BEGIN)
    _, marker, after = rest.partition(END)
    if not marker:
        sys.exit(f"{readme}: expected {BEGIN} and {END}")
    readme.write_text(before + text_of(folder, os.path.relpath(picture, readme.parent)) + after)


if __name__ == "__main__":
    main(*sys.argv[1:])
