"""The code of a fold, as a digest: tells that a read model was made by other code even where no version was raised.

Covered is the source of the modules that define ``apply``, ``names`` and ``key``, and of the modules that these import,
directly or not, of three kinds: those of the fold's own top-level package; for a fold in a module outside any package,
those beside it in its folder; and Refold's own parts of folds (``projections.draft``, say). It is compared as a syntax
tree without docstrings, comments and positions, so rewording or reformatting changes nothing.

Not covered, so raise the projection's version when one of them changes what a fold does: the engine and ``events``
(event types have versions of their own), other packages, values bound at run time (a partial's arguments, a closure's
variables, files that a module reads). A fold without source (typed at a prompt, shipped as bytecode) is covered by the
bytecode of its functions alone, without what they call.
"""

from __future__ import annotations

import ast
import linecache
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache, partial
from hashlib import blake2b
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

_OURS = ("events", "migrations", "projections", "services")
_NOT_FOLDS = ("projections.engine", "projections.projection", "projections.registry")
"""What runs folds, not what they are; ``fingerprint.ENGINE_FORMAT`` stands for it."""
_LIBRARIES = frozenset(Path(path).resolve() for path in sysconfig.get_paths().values())
"""Folders in which a module's neighbours are strangers."""


def fold_code(*parts: Callable[..., Any]) -> list[str]:
    """Digests of the code that these functions of a fold are made of; computed once a process for each module."""
    return sorted({_code_of(function) for part in parts for function in _functions(part)})


class _Home(NamedTuple):
    """Where a fold is at home: its top-level package, or for a module outside any package its folder."""

    package: str
    folder: Path | None

    def owns(self, module: str) -> bool:
        """Whether this module's code counts as the fold's."""
        top = module.partition(".")[0]
        if _runs_folds(module):
            return False
        if top == self.package or top == "projections":
            return True
        return self.folder is not None and top not in _OURS and self.folder == _folder_of(_spec(top))


def _runs_folds(module: str) -> bool:
    return f"{module}.".startswith(tuple(f"{name}." for name in _NOT_FOLDS))


def _functions(part: Any) -> Iterator[FunctionType]:
    """The functions that a callable comes down to, each decorator's included."""
    while isinstance(part, partial):
        part = part.func
    part = getattr(part, "__func__", part)
    if not isfunction(part):
        part = type(part).__call__
    while isfunction(part):
        yield part
        part = getattr(part, "__wrapped__", None)


@cache
def _code_of(function: FunctionType) -> str:
    # by its globals: a decorator gives its wrapper the name of another module
    spec = function.__globals__.get("__spec__")
    name = spec.name if spec is not None else str(function.__globals__.get("__name__", ""))
    if _runs_folds(name):
        return ""
    filename = function.__code__.co_filename
    source = "".join(linecache.getlines(filename, function.__globals__))
    if not source:
        return _digest(_bytecode(function.__code__))
    package, dot, _ = name.partition(".")
    if dot or "__path__" in function.__globals__:
        return _closure(_Home(package, None), name, source)
    folder = Path(filename).resolve().parent
    return _closure(_Home("", None if folder in _LIBRARIES else folder), name, source)


@cache
def _closure(home: _Home, name: str, source: str) -> str:
    """Digest of a module and of all that it imports and that is the fold's, in the order of the imports."""
    digests, known, waiting = [], {name}, [(name, source)]
    for module, text in waiting:
        digest, imports = _read(module, text)
        digests.append(digest)
        for wanted in imports:
            # what is imported from a package may be a module of it, or a name in it
            found = [(one, code) for one in wanted if home.owns(one) and (code := _source(one)) is not None]
            if found and found[0][0] not in known:
                known.add(found[0][0])
                waiting.append(found[0])
    return _digest(digests)


@cache
def _read(module: str, source: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The digest of a module and what it imports, wherever in it: for each import the names that it may mean."""
    tree = ast.parse(source)
    imports: dict[tuple[str, ...], None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(((alias.name,), None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, module)
            imports.update(((f"{origin}.{alias.name}", origin), None) for alias in node.names)
    return _digest(_meaning(tree)), tuple(imports)


def _origin(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    spec = _spec(module)
    package = module if spec is not None and spec.submodule_search_locations is not None else module.rpartition(".")[0]
    for _ in range(node.level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{node.module}" if node.module else package


@cache
def _spec(module: str) -> ModuleSpec | None:
    # find_spec imports what is above the name: packages are harmless, but a module would run for being mentioned
    parent = module.rpartition(".")[0]
    if parent:
        above = _spec(parent)
        if above is None or above.submodule_search_locations is None:
            return None
    try:
        return find_spec(module)
    except (ImportError, ValueError):
        return None


@cache
def _source(module: str) -> str | None:
    spec = _spec(module)
    source = getattr(spec.loader, "get_source", None) if spec is not None else None
    return source(module) if source is not None else None


def _folder_of(spec: ModuleSpec | None) -> Path | None:
    """The folder that a top-level module or package lies in."""
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin).resolve().parent if spec.origin and spec.has_location else None


def _meaning(node: Any) -> Any:
    """A syntax tree as nested lists, without bare strings and positions.

    Empty fields are left out, since versions of Python add some; so is whether a name is read or written, which its
    place tells.
    """
    if isinstance(node, ast.AST):
        if isinstance(node, ast.Constant):
            return [type(node.value).__name__, repr(node.value)]
        meaning = [type(node).__name__]
        for name in node._fields:
            value = getattr(node, name, None)
            if name != "ctx" and (value or isinstance(value, int)):
                meaning += [name, _meaning(value)]
        return meaning
    if isinstance(node, list):
        return [_meaning(one) for one in node if not _is_text(one)]
    return node


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _bytecode(code: CodeType) -> list[Any]:
    """What a code object does, without where it came from. Other versions of Python compile otherwise."""
    constants = [_bytecode(one) if isinstance(one, CodeType) else _constant(one) for one in code.co_consts]
    return [code.co_code.hex(), *map(list, (code.co_names, code.co_varnames, code.co_freevars)), constants]


def _constant(value: Any) -> Any:
    """A constant as text: the order in a set follows the hash seed."""
    if isinstance(value, frozenset):
        return ["frozenset", *sorted(map(repr, value))]
    return [_constant(one) for one in value] if isinstance(value, tuple) else [type(value).__name__, repr(value)]


def _digest(value: Any) -> str:
    return blake2b(repr(value).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
