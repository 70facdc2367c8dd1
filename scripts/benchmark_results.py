"""The results of scripts/benchmark: the JSON files of Google Benchmark in a folder, one a process and round."""

import json
import pathlib

SUFFIX = "/iterations:1/manual_time"  # what Google Benchmark appends to the name of a row


class Results:
    """The best of all rounds of one kind of process: "as_it_is", "mkl_avx512" or "two_threads"."""

    def __init__(self, folder, kind):
        self.context = {}
        self.rows = {}  # name -> {"attn", "SDPA", "eager"?: rate, "of_peak"?, "unit", "backend"}
        for file in sorted(pathlib.Path(folder).glob(f"{kind}-*.json")):
            text = json.loads(file.read_text())
            peaks = {key: max(float(value), self.context.get(key, 0.0)) for key, value in text["context"].items() if "peak" in key}
            self.context = text["context"] | peaks
            for measured in text["benchmarks"]:
                self._add(measured)

    def _add(self, measured):
        row = self.rows.setdefault(measured["name"].removesuffix(SUFFIX), {})
        unit, _, backend = measured["label"].partition(" ")
        row |= {"unit": unit, "backend": backend}
        for key in ("attn", "SDPA", "eager", "of_peak"):
            if key in measured:
                row[key] = max(measured[key], row.get(key, 0.0))

    def fraction(self, name, who):
        """What part of the peak `who` reaches in a row, or None."""
        row = self.rows.get(name, {})
        if who not in row or "of_peak" not in row:
            return None
        return row["of_peak"] * row[who] / row["attn"]
