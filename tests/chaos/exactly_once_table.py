"""The tables of runs under exactly-once delivery, for docs/internals/reliability.md."""

_KINDS = ("driver", "worker", "attempt", "speculation", "broker", "hung", "cut off")


def exactly_once_table(results):
    """One row per run."""
    lines = [
        "| Kafka | delivery | micro-batches | rows | drivers killed | workers killed "
        "| tasks attempted again | coordinators killed | brokers hung | log's leader cut off "
        "| query stopped by itself | read | lost | doubled | left open "
        "| recovery, median and longest | readers waited for a killed task, at most | minutes |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [_row(result) for result in results]
    return "\n".join(lines)


def _row(result):
    faults, recovery = result["faults"], result["recovery_s"]
    is_control = result["guarantee"] == "at-least-once"
    left = "–" if is_control else str(len(result["left_open"]) + len(result["found_open"]))
    lag = (
        f"{result['reader_lag_s']['max']:.1f} s, {result['reader_lag_batches']['max']} micro-batch"
    )
    return (
        f"| {result['kafka']} | {result['guarantee']} | {result['micro_batches']:,} "
        f"| {result['records']:,} | {result['driver_kills']} | {faults.get('worker', 0)} "
        f"| {'–' if is_control else result['attempts']} | {faults.get('broker', 0)} "
        f"| {faults.get('hung', 0)} | {faults.get('cut off', 0)} | {len(result['failures'])} "
        f"| {result['read']:,} | {result['lost']:,} | {result['doubled']:,} | {left} "
        f"| {recovery['median']:.0f} s, {recovery['max']:.0f} s | {lag} "
        f"| {result['seconds'] / 60:.0f} |"
    )


def query_faults_table(results):
    """One row per fault, and how often each run with exactly-once delivery went through it."""
    runs = [r for r in results if r["guarantee"] == "exactly-once"]
    names = [f"Kafka {r['kafka']}" for r in runs]
    lines = [
        f"| what was done | {' | '.join(names)} |",
        f"| --- | {' | '.join('---:' for _ in runs)} |",
    ]
    faults = {event["what"]: event["kind"] for run in runs for event in run["events"]}
    for what in sorted(faults, key=lambda name: _KINDS.index(faults[name])):
        counts = [str(sum(e["what"] == what for e in run["events"])) for run in runs]
        lines.append(f"| {what} | {' | '.join(counts)} |")
    return "\n".join(lines)
