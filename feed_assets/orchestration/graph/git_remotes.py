"""Link files to GitHub or GitLab: read the remote of a Git checkout from its files, without Git and without network."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlsplit

_REMOTE = re.compile(r'^\s*\[remote "(.*)"\]\s*$')  # [remote "origin"]
_URL = re.compile(r"^\s*url\s*=\s*(\S+)\s*$")  # url = git@github.com:team/project.git
_SHORT = re.compile(r"^(?:[^@/]+@)?([^:/]+):(?!//)(.+)$")  # git@github.com:team/project.git
_BRANCH = "ref: refs/heads/"
_DEFAULT_BRANCH = "HEAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitRemote:
    """A checkout whose remote has pages for files. `pages` is the URL of the page of `folder` itself."""

    folder: Path
    pages: str

    def url(self, file: Path, line: int | None) -> str:
        """Return the URL of the page of a file of the checkout."""
        below = quote(file.relative_to(self.folder).as_posix())
        return f"{self.pages}/{below}" + ("" if line is None else f"#L{line}")


@lru_cache(maxsize=4096)
def find_remote(folder: Path) -> GitRemote | None:
    """Return the remote of the checkout that a folder is in; None without one, or if it is neither GitHub nor GitLab.

    Pages are those of the branch that is checked out, if the remote has it, else of its default branch; of a commit
    that is checked out without a branch, those of the commit. Installed packages are not files of a checkout.
    """
    if folder.name == "site-packages":
        return None
    git = folder / ".git"
    if not git.exists():
        return find_remote(folder.parent) if folder != folder.parent else None
    try:
        return _read_remote(folder, git)
    except (OSError, UnicodeDecodeError):
        return None


def _read_remote(folder: Path, git: Path) -> GitRemote | None:
    if git.is_file():  # of a worktree or a submodule: gitdir: ../.git/worktrees/one
        git = folder / git.read_text("utf-8").removeprefix("gitdir:").strip()
    common = git / "commondir"
    shared = git / common.read_text("utf-8").strip() if common.is_file() else git
    remotes = _read_urls((shared / "config").read_text("utf-8"))
    name = "origin" if "origin" in remotes else next(iter(remotes), None)
    address = None if name is None else find_web_address(remotes[name])
    if address is None or name is None:
        return None
    platform = "/-/blob" if "gitlab" in address else "/blob"
    return GitRemote(folder=folder, pages=f"{address}{platform}/{quote(_read_revision(git, shared, name))}")


def _read_urls(config: str) -> dict[str, str]:
    """Return the URLs of the remotes in a configuration of Git, by the names of the remotes."""
    found: dict[str, str] = {}
    remote = None
    for line in config.splitlines():
        if (section := _REMOTE.match(line)) is not None:
            remote = section[1]
        elif line.lstrip().startswith("["):
            remote = None
        elif remote is not None and (url := _URL.match(line)) is not None:
            found.setdefault(remote, url[1])
    return found


def _read_revision(git: Path, shared: Path, remote: str) -> str:
    head = (git / "HEAD").read_text("utf-8").strip()
    if not head.startswith(_BRANCH):
        return head
    branch = head.removeprefix(_BRANCH)
    known = f"refs/remotes/{remote}/{branch}"
    packed = shared / "packed-refs"
    is_known = (shared / known).is_file() or (packed.is_file() and f" {known}\n" in packed.read_text("utf-8"))
    return branch if is_known else _DEFAULT_BRANCH


def find_web_address(url: str) -> str | None:
    """Return the address of a repository's pages for the URL from which it is fetched, without credentials.

    None if it is neither on GitHub nor on GitLab.

    >>> find_web_address("git@github.com:team/project.git"), find_web_address("https://me:secret@gitlab.com/a/b")
    ('https://github.com/team/project', 'https://gitlab.com/a/b')
    """
    if "://" in url:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port and parts.scheme in {"http", "https"} else ""
        host, path = f"{parts.hostname or ''}{port}", parts.path
    elif (short := _SHORT.match(url)) is not None:
        host, path = short[1], short[2]
    else:
        return None
    if "github" not in host and "gitlab" not in host:
        return None
    return f"https://{host}/{path.strip('/').removesuffix('.git')}"
