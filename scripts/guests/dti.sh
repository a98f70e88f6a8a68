# The modules of the Driver Tracing Interface for Linux, one with a mistake for the fuzzer, and one with macro-declared probes, built
# from guest-images/linux/ with the headers of the kernel that was fetched. Read by scripts/fetch-guests.

dti_sources=(guest-images/linux/{Kbuild,dti.c,dti_open.c,dti_sample.c,planted.c,probed.c} guest-images/include/trapline/{dti,dti_ring,probe}.h)
dti_modules=(dti.ko dti_sample.ko dti_open.ko planted.ko probed.ko)

# unpack ARCH PACKAGE: adds a package to the tree $headers.
unpack() {
    fetch_deb "$1" "$2" './usr/*'
    mkdir -p "$headers"
    cp -a "$tree/." "$headers/"
    rm -rf "$tree"
}

# build_dti ARCH FLAVOUR: dti-FLAVOUR/ with the modules, and in FROM what they were built from.
build_dti() {
    local arch=$1 flavour=$2 release headers=$work/headers module from
    release=$(release_of "linux-$flavour")
    from="$release $(cat "${dti_sources[@]}" | sha256sum | cut -d' ' -f1)"
    have "${dti_modules[@]/#/dti-$flavour/}" && [ "$from" = "$(cat "$guests/dti-$flavour/FROM" 2>/dev/null)" ] && return
    # The tools that run here; those of any version of this series will do.
    [ -d "$headers/usr/lib/linux-kbuild-6.1" ] || unpack "$(dpkg --print-architecture)" linux-kbuild-6.1
    local common=linux-headers-${release%"-$flavour"}-common
    [ -d "$headers/usr/src/$common" ] || unpack "$arch" "$common"
    unpack "$arch" "linux-headers-$release"
    local build=$headers/usr/src/linux-headers-$release sources=$work/dti-$flavour
    # It names the folder into which the package would have been installed.
    sed -i "s|/usr/src/|$headers/usr/src/|" "$build/Makefile"
    mkdir -p "$sources/include/trapline" "$guests/dti-$flavour"
    cp -r guest-images/linux "$sources/linux"
    cp guest-images/include/trapline/{dti*,probe}.h "$sources/include/trapline/"
    say "building dti.ko ($flavour)"
    make -s -C "$build" M="$sources/linux" modules >"$work/log-dti" 2>&1 || {
        sed 's/^/    /' "$work/log-dti" >&2
        die "dti.ko cannot be built for $release"
    }
    for module in "${dti_modules[@]}"; do
        strip --strip-debug "$sources/linux/$module"
        keep 0644 "$sources/linux/$module" "dti-$flavour/$module"
    done
    record "${dti_modules[@]/#/dti-$flavour/}"
    printf '%s\n' "$from" > "$guests/dti-$flavour/FROM"
}
