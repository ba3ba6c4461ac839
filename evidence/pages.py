"""Writes the pages and tables that are made of kept results again.

python -m evidence pages
"""

from evidence.chaos import table as chaos
from evidence.compatibility import table as compatibility
from evidence.harness.planning import parser_of, show
from evidence.outage import first_lines
from evidence.parity import results as parity
from evidence.week import page as week

WRITERS = {
    "internals/reliability.md, internals/scale.md": chaos.main,
    "compatibility.md, internals/compatibility.md": compatibility.main,
    "internals/parity.md": parity.main,
    "troubleshooting.md": first_lines.write,
    "internals/week.md": week.write,
}


def main(words=None):
    if parser_of(__doc__).parse_args(words).plan:
        return show(f"writes docs/{pages}" for pages in WRITERS)
    for write in WRITERS.values():
        write()
    return 0
