#compdef trapline
_trapline() {
    local -a replies done open line=("${(@Q)words}")
    # The word at the cursor may have an open quote.
    line[CURRENT]=${(Q)PREFIX}${(Q)SUFFIX}
    replies=("${(@f)$(
        _TRAPLINE_COMPLETE=zsh _TRAPLINE_INDEX=$((CURRENT - 1)) \
            ${(Q)words[1]} -- "$line[@]" 2>/dev/null
    )}")
    done=("${(@)${(@M)replies:#=*}#=}")
    open=("${(@)${(@M)replies:#+*}#+}")
    (($#done)) && _describe -V values done
    (($#open)) && _describe -V values open -S ''
}
if [[ $funcstack[1] == _trapline ]]; then
    _trapline "$@"
else
    compdef _trapline trapline
fi
