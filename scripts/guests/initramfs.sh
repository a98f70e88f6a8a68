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

# make_image FOLDER LIST IMAGE
make_image() {
    say "making $3"
    scripts/guests/newc --root "$1" "$2" "$guests/$3"
}
