def write_report(runs, path):
    return path
