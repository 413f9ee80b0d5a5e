"""Makes the commits of the series in a scratch repository."""

import ast
import dataclasses

from . import imports, transplant
from .carry import check_table, imported_new_modules, in_upstream_words
from .errors import DriftError, PatchError
from .graft import finish, graft
from .known import CHANGED, OURS, survey
from .modules import module_of, python_files
from .python_floor import check_names, check_syntax
from .syntax import parse
from .tree import Tree, commit, git


@dataclasses.dataclass(frozen=True)
class Commit:
    """One patch, committed.

    Args:
        patch (series.Patch): the patch.
        id (str): the commit.
        files (list[str]): what it touches.
    """

    patch: object
    id: str
    files: list


def applied(series, findings):
    """Tell which patches a tree has already.

    Args:
        series (series.Series): the series.
        findings (list[known.Finding]): what :func:`known.survey` found for all rows.

    Returns:
        set[str]: names of the patches whose functions are all there.
    """
    verdicts = {patch.name: [f.verdict for f in findings if f.row.patch == patch.name] for patch in series.patches}
    return {name for name, found in verdicts.items() if found and set(found) == {OURS}}


def build(series, source, tree, scratch, identity, date=None):
    """Commit every patch that the tree does not have yet.

    Args:
        series (series.Series): the series.
        source (source.Source): the fork's code.
        tree (tree.Tree): upstream's sources.
        scratch (pathlib.Path): an empty directory.
        identity (tuple[str, str]): author and committer.
        date (str | None): the commits' date; now if None.

    Returns:
        tuple[pathlib.Path, list[Commit]]: the scratch repository and its new commits, in order.

    Raises:
        DriftError: if upstream's functions are not those that the series was written for.
        PatchError: if a patch cannot be made for another reason.
    """
    series.check_rows(source.rows)
    findings = survey(source, tree, source.rows)
    done = applied(series, findings)
    refuse_drift(findings)
    check_table(source)
    root = tree.copy(scratch)
    commits = []
    for patch in series.patches:
        if patch.name in done or not any(row.patch == patch.name for row in source.rows):
            continue
        files = write(patch, source, root)
        message = f"{patch.title}\n\n{patch.message}"
        git(root, "add", "--force", "--", *files, isolated=True)
        commits.append(Commit(patch, commit(root, message, identity, date), files))
    return root, commits


def refuse_drift(findings):
    """Stop if any function is neither known nor ours.

    Args:
        findings (list[known.Finding]): what :func:`known.survey` found.

    Raises:
        DriftError: naming every such function.
    """
    changes = [finding.change for finding in findings if finding.verdict == CHANGED]
    if changes:
        raise DriftError(changes)


def write(patch, source, root):
    """Carry out one patch in a scratch tree.

    Args:
        patch (series.Patch): the patch.
        source (source.Source): the fork's code.
        root (pathlib.Path): the tree, which has the patches before this one.

    Returns:
        list[str]: the files changed and added.
    """
    rows = [row for row in source.rows if row.patch == patch.name]
    findings = survey(source, Tree(root), rows)
    refuse_drift(findings)
    rows = [finding.row for finding in findings if finding.verdict != OURS]
    texts = {}
    for file in sorted({row.file for row in rows}):
        texts[file] = graft(source, root, file, [row for row in rows if row.file == file])
    tests = {file: _test(source, root, file, template) for file, template in patch.tests.items()}
    importers = {module_of(file): text for file, text in [*texts.items(), *tests.items()]}
    for module, text in imported_new_modules(source, importers).items():
        file = source.upstream_of(module, None)[0].replace(".", "/") + ".py"
        texts[file] = imports.sort(text, root)
        _refuse_other(root, file, texts[file])
    texts.update(tests)
    changed = {file: text for file, text in texts.items() if Tree(root).text(file) != text}
    for file, text in changed.items():
        check_syntax(file, text)
        path = root / file
        if not path.exists():
            check_names(file, text)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    for file, names in _by_file(patch.removes).items():
        text = _without(source, root, file, names)
        (root / file).write_text(text, encoding="utf-8", newline="\n")
        changed[file] = text
    _refuse_used(root, patch.removes)
    return sorted(changed)


def _test(source, root, file, template):
    text = imports.sort(in_upstream_words(template.read_text(encoding="utf-8"), source, template.name), root)
    _refuse_other(root, file, text)
    return text


def _refuse_other(root, file, text):
    present = Tree(root).text(file)
    if present is not None and present != text:
        raise DriftError([f"{file} exists already, and is not the file that this series adds"])


def _by_file(removes):
    found = {}
    for file, name in removes:
        found.setdefault(file, []).append(name)
    return found


def _without(source, root, file, names):
    before = (root / file).read_text(encoding="utf-8")
    module = transplant.parse(before, file)
    for name in names:
        module = transplant.remove(module, name)
    return finish(source, root, file, before, module.code)


def _refuse_used(root, removes):
    for file in python_files(root) if removes else ():
        text = file.read_text(encoding="utf-8")
        for gone_from, name in removes:
            if _mentions(text, name):
                user = file.relative_to(root).as_posix()
                raise PatchError(f"{name} of {gone_from} cannot go: {user} still uses it")


def _mentions(text, name):
    # A method can only be reached through an attribute; a function also by its bare name or an import.
    is_method, last = "." in name, name.rpartition(".")[2]
    if last not in text:
        return False
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == last:
            return True
        if not is_method and isinstance(node, ast.Name) and node.id == last:
            return True
        if not is_method and isinstance(node, ast.ImportFrom) and any(alias.name == last for alias in node.names):
            return True
    return False
