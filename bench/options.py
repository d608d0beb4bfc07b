"""What the command lines of the benchmarks have in common."""
import argparse


def list_of(allowed):
    """An argparse type: names of `allowed`, separated by commas."""
    def parse(text):
        names = [name.strip() for name in text.split(",")]
        unknown = [name for name in names if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: "
                                             f"{', '.join(allowed)}")
        return names
    return parse
