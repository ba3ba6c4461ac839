"""The command line that all programs share: with ``--plan`` they show what they would run."""

import argparse


def parser_of(document):
    """A parser with ``--plan``. document: of the program, whose first line describes it"""
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("--plan", action="store_true", help="show what would run, and end")
    return parser


def show(runs):
    """Print a line for each run; 0, as a program's exit code."""
    for run in runs:
        print("would run:", run)
    return 0
