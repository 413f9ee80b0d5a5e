"""The gate's results as files. JUnit XML is written by pytest itself."""

import importlib.metadata
import json
import platform

from .case_results import POINTS
from .terminal import cell_text, shortened

SUFFIXES = (".json", ".xml", ".md")


def write(path, results, comparison=None):
    """Write a report.

    Args:
        path (str): the file; ".json" and ".md" are written here, ".xml" by pytest.
        results (GateResults): the results.
        comparison (Optional[Comparison]): the results beside a baseline.
    """
    if path.lower().endswith(".json"):
        text = as_json(results)
    elif path.lower().endswith(".md"):
        text = as_markdown(results, comparison)
    else:
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def versions():
    """What was tested, and with what.

    Returns:
        Dict[str, str]: versions by name.
    """
    found = {"python": platform.python_version()}
    for name in ("colossalai", "torch", "colossalai-fork"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def as_json(results):
    """Everything, for machines; also what a baseline is read from.

    Args:
        results (GateResults): the results.

    Returns:
        str: the text.
    """
    table = {
        name: {str(point): results.cell(name, point).status or "no case ran" for point in POINTS}
        for name in results.classes
    }
    cases = [
        {
            "id": result.id,
            "class": result.checkpoint_io,
            "points": list(result.points),
            "processes": result.processes,
            "status": result.status,
            "reason": result.reason,
            "text": result.text,
            "seconds": result.seconds,
        }
        for result in results.results
    ]
    content = {
        "overlay": "on" if results.overlay else "off",
        "versions": versions(),
        "counts": results.counts(),
        "contract": table,
        "cases": cases,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def as_markdown(results, comparison=None):
    """The tables, for people and for the summary of a CI run.

    Args:
        results (GateResults): the results.
        comparison (Optional[Comparison]): the results beside a baseline.

    Returns:
        str: the text.
    """
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    counted = ", ".join(f"{count} {status}" for status, count in sorted(results.counts().items())) or "no case ran"
    parts = [
        f"# Optimizer checkpoint contract\n\nOverlay {'on' if results.overlay else 'off'}; {named}. Cases: {counted}.",
        _rows(
            ["point", *results.classes],
            [
                [f"{point}. {title}", *(cell_text(results.cell(name, point)) for name in results.classes)]
                for point, title in POINTS.items()
            ],
        ),
    ]
    if results.violated():
        rows = [
            [name, f"`{method}`", len(group), shortened(group[0].reason)]
            for (name, method), group in results.by_case().items()
        ]
        parts.append("## Violations\n\n" + _rows(["class", "case", "times", "for example"], rows))
    if comparison is not None and not comparison.matches:
        for title, ids in (("new", comparison.new), ("gone", comparison.gone), ("unknown", comparison.unknown)):
            if ids:
                listed = "\n".join(f"- `{each}`" for each in ids)
                parts.append(f"## Not as in the baseline: {title}\n\n{listed}")
    if results.broken():
        rows = [[f"`{each.id}`", shortened(each.reason)] for each in results.broken()]
        parts.append("## The gate itself failed\n\n" + _rows(["case", "reason"], rows))
    if results.not_applicable():
        rows = [
            [f"{point}. {POINTS[point]}", reason, ", ".join(names)]
            for (point, reason), names in results.not_applicable().items()
        ]
        parts.append("## Not applicable\n\n" + _rows(["point", "reason", "classes"], rows))
    return "\n\n".join(parts) + "\n"


def _rows(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_escaped(value) for value in line) + " |" for line in lines)


def _escaped(value):
    return str(value).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
