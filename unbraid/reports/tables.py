def print_runs(runs, parent):
    print([r.path for r in runs])


def print_run(run):
    print(run.scores()["settings"][0]["metrics"]["mmcs"])


def run_as_json(run):
    import json

    return json.dumps(run.scores())
