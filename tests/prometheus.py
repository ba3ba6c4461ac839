"""What a reader of Prometheus has of a text: by its own parser."""

from prometheus_client.parser import text_string_to_metric_families


class Samples:
    """What a reader of Prometheus' text has."""

    def __init__(self, text):
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        self.samples = [s for family in self.families.values() for s in family.samples]

    def __call__(self, name, **labels):
        (found,) = (
            s.value
            for s in self.samples
            if s.name == name and labels.items() <= dict(s.labels).items()
        )
        return float(found)

    @property
    def names(self):
        return {s.name for s in self.samples}
