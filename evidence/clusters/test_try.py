import sys

from evidence.clusters.working import WORK, run, with_this_python
from evidence.compatibility import results
from evidence.harness.standalone import QUICK_CONF


def test_local(job):
    conf = {**QUICK_CONF, "spark.master": "local[2,3]"}
    what = ["batch", "exactly-once batch", "exactly-once stream"]
    run([sys.executable, str(WORK), *job.arguments(*what, conf=conf)], with_this_python())
    for one in what:
        print([(line["event"], line.get("replay")) for line in job.metrics(one)])
        job.check(one)


def test_functions(job):
    conf = {**QUICK_CONF, "spark.master": "local[2,3]"}
    what = [one for one in results.WHAT if one != "stream"]
    run(
        [sys.executable, str(WORK), *job.arguments(*what, conf=conf), "--functions"],
        with_this_python(),
    )
    for one in what:
        print([(line["event"], line.get("replay")) for line in job.metrics(one)])
        job.check(one)
