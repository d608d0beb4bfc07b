# bash completion for swapnet-partition(1)

_swapnet_partition()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words=--help
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "inspect build plan table verify extract version help --help --version" -- "$cur")
        return
    fi
    case $command:$prev in
    inspect:-o | inspect:--output | plan:-o | plan:--output | table:-o | table:--output)
        mapfile -t COMPREPLY < <(compgen -W "table json" -- "$cur")
        return
        ;;
    plan:-b | plan:--budget)
        mapfile -t COMPREPLY < <(compgen -W "64M 128M 256M 512M 1G 2G" -- "$cur")
        return
        ;;
    plan:-n | plan:--blocks | table:-n | table:--blocks | plan:--delta) return ;;
    plan:-d | plan:--device | table:-d | table:--device)
        mapfile -t COMPREPLY < <(compgen -f -W "jetson-nx jetson-nano raspberry-pi-3b-plus raspberry-pi-4b" -- "$cur")
        return
        ;;
    version:-o | version:--output)
        mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur")
        return
        ;;
    build:--encoding)
        mapfile -t COMPREPLY < <(compgen -W "auto narrow raw" -- "$cur")
        return
        ;;
    build:-s | build:--store)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    help:*)
        mapfile -t COMPREPLY < <(compgen -W "inspect build plan table verify extract version help" -- "$cur")
        return
        ;;
    esac
    case $command in
    inspect) words="--output --help" ;;
    build) words="--output --order --from-store --encoding --store --quiet --help" ;;
    plan) words="--budget --blocks --profile --device --delta --curve --output --help" ;;
    table) words="--blocks --profile --device --output --help" ;;
    extract) words="--output --skip --help" ;;
    version) words="--output --help" ;;
    esac
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}

complete -o filenames -F _swapnet_partition swapnet-partition
