_trapline() {
    local IFS=$'\n'
    COMPREPLY=($(
        _TRAPLINE_COMPLETE=bash \
        _TRAPLINE_BEFORE="${COMP_LINE:0:COMP_POINT}" \
        _TRAPLINE_AFTER="${COMP_LINE:COMP_POINT}" \
        _TRAPLINE_WORD="$2" \
            "${1-trapline}" -- trapline 2>/dev/null
    ))
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o nosort -F _trapline trapline 2>/dev/null || complete -F _trapline trapline
