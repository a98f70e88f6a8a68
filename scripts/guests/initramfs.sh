# The initramfs images, from guest-images/initramfs/ and what was fetched. Read by scripts/fetch-guests.

recipes=guest-images/initramfs

# current IMAGE SOURCE ...: whether the image is newer than all that it is made of.
current() {
    local image=$guests/$1 source
    shift
    [ -s "$image" ] || return 1
    for source in "$@" scripts/guests/newc scripts/guests/initramfs.sh "$recipes/base.list"; do
        [ ! "$source" -nt "$image" ] || return 1
    done
}

# make_shell ARCH: a shell on the console, for any kernel of that architecture.
make_shell() {
    local image=initramfs-$1.cpio.gz folder=$work/initramfs-$1
    current "$image" "$guests/busybox-$1" "$recipes/shell.init" && return
    mkdir "$folder"
    cp "$guests/busybox-$1" "$folder/busybox"
    cp "$recipes/shell.init" "$folder/init"
    make_image "$folder" "$recipes/base.list" "$image"
}

# make_stress ARCH FLAVOUR PROGRAM [PROGRAM32]: the stress script for one kernel, with its modules. PROGRAM is what
# guest-images/prebuilt/ has for its width; a 64-bit kernel runs the one for 32 bits too.
make_stress() {
    local arch=$1 flavour=$2 image=stress-$2.cpio.gz folder=$work/stress-$2 program release file
    local inputs=("$guests/busybox-$arch" "$guests/modules-$flavour/modules.dep" "$recipes/stress.init")
    for program in "${@:3}"; do inputs+=("guest-images/prebuilt/$program"); done
    current "$image" "${inputs[@]}" && return
    release=$(release_of "linux-$flavour")
    mkdir "$folder"
    cp "$guests/busybox-$arch" "$folder/busybox"
    cp "$recipes/stress.init" "$folder/init"
    cp -r "$guests/modules-$flavour" "$folder/modules"
    cp "guest-images/prebuilt/$3" "$folder/stress"
    {
        cat "$recipes/base.list"
        echo 'file /bin/stress stress 755'
        if [ $# -gt 3 ]; then
            cp "guest-images/prebuilt/$4" "$folder/stress32"
            echo 'file /bin/stress32 stress32 755'
        fi
        printf 'dir %s 755\n' /lib /lib/modules "/lib/modules/$release"
        for file in "$folder"/modules/*; do
            echo "file /lib/modules/$release/${file##*/} modules/${file##*/} 644"
        done
    } > "$folder/list"
    make_image "$folder" "$folder/list" "$image"
}

# make_static: dynamic programs with static probes: python3.11 with just what it needs to run a script, and what C and C++
# programs need. Not packed, so that the guest need not unpack it; a test adds an archive with its programs and /test.
make_static() {
    local image=static-amd64.cpio folder=$work/static
    local inputs=("$guests/busybox-amd64" "$guests/sdt/python3.11" "$guests/sdt/libstdc++.so.6" "$guests"/runtime/*)
    current "$image" "${inputs[@]}" "$recipes/static.init" "$recipes/static.list" && return
    mkdir "$folder"
    cp "${inputs[@]}" "$folder"
    mv "$folder/busybox-amd64" "$folder/busybox"
    cp "$recipes/static.init" "$folder/init"
    cat "$recipes/base.list" "$recipes/static.list" > "$folder/list"
    make_image "$folder" "$folder/list" "$image"
}

# make_image FOLDER LIST IMAGE
make_image() {
    say "making $3"
    scripts/guests/newc --root "$1" "$2" "$guests/$3"
}

# make_dti ARCH FLAVOUR: drivers that trace, for one kernel.
make_dti() {
    local image=dti-$2.cpio.gz folder=$work/dti-image-$2 module
    local inputs=("$guests/busybox-$1" "$guests/dti-$2"/*.ko)
    current "$image" "${inputs[@]}" "$recipes/dti.init" && return
    mkdir "$folder"
    cp "$guests/dti-$2"/*.ko "$folder"
    cp "$guests/busybox-$1" "$folder/busybox"
    cp "$recipes/dti.init" "$folder/init"
    {
        cat "$recipes/base.list"
        echo 'dir /lib 755'
        for module in "$folder"/*.ko; do echo "file /lib/${module##*/} ${module##*/} 644"; done
    } > "$folder/list"
    make_image "$folder" "$folder/list" "$image"
}
