"""The gate's results as files: JSON, Markdown and JUnit XML, all of the same results and the same verdict."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import xml.etree.ElementTree as xml
from typing import TYPE_CHECKING, Iterable

from .case_results import BROKEN, NOT_APPLICABLE, POINTS, VIOLATED, CaseResult, GateResults
from .terminal import cell_text

if TYPE_CHECKING:
    from .verdict import Verdict

SUFFIXES = (".json", ".xml", ".md")


def write(path: str, results: GateResults, verdict: Verdict) -> None:
    """Write a report.

    Args:
        path (str): the file; its suffix says of which kind.
        results (GateResults): the results.
        verdict (Verdict): what they came to.
    """
    make = {".json": as_json, ".md": as_markdown, ".xml": as_junit}[os.path.splitext(path)[1].lower()]
    text = make(results, verdict)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def versions() -> dict[str, str]:
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


def as_json(results: GateResults, verdict: Verdict) -> str:
    """Everything, for machines; also what a baseline is read from.

    Args:
        results (GateResults): the results.
        verdict (Verdict): what they came to.

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
            "findings": list(result.findings),
            "text": result.text,
            "seconds": result.seconds,
        }
        for result in results.results
    ]
    content = {
        "verdict": verdict.said,
        "because": verdict.lines,
        "overlay": "on" if results.overlay else "off",
        "versions": versions(),
        "counts": results.counts(),
        "contract": table,
        "cases": cases,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def as_markdown(results: GateResults, verdict: Verdict) -> str:
    """The tables, for people and for the summary of a CI run.

    Args:
        results (GateResults): the results.
        verdict (Verdict): what they came to.

    Returns:
        str: the text.
    """
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    counted = ", ".join(f"{count} {status}" for status, count in sorted(results.counts().items())) or "no case ran"
    because = "".join(f"- {_escaped(line)}\n" for line in verdict.lines)
    parts = [
        f"# Optimizer checkpoint contract: {verdict.said}\n\n{because}".strip(),
        f"Overlay {'on' if results.overlay else 'off'}; {named}. Cases: {counted}.",
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
            [name, f"`{method}`", len(group), group[0].reason] for (name, method), group in results.by_case().items()
        ]
        parts.append("## Violations\n\n" + _rows(["class", "case", "times", "for example"], rows))
    if results.broken():
        rows = [[f"`{each.id}`", each.reason] for each in results.broken()]
        parts.append("## The gate itself failed\n\n" + _rows(["case", "reason"], rows))
    if results.not_applicable():
        rows = [
            [f"{point}. {POINTS[point]}", reason, ", ".join(names)]
            for (point, reason), names in results.not_applicable().items()
        ]
        parts.append("## Not applicable\n\n" + _rows(["point", "reason", "classes"], rows))
    return "\n\n".join(parts) + "\n"


def _rows(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_escaped(value) for value in line) + " |" for line in lines)


def _escaped(value: object) -> str:
    return str(value).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def as_junit(results: GateResults, verdict: Verdict) -> str:
    """JUnit XML, which passes where the verdict does.

    Args:
        results (GateResults): the results.
        verdict (Verdict): what they came to.

    Returns:
        str: the text.
    """
    suite = xml.Element("testsuite", name="optimizer checkpoint contract")
    properties = {"verdict": verdict.said, "overlay": "on" if results.overlay else "off", **versions()}
    _add_properties(suite, properties)
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    cases = [_case_of(result, verdict) for result in results.results]
    cases += [("verdict", {}, "failures" if verdict.judged else "errors", line, line, 0.0) for line in verdict.lines]
    for name, properties, kind, reason, text, seconds in cases:
        classname, _, method = name.rpartition("::")
        case = xml.SubElement(suite, "testcase", classname=classname, name=method, time=f"{seconds:.3f}")
        _add_properties(case, properties)
        counts["tests"] += 1
        if kind is not None:
            counts[kind] += 1
            tag = {"failures": "failure", "errors": "error", "skipped": "skipped"}[kind]
            xml.SubElement(case, tag, message=_printable(reason)).text = _printable(text)
    for name, count in counts.items():
        suite.set(name, str(count))
    root = xml.Element("testsuites")
    root.append(suite)
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case_of(result: CaseResult, verdict: Verdict) -> tuple[str, dict[str, str], str | None, str, str, float]:
    kind = {VIOLATED: "failures", BROKEN: "errors", NOT_APPLICABLE: "skipped"}.get(result.status)
    reason = result.reason
    if result.id in verdict.known:
        kind, reason = "skipped", f"known violation: {reason}"
    properties = {
        "contract-status": result.status,
        "checkpoint-io": result.checkpoint_io,
        "contract-points": " ".join(map(str, result.points)),
        "processes": str(result.processes),
    }
    return result.id, properties, kind, reason, result.text, result.seconds


def _add_properties(element: xml.Element, properties: dict[str, str]) -> None:
    if properties:
        into = xml.SubElement(element, "properties")
        for name, value in properties.items():
            xml.SubElement(into, "property", name=name, value=_printable(value))


def _printable(text: str) -> str:
    # XML has no control characters, escaped or not.
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
