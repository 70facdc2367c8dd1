"""Writes the tables of a benchmark, and a link to its picture: benchmark_table.py RESULTS_FOLDER README PICTURE

Replaces what stands between the markers, of inference and of training; a file that does not exist is made.
"""

import os
import pathlib
import sys

from benchmark_results import Results

TRAINING = "training "  # how the groups of such rows begin
HEAD = ["", "attn", "SDPA", "SDPA, MKL's AVX-512", "eager", "× SDPA", "× MKL's AVX-512", "× eager", "of peak"]


def number(value):
    if value is None:
        return "–"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def ratio(mine, other):
    return "–" if other is None else f"{mine / other:.2f}"


def in_training(name):
    return name.startswith(TRAINING)


def line(cells):
    return "| " + " | ".join(cells) + " |"


def table(as_it_is, unlocked, names):
    yield line(HEAD)
    yield "|---|" + "--:|" * (len(HEAD) - 1)
    group = None
    for full_name in names:
        row = as_it_is.rows[full_name]
        row_group, name = full_name.split("/", 1)
        if row_group != group:
            group = row_group
            yield line([f"**{group.removeprefix(TRAINING)}**, {row['unit']}"] + [""] * (len(HEAD) - 1))
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


def backends(results, names):
    """Which backend the figures of attn are of."""
    ran = {name: results.rows[name]["backend"] for name in names if results.rows[name]["backend"]}
    if len(set(ran.values())) == 1:
        return f"attn ran on `{ran.popitem()[1]}` in every row."
    return " ".join(
        f"On `{backend}`: {', '.join(name for name in ran if ran[name] == backend)}." for backend in sorted(set(ran.values()))
    )


def two_threads(one, two, names):
    """How much faster two threads are than one, by length."""
    names = [name for name in names if name in two.rows]
    if not names:
        return
    yield ""
    yield f"Two threads over one, {names[0].split('/')[0].removeprefix(TRAINING)}:"
    yield ""
    yield line(["", "attn", "SDPA"])
    yield "|---|--:|--:|"
    for name in names:
        gains = [f"{two.rows[name][who] / one.rows[name][who]:.2f}" for who in ("attn", "SDPA")]
        yield line([name.split("/", 1)[1], *gains])


def block(results, names, head=(), link=()):
    """What stands between a table's markers; nothing of rows that were not measured."""
    one, unlocked, two = results
    if not names:
        return
    yield from (*head, backends(one, names), "", *link)
    yield from table(one, unlocked, names)
    yield from two_threads(one, two, names)


def blocks(results, picture):
    """The lines of each block by its marker."""
    rows, link = results[0].rows, f"![Fraction of the FMA peak by length, attn and SDPA]({picture})"
    return {
        "benchmark": block(results, [name for name in rows if not in_training(name)], [machine(results[0].context)], [link, ""]),
        "training": block(results, [name for name in rows if in_training(name)]),
    }


def replace(page, marker, lines):
    """The page with the lines between the markers."""
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"expected {begin} and {end} in the page")
    return before + "\n".join([begin, *lines, end]) + after


def main(folder, readme, picture):
    readme = pathlib.Path(readme)
    results = [Results(folder, kind) for kind in ("as_it_is", "mkl_avx512", "two_threads")]
    found = blocks(results, os.path.relpath(picture, readme.parent))
    page = readme.read_text() if readme.exists() else "".join(f"<!-- {marker}:begin -->\n<!-- {marker}:end -->\n" for marker in found)
    for marker, lines in found.items():
        page = replace(page, marker, lines)
    readme.write_text(page)


if __name__ == "__main__":
    main(*sys.argv[1:])
