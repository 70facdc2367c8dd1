"""The README tells nothing that is not so: its example is the one that compiles, its links lead somewhere."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def problems():
    readme = (ROOT / "README.md").read_text()
    example = (ROOT / "examples/first_steps/main.cpp").read_text()
    if f"```cpp\n{example}```" not in readme:
        yield "README.md does not show examples/first_steps/main.cpp as it stands"
    for page in ("README.md", "CONTRIBUTING.md", "tests/golden/README.md", *sorted(ROOT.glob("docs/*.md"))):
        text = (ROOT / page).read_text()
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if "://" not in target and not (ROOT / page).parent.joinpath(target).exists():
                yield f"{page}: nothing at {target}"


if __name__ == "__main__":
    found = list(problems())
    print(*found, sep="\n")
    sys.exit(bool(found))
