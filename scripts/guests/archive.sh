# Debian packages of any architecture, through a private apt root for each: own state and cache, the system's own
# source list, so the system's architectures stay as they are. Read by scripts/fetch-guests, which gives
# $guests, $work, say and die.

# open_archive ARCH: the package lists of that architecture, once a run.
open_archive() {
    local arch=$1 root=$work/apt-$1
    apt_options=(
        -qq
        -o "APT::Architecture=$arch" -o "APT::Architectures=$arch"
        -o "Dir::State=$root/state" -o "Dir::State::status=$root/status"
        -o "Dir::Cache=$root/cache" -o "Acquire::Languages=none"
        -o "APT::Sandbox::User=$(id -un)" -o "Debug::NoLocking=true"
        -o "Acquire::Retries=2"
    )
    if [ -d "$root" ]; then return; fi
    command -v apt-get >/dev/null 2>&1 || die "cannot fetch packages: apt-get is not here (Debian 12 is needed)"
    mkdir -p "$root/state/lists/partial" "$root/cache/archives/partial"
    : > "$root/status"
    say "reading the package lists ($arch)"
    # A third-party source that has no such architecture may fail here; the download is the judge.
    apt-get "${apt_options[@]}" update >"$work/log-$arch" 2>&1 || true
}

# newest ARCH METAPACKAGE: the package that a metapackage of kernels stands for now.
newest() {
    local package
    open_archive "$1"
    package=$(apt-cache "${apt_options[@]}" show --no-all-versions "$2" 2>>"$work/log-$1" |
        sed -n 's/^Depends: \(linux-image-[^ ,]*\).*/\1/p')
    if [ -z "$package" ]; then
        sed 's/^/    /' "$work/log-$1" >&2
        die "cannot fetch $2 ($1): the package archive cannot be reached or does not offer it; the network is needed once"
    fi
    printf '%s\n' "$package"
}

# fetch_deb ARCH PACKAGE [PATTERN ...]: the package is $deb then, what it has of these paths is in $tree.
fetch_deb() {
    local arch=$1 package=$2 folder=$work/$2-$1
    shift 2
    open_archive "$arch"
    say "fetching $package ($arch)"
    deb=
    tree=$folder/tree
    rm -rf "$folder"
    mkdir -p "$tree"
    if ! (cd "$folder" && apt-get "${apt_options[@]}" download "$package") >>"$work/log-$arch" 2>&1; then
        sed 's/^/    /' "$work/log-$arch" >&2
        die "cannot fetch $package ($arch): the package archive cannot be reached or does not offer it; the network is needed once"
    fi
    deb=$(echo "$folder"/*.deb)
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tree" --wildcards "$@" ||
        die "$package ($arch) has not all of: $*"
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

# have FILE ...: whether each is there and recorded. With --force nothing is.
have() {
    local file
    [ -z "$force" ] || return 1
    for file in "$@"; do
        [ -s "$guests/$file" ] && grep -qF " $file sha256:" "$guests/VERSIONS" 2>/dev/null || return 1
    done
}
