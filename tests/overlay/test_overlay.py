"""The overlay on a small package that stands for upstream, so that every state of it can be made."""

import functools
import importlib
import subprocess
import sys
import textwrap
import warnings

import pytest

from colossalai_fork.overlay import fingerprint
from colossalai_fork.overlay.apply import Overlay, OverlayError
from colossalai_fork.overlay.inspection import State
from colossalai_fork.overlay.table import Replacement

UPSTREAM = {
    "upstream/__init__.py": "",
    "upstream/loading.py": '''
        def load(value):
            """Load."""
            total = value + 1  # wrong
            return total


        def untouched():
            return "untouched"


        class Base:
            def inherited(self):
                return "base"


        class Loader(Base):
            def method(self, value):
                return ("old", value)

            @staticmethod
            def static(value):
                return ("old static", value)

            @property
            def prop(self):
                return "old property"
    ''',
    "upstream/user.py": """
        from upstream.loading import Loader, load
        from upstream.loading import load as renamed


        def use(value):
            return load(value)


        class Special(Loader):
            pass
    """,
    "upstream/late.py": "from upstream.loading import load",
}

OURS = {
    "ours/__init__.py": "",
    "ours/loading.py": """
        import upstream.loading as theirs
        from upstream.loading import load as the_old_one


        def load(value, offset=0, *, step=2):
            return value + offset + step


        def added():
            return "added"


        class Loader:
            def method(self, value):
                return ("new", value) if isinstance(self, theirs.Loader) else None

            @staticmethod
            def static(value):
                return ("new static", value)

            @property
            def prop(self):
                return "new property"

            def inherited(self):
                return "own"
    """,
    "ours/dropin.py": "from ours.loading import load",
}

REPLACED = ("load", "Loader.method", "Loader.static", "Loader.prop")
ADDED = ("added", "Loader.inherited")


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))


def make_table():
    text = textwrap.dedent(UPSTREAM["upstream/loading.py"])
    rows = [
        Replacement(
            "upstream.loading",
            name,
            "ours.loading",
            patch="series",
            known={"1.0": fingerprint.find_in_module(text, name).fingerprint},
        )
        for name in REPLACED
    ]
    return rows + [Replacement("upstream.loading", name, "ours.loading", patch="series", kind="add") for name in ADDED]


def states(overlay):
    return {row.symbol.partition(":")[2]: row.state for row in overlay.status()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write(tmp_path, {**UPSTREAM, **OURS})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("upstream", "ours", "app")]:
        del sys.modules[name]


@pytest.fixture
def overlay(folder):
    return Overlay(make_table())


def edit(folder, old, new, file="upstream/loading.py"):
    path = folder / file
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def snapshot(*names):
    """The very objects that the modules and classes hold."""
    modules = [importlib.import_module(name) for name in names]
    owners = modules + [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {
        (owner.__name__, name): value
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("__")
    }


def is_same(left, right):
    return left.keys() == right.keys() and all(left[key] is right[key] for key in left)


def test_apply_replaces_everything_and_revert_restores_the_very_objects(overlay):
    from upstream import loading, user

    before = snapshot("upstream.loading", "upstream.user")
    assert (user.use(1), user.renamed(1), user.Special().method(1)) == (2, 2, ("old", 1))

    overlay.apply()

    assert (user.use(1), user.renamed(1), user.load(1, step=5), loading.load(1)) == (3, 3, 6, 3)
    special = user.Special()
    assert isinstance(special, loading.Loader)
    assert (special.method(1), special.static(1), special.prop) == (("new", 1), ("new static", 1), "new property")
    assert (loading.added(), special.inherited(), loading.Base().inherited()) == ("added", "own", "base")
    assert not is_same(snapshot("upstream.loading", "upstream.user"), before)

    overlay.revert()

    assert is_same(snapshot("upstream.loading", "upstream.user"), before)
    assert special.inherited() == "base"


def test_methods_are_our_very_objects(overlay):
    overlay.apply()
    import ours.loading
    import upstream.loading

    for name in ("method", "static", "prop", "inherited"):
        assert vars(upstream.loading.Loader)[name] is vars(ours.loading.Loader)[name]


def test_apply_before_upstream_is_imported(overlay):
    assert "upstream" not in sys.modules
    overlay.apply()
    from upstream import user

    assert user.use(1) == 3


def test_what_is_imported_while_the_overlay_is_on_is_restored_too(overlay):
    overlay.apply()
    from upstream import late, loading

    assert late.load(1) == 3
    overlay.revert()
    assert late.load is loading.load
    assert late.load(1) == 2


def test_our_own_modules_and_who_uses_them_on_purpose_are_left_alone(overlay, folder):
    import ours.loading
    import upstream.loading

    original = upstream.loading.load
    overlay.apply()
    assert ours.loading.the_old_one is original
    write(folder, {"app.py": "from ours.loading import load"})
    import app

    overlay.revert()
    assert app.load(1) == 3
    assert ours.loading.load(1) == 3


def test_apply_twice_then_revert_once(overlay):
    before = snapshot("upstream.loading", "upstream.user")
    overlay.apply()
    once = snapshot("upstream.loading", "upstream.user")
    overlay.apply()
    assert is_same(snapshot("upstream.loading", "upstream.user"), once)
    overlay.revert()
    assert is_same(snapshot("upstream.loading", "upstream.user"), before)
    overlay.revert()
    assert is_same(snapshot("upstream.loading", "upstream.user"), before)


def test_nested_handles(overlay):
    from upstream import user

    with overlay.apply():
        with overlay.apply() as inner:
            assert user.use(1) == 3
        assert user.use(1) == 3
        inner.revert()
        assert user.use(1) == 3
    assert user.use(1) == 2

    outer = overlay.apply()
    with pytest.raises(KeyError):
        with overlay.apply():
            raise KeyError
    assert user.use(1) == 3
    outer.revert()
    assert user.use(1) == 2


def test_a_handle_from_before_a_revert_does_not_take_out_a_later_overlay(overlay):
    from upstream import user

    early = overlay.apply()
    overlay.revert()
    overlay.apply()
    early.revert()
    assert user.use(1) == 3


def test_a_handle_that_was_not_kept_does_not_outlive_a_revert(overlay):
    from upstream import user

    overlay.apply()
    overlay.revert()
    with overlay.apply():
        assert user.use(1) == 3
    assert user.use(1) == 2


def test_status(overlay):
    assert states(overlay) == dict.fromkeys(REPLACED + ADDED, State.ORIGINAL)
    with overlay.apply():
        assert states(overlay) == dict.fromkeys(REPLACED + ADDED, State.REPLACED)
    row = overlay.status()[0]
    assert (row.symbol, row.file, row.detail, row.patch) == (
        "upstream.loading:load",
        "upstream/loading.py",
        "1.0",
        "series",
    )


@pytest.mark.parametrize(
    "old, new",
    [
        ("value + 1  # wrong", "value + 1  # still wrong"),
        ('"""Load."""', "'''Load differently.'''"),
        ("value + 1", "(value   +\n        1)"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(overlay, folder, old, new):
    edit(folder, old, new)
    overlay.apply()
    assert states(overlay)["load"] is State.REPLACED


def test_unknown_source_is_refused_before_anything_changes(overlay, folder):
    edit(folder, "total = value + 1", "total = value + 7")
    edit(folder, 'return ("old", value)', 'print("hello")\n        return ("old", value)')
    before = snapshot("upstream.loading", "upstream.user")

    with pytest.raises(OverlayError) as caught:
        overlay.apply()

    assert is_same(snapshot("upstream.loading", "upstream.user"), before)
    message = str(caught.value)
    assert "nothing was changed" in message
    assert [row.symbol for row in caught.value.problems] == ["upstream.loading:load", "upstream.loading:Loader.method"]
    load, method = (row.detail.splitlines() for row in caught.value.problems)
    assert load == [
        "--- 1.0 (fingerprints only)",
        f"+++ {folder / 'upstream/loading.py'}",
        "@@ line 3 @@",
        "-(statement 1 of 1.0, text not carried here)",
        "+    total = value + 7  # wrong",
    ]
    assert method[2:] == ["@@ line 18 @@", '+        print("hello")']
    assert all(line in message for line in load + method)


def test_a_statement_less_is_shown(overlay, folder):
    edit(folder, '    """Load."""\n    total = value + 1  # wrong\n    return total\n', "    return total\n")
    detail = overlay.status()[0].detail
    assert detail.splitlines()[2:] == ["@@ line 2 @@", "-(statement 1 of 1.0, text not carried here)"]


def test_another_signature_is_unknown(overlay, folder):
    edit(folder, "def load(value):", "def load(value, strict=True):")
    row = overlay.status()[0]
    assert row.state is State.UNKNOWN
    assert "+def load(value, strict=True):" in row.detail and "-(signature of 1.0" in row.detail


@pytest.mark.parametrize("wraps", [True, False])
def test_what_somebody_else_put_there_is_refused(overlay, wraps):
    from upstream import loading

    original = loading.load

    def wrapper(*args):
        return original(*args)

    loading.load = functools.wraps(original)(wrapper) if wraps else wrapper
    with pytest.raises(OverlayError, match="upstream.loading:load is unknown"):
        overlay.apply()
    loading.load = len
    with pytest.raises(OverlayError, match="no source for"):
        overlay.apply()


@pytest.mark.parametrize("name, kind", [("method", lambda f: f), ("static", staticmethod), ("prop", property)])
def test_what_somebody_wrapped_around_a_method_is_refused(overlay, name, kind):
    from upstream.loading import Loader

    original = vars(Loader)[name]
    function = original.fget if name == "prop" else getattr(original, "__func__", original)
    setattr(Loader, name, kind(functools.wraps(function)(lambda *args: function(*args))))
    with pytest.raises(OverlayError, match=f"Loader.{name} is unknown\n.*wrapped around"):
        overlay.apply()


def test_decorators_that_the_source_names_are_no_wrappers(folder):
    text = "import functools\n\n\ndef same(f):\n    return functools.wraps(f)(lambda *a: f(*a))\n\n\n@same\ndef load(value):\n    return 1\n"
    write(folder, {"upstream/loading.py": text})
    known = {"1.0": fingerprint.find_in_module(text, "load").fingerprint}
    overlay = Overlay([Replacement("upstream.loading", "load", "ours.dropin", patch="series", known=known)])
    write(folder, {"ours/dropin.py": "def load(value):\n    return 2\n"})
    with overlay.apply():
        assert importlib.import_module("upstream.loading").load(0) == 2
    assert importlib.import_module("upstream.loading").load(0) == 1


@pytest.mark.parametrize(
    "old, new, symbol",
    [("def load(value)", "def lode(value)", "load"), ("class Loader(Base)", "class Lader(Base)", "Loader.method")],
)
def test_missing_functions_are_refused(overlay, folder, old, new, symbol):
    edit(folder, old, new)
    write(
        folder,
        {"upstream/user.py": "", "ours/loading.py": OURS["ours/loading.py"].replace("load as the_old_one", "Base")},
    )
    before = snapshot("upstream.loading")
    assert states(overlay)[symbol] is State.MISSING
    with pytest.raises(OverlayError, match=f"upstream.loading:{symbol} is missing"):
        overlay.apply()
    assert is_same(snapshot("upstream.loading"), before)


def test_an_inherited_method_is_not_the_class_s_own(folder):
    row = Replacement("upstream.loading", "Loader.inherited", "ours.loading", patch="series", known={"1.0": ""})
    assert states(Overlay([row])) == {"Loader.inherited": State.MISSING}


def test_upstream_that_cannot_be_imported_is_missing(overlay, folder):
    write(folder, {"upstream/loading.py": "raise RuntimeError('no such device')"})
    assert set(states(overlay).values()) == {State.MISSING}
    with pytest.raises(OverlayError, match="RuntimeError: no such device"):
        overlay.apply()


def test_a_fixed_upstream_is_left_alone(overlay, folder):
    ours = textwrap.dedent(OURS["ours/loading.py"]).replace("from upstream.loading import load as the_old_one", "")
    # The patch series writes such names without the module.
    ours = ours.replace("import upstream.loading as theirs", "").replace("theirs.Loader", "Loader")
    write(folder, {"upstream/loading.py": ours + "\n\nclass Base:\n    pass\n"})
    before = snapshot("upstream.loading", "upstream.user")
    assert states(overlay) == dict.fromkeys(REPLACED + ADDED, State.ALREADY_FIXED)
    with overlay.apply():
        assert is_same(snapshot("upstream.loading", "upstream.user"), before)
    assert is_same(snapshot("upstream.loading", "upstream.user"), before)


def test_a_half_fixed_upstream_gets_the_rest(overlay, folder):
    edit(folder, 'return ("old", value)', 'return ("new", value) if isinstance(self, Loader) else None')
    assert states(overlay)["Loader.method"] is State.ALREADY_FIXED
    overlay.apply()
    now = states(overlay)
    assert now.pop("Loader.method") is State.ALREADY_FIXED
    assert set(now.values()) == {State.REPLACED}


def test_upstream_that_has_gained_an_added_name_of_its_own_is_refused(overlay, folder):
    edit(folder, "def untouched():", "def added():\n    return 'theirs'\n\n\ndef untouched():")
    with pytest.raises(OverlayError, match="upstream.loading:added is unknown") as caught:
        overlay.apply()
    assert "+    return 'theirs'" in str(caught.value)


def test_a_failure_half_way_undoes_what_was_done(folder):
    edit(
        folder,
        "class Loader(Base):",
        "class Meta(type):\n    def __setattr__(cls, name, value):\n        if name == 'prop':\n            raise OSError('read only')\n        super().__setattr__(name, value)\n\n\nclass Loader(Base, metaclass=Meta):",
    )
    overlay = Overlay(make_table())
    before = snapshot("upstream.loading", "upstream.user")
    with pytest.raises(OSError, match="read only"):
        overlay.apply()
    assert is_same(snapshot("upstream.loading", "upstream.user"), before)
    assert set(states(overlay).values()) == {State.ORIGINAL}


def test_revert_leaves_alone_what_somebody_put_over_ours(overlay):
    from upstream import loading

    overlay.apply()
    theirs = loading.load = lambda value: "theirs"
    with pytest.warns(RuntimeWarning, match="left alone.*upstream.loading.load"):
        overlay.revert()
    assert loading.load is theirs
    assert loading.Loader().method(1) == ("old", 1)


def test_apply_again_after_a_reload(overlay):
    from upstream import loading

    overlay.apply()
    importlib.reload(loading)
    assert loading.load(1) == 2
    overlay.apply()
    assert loading.load(1) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        overlay.revert()
    assert loading.load(1) == 2


def test_importing_the_package_patches_nothing_and_is_cheap():
    script = (
        "import sys, colossalai_fork, colossalai_fork.cli, colossalai_fork.overlay\n"
        "print(sorted({'torch', 'colossalai'} & set(sys.modules)), [callable(getattr(colossalai_fork, n)) for n in colossalai_fork.__all__])\n"
        "print(sorted({'torch', 'colossalai'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[] [True, True, True]\n[]\n"
