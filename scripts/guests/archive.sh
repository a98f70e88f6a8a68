# Debian packages of any architecture, through a private apt root for each: own state and cache, the system's own
# source list, so the system's architectures stay as they are. Read by scripts/fetch-guests, which gives
# $guests, $work, say and die.

# Debian's name of the release whose packages are fetched; empty: what the system's sources have.
suite=

# derived_sources FOLDER: the system's sources in FOLDER, with $suite in place of the release that they name.
derived_sources() {
    local own file
    own=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME-}")
    [ -n "$own" ] || die "cannot fetch packages of Debian's $suite: /etc/os-release does not say what the system's own release is"
    mkdir -p "$1"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
        if [ -f "$file" ]; then sed "s/\\b$own\\b/$suite/g" "$file" > "$1/${file##*/}"; fi
    done
    # Only its parts are read then; apt tells the two forms apart by the ending.
    if [ -f "$1/sources.list" ]; then mv "$1/sources.list" "$1/main.list"; fi
}

# open_archive ARCH: the package lists of that architecture and $suite, once a run.
open_archive() {
    local arch=$1 root=$work/apt-$1${suite:+-$suite}
    log=$work/log-$1${suite:+-$suite}
    apt_options=(
        -qq
        -o "APT::Architecture=$arch" -o "APT::Architectures=$arch"
        -o "Dir::State=$root/state" -o "Dir::State::status=$root/status"
        -o "Dir::Cache=$root/cache" -o "Acquire::Languages=none"
        -o "APT::Sandbox::User=$(id -un)" -o "Debug::NoLocking=true"
        -o "Acquire::Retries=2" -o "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"
    )
    if [ -n "$suite" ]; then
        apt_options+=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$root/sources")
    fi
    if [ -d "$root" ]; then return; fi
    command -v apt-get >/dev/null 2>&1 || die "cannot fetch packages: apt-get is not here (Debian 12 is needed)"
    mkdir -p "$root/state/lists/partial" "$root/cache/archives/partial"
    : > "$root/status"
    if [ -n "$suite" ]; then derived_sources "$root/sources"; fi
    say "reading the package lists ($arch${suite:+, $suite})"
    # A third-party source that has no such architecture may fail here; the download is the judge.
    apt-get "${apt_options[@]}" update >"$log" 2>&1 || true
}

# cannot_fetch ARCH PACKAGE: ends the run, with what apt said.
cannot_fetch() {
    sed 's/^/    /' "$log" >&2
    die "cannot fetch $2 ($1${suite:+, $suite}): the package archive cannot be reached or does not offer it; the network is needed once"
}

# try_deb ARCH PACKAGE: the package is $deb then. False if the archive does not have it.
try_deb() {
    local arch=$1 package=$2 folder=$work/$2-$1
    open_archive "$arch"
    say "fetching $package ($arch)"
    rm -rf "$folder"
    mkdir -p "$folder/tree"
    (cd "$folder" && apt-get "${apt_options[@]}" download "$package") >>"$log" 2>&1 || return 1
    deb=$(echo "$folder"/*.deb)
    tree=$folder/tree
}

# take PATTERN ...: what $deb has of these paths is in $tree.
take() {
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tree" --wildcards "$@" ||
        die "$(basename "$deb") has not all of: $*"
}

# fetch_deb ARCH PACKAGE [PATTERN ...]: the package is $deb then, what it has of these paths is in $tree.
fetch_deb() {
    try_deb "$1" "$2" || cannot_fetch "$1" "$2"
    take "${@:3}"
}

# fetch_newest ARCH METAPACKAGE: $package, the newest of the kernels that it stands for, as fetch_deb does without paths. While
# an archive is being changed, its list may be ahead of its files: then an older one.
fetch_newest() {
    local packages
    open_archive "$1"
    packages=$(apt-cache "${apt_options[@]}" show "$2" 2>>"$log" |
        sed -n 's/^Depends: \(.*, \)\?\(linux-image-[^ ,]*\).*/\2/p')
    for package in $packages; do
        if try_deb "$1" "$package"; then return; fi
    done
    cannot_fetch "$1" "$2"
}

# keep MODE SOURCE FILE: puts a file beside its place in .guests, then there.
keep() {
    [ -s "$2" ] || die "$(basename "$deb") has no ${2#"$tree"}"
    install -m "$1" "$2" "$guests/$3.tmp"
    mv "$guests/$3.tmp" "$guests/$3"
}

# record FILE ...: a line for each file of the package $deb in VERSIONS, in place of the file's former one.
record() {
    local package version arch file
    package=$(dpkg-deb -f "$deb" Package)
    version=$(dpkg-deb -f "$deb" Version)
    arch=$(dpkg-deb -f "$deb" Architecture)
    touch "$guests/VERSIONS"
    for file in "$@"; do
        {
            awk -v file="$file" '$4 != file' "$guests/VERSIONS"
            printf '%s %s %s %s sha256:%s\n' "$package" "$version" "$arch" "$file" \
                "$(sha256sum < "$guests/$file" | cut -d' ' -f1)"
        } | LC_ALL=C sort > "$guests/VERSIONS.tmp"
        mv "$guests/VERSIONS.tmp" "$guests/VERSIONS"
    done
}

# release_of FILE: the release of the kernel that was fetched as FILE.
release_of() {
    sed -n "s/^linux-\(image\|binary\)-\([^ ]*\) [^ ]* [^ ]* $1 .*/\2/p" "$guests/VERSIONS"
}

# have FILE ...: whether each is there and recorded. With --force nothing is.
have() {
    local file
    [ -z "$force" ] || return 1
    for file in "$@"; do
        [ -s "$guests/$file" ] && grep -qF " $file sha256:" "$guests/VERSIONS" 2>/dev/null || return 1
    done
}
