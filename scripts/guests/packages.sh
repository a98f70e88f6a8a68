# What is taken out of which package. Read by scripts/fetch-guests.

# The modules that tests load. e1000 is not in the cloud kernel; ext4 and what it needs, crc32c_generic too, are
# built into it.
modules=(loop dummy tun binfmt_misc e1000 virtio_mmio virtio_pci virtio_blk virtio_console virtio_net virtio-rng crc32c_generic ext4)

fetch_gnumach() {
    have gnumach gnumach.gz && return
    fetch_deb i386 gnumach-image-1.8-486-dbg './boot/*'
    local image="$tree/boot/gnumach-1.8-486-dbg.gz"
    keep 0644 "$image" gnumach.gz
    gzip -dc "$image" > "$work/gnumach"
    keep 0644 "$work/gnumach" gnumach
    record gnumach gnumach.gz
}

# fetch_gnumach_of ARCH FLAVOUR SUITE NAME: the kernel of that package of another release of Debian as NAME.gz.
fetch_gnumach_of() {
    local suite=$3
    have "$4.gz" && return
    fetch_deb "$1" "gnumach-image-1.8-$2" './boot/*'
    keep 0644 "$tree/boot/gnumach-1.8-$2.gz" "$4.gz"
    record "$4.gz"
}

# fetch_linux ARCH FLAVOUR [VERSION SUITE]: linux-FLAVOUR, its configuration, and modules-FLAVOUR/ with modules.dep. The
# kernel of another release of Debian has its version before the flavour: linux-VERSION-FLAVOUR. That of testing, whose version
# changes, has the word testing.
fetch_linux() {
    local arch=$1 name=${3:+$3-}$2 suite=${4-} package release
    have "linux-$name" "linux-$name.config" "modules-$name/modules.dep" && return
    fetch_newest "$arch" "linux-image-$2"
    release=${package#linux-image-}
    case ${3-}:$release in
        testing:*) ;;
        "${3-}:${3-}"*) ;;
        *) die "$package of Debian's $suite is not Linux $3, which the tests expect" ;;
    esac
    case " $(dpkg-deb -f "$deb" Depends)" in
        # From Debian 14 on it is empty, and depends on its parts.
        *" linux-binary-$release "*)
            local folder=usr/lib/modules/$release
            fetch_deb "$arch" "linux-base-$release" "./$folder/config"
            keep 0644 "$tree/$folder/config" "linux-$name.config"
            record "linux-$name.config"
            fetch_deb "$arch" "linux-binary-$release" "./$folder/vmlinuz"
            keep 0644 "$tree/$folder/vmlinuz" "linux-$name"
            record "linux-$name"
            fetch_deb "$arch" "linux-modules-$release" '*.ko*'
            ;;
        *)
            take './boot/*' '*/lib/modules/*.ko*'
            keep 0644 "$tree/boot/vmlinuz-$release" "linux-$name"
            keep 0644 "$tree/boot/config-$release" "linux-$name.config"
            record "linux-$name" "linux-$name.config"
            ;;
    esac
    rm -rf "$guests/modules-$name" "$work/modules"
    mkdir "$work/modules"
    : > "$work/modules/modules.dep"
    local module
    for module in "${modules[@]}"; do take_module "$module"; done
    mv "$work/modules" "$guests/modules-$name"
    record "modules-$name/modules.dep"
    rm -rf "$tree" "$deb"
}

# take_module NAME: the module and, before it, what it depends on; one line each in modules.dep, which has
# every dependency after the module that needs it, as depmod does.
take_module() {
    local file needs need line
    file=$(find "$tree" -path '*/lib/modules/*' -name "${1//[_-]/[_-]}.ko*")
    [ -n "$file" ] || return 0
    # Debian 13 has compressed modules, which busybox does not load.
    if [ "${file##*.}" = xz ]; then
        xz -d "$file"
        file=${file%.xz}
    fi
    [ ! -e "$work/modules/${file##*/}" ] || return 0
    cp "$file" "$work/modules/"
    line="${file##*/}:"
    needs=$(LC_ALL=C grep -az '^depends=' "$file" | tr -d '\0')
    needs=${needs#depends=}
    for need in ${needs//,/ }; do
        take_module "$need"
        need=$(find "$work/modules" -name "${need//[_-]/[_-]}.ko")
        line+=" ${need##*/} $(sed -n "s/^${need##*/}: *//p" "$work/modules/modules.dep")"
    done
    # Of a module that is there twice the last stays.
    awk '{ for (i = NF; i > 1; i--) if (!seen[$i]++) rest = " " $i rest; print $1 rest }' <<< "$line" \
        >> "$work/modules/modules.dep"
}

# fetch_program ARCH PACKAGE NAME: a static program of /bin as NAME-ARCH.
fetch_program() {
    have "$3-$1" && return
    fetch_deb "$1" "$2" './bin/*'
    keep 0755 "$(find "$tree/bin" -type f -name "$3*")" "$3-$1"
    record "$3-$1"
}

# fetch_sdt PACKAGE PATH NAME: an amd64 file with static probe sites (.note.stapsdt) as sdt/NAME. PATH is a pattern.
fetch_sdt() {
    have "sdt/$3" && return
    fetch_deb amd64 "$1" ".$2"
    mkdir -p "$guests/sdt"
    keep 0644 "$(find "$tree" -type f)" "sdt/$3"
    record "sdt/$3"
}

# fetch_files ARCH FOLDER MODE PACKAGE PATTERN NAME [PATTERN NAME ...]: files of a package as FOLDER/NAME.
fetch_files() {
    local arch=$1 folder=$2 mode=$3 package=$4 patterns=() names=()
    shift 4
    while [ $# -gt 0 ]; do
        patterns+=(".$1")
        names+=("$folder/$2")
        shift 2
    done
    have "${names[@]}" && return
    fetch_deb "$arch" "$package" "${patterns[@]}"
    mkdir -p "$guests/$folder"
    local n
    for n in "${!names[@]}"; do
        keep "$mode" "$(find "$tree" -type f -path "$tree${patterns[$n]#.}")" "${names[$n]}"
    done
    record "${names[@]}"
}

# fetch_runtime PACKAGE PATTERN NAME [PATTERN NAME ...]: files that dynamic amd64 programs need as runtime/NAME.
fetch_runtime() { fetch_files amd64 runtime 0644 "$@"; }

# fetch_i386 PACKAGE PATTERN NAME [PATTERN NAME ...]: files of an IA32 tool as i386/NAME. makedumpfile reads only dumps of
# the architecture that it was built for.
fetch_i386() { fetch_files i386 i386 0755 "$@"; }

fetch_memtest() {
    have memtest86+ia32.bin memtest86+x64.bin && return
    fetch_deb i386 memtest86+ './boot/*.bin'
    local file
    for file in memtest86+ia32.bin memtest86+x64.bin; do
        keep 0644 "$tree/boot/$file" "$file"
        record "$file"
    done
}
