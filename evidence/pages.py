"""Writes the tables of pages that are made of kept results again.

python -m evidence pages
"""

from evidence.chaos import table as chaos
from evidence.compatibility import table as compatibility
from evidence.harness import pages
from evidence.harness.planning import parser_of, show
from evidence.outage import first_lines
from evidence.pairs import run as pairs
from evidence.parity import results as parity
from evidence.week import page as week

_MODULES = (chaos, compatibility, first_lines, pairs, parity, week)
PAGES = {page: tables for module in _MODULES for page, tables in module.PAGES.items()}


def main(words=None):
    if parser_of(__doc__).parse_args(words).plan:
        return show(f"writes docs/{page.relative_to(pages.DOCS)}" for page in PAGES)
    pages.write(PAGES)
    return 0
