# bash completion for swapnetctl(1)

# Names of sockets and stores are whoever made them: only what looks like one of ours is offered, and never through
# compgen -W, which has the shell expand $(...) in its words.
_swapnetctl_offer()
{
    local cur=$1 pattern=$2 word
    while IFS= read -r word; do
        [[ $word =~ ^$pattern$ && $word == "$cur"* ]] && COMPREPLY+=("$word")
    done
}

_swapnetctl_pids()
{
    local dir sock
    for dir in "${XDG_RUNTIME_DIR:-/nonexistent}/swapnet" /run/swapnet; do
        for sock in "$dir"/*.sock; do
            sock=${sock%.sock}
            [[ -S $sock.sock ]] && printf '%s\n' "${sock##*/}"
        done
    done
}

# Files and commands by the options of compgen. With -o filenames bash quotes what it puts in the line: else a file's name
# is run once the user presses Enter.
_swapnetctl_files()
{
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}

_swapnetctl()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "run verify doctor status list top set total drain profile plan serve cache add-torch version help --help --version" -- "$cur")
        return
    fi
    case $command in
    run)
        # behind the program's name its own completion goes on
        for ((i = 2; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            --) ((i++)); break ;;
            -b | --budget | --memory | --device-budget | --unified | --name | --urgency | --daemon | -s | --store | --stats | --trace | --fetch | --library | --profile) ((i++)) ;;
            -*) ;;
            *) break ;;
            esac
        done
        if ((i < COMP_CWORD)) || [[ $i -eq $COMP_CWORD && ${COMP_WORDS[i - 1]} == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset "$i"
            elif ((i == COMP_CWORD)); then
                _swapnetctl_files -c
            fi
            return
        fi
        case $prev in
        -b | --budget | --memory | --device-budget) mapfile -t COMPREPLY < <(compgen -W "64M 128M 256M 512M 1G 2G" -- "$cur") ;;
        -s | --store) _swapnetctl_files -d ;;
        --stats | --trace | --library | --profile) _swapnetctl_files -f ;;
        --fetch) mapfile -t COMPREPLY < <(compgen -W "auto uring pread buffered" -- "$cur") ;;
        --unified) mapfile -t COMPREPLY < <(compgen -W "auto off pageable registered managed" -- "$cur") ;;
        --daemon) _swapnetctl_files -f -W "auto off" ;;
        --name | --urgency) ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--budget --profile --memory --device-budget --unified --name --urgency --daemon --store --stats --trace --fetch --strict --verbose
                    --library --help --" -- "$cur")
            else
                _swapnetctl_files -c
            fi
            ;;
        esac
        ;;
    verify)
        case $prev in
        -b | --budget | --memory) mapfile -t COMPREPLY < <(compgen -W "64M 128M 256M 512M 1G 2G" -- "$cur") ;;
        -s | --store | --model-repository) _swapnetctl_files -d ;;
        --server) mapfile -t COMPREPLY < <(compgen -W "127.0.0.1:8000" -- "$cur") ;;
        --threads | --requests | --seed | --shape) COMPREPLY=() ;;
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--budget --memory --store --model-repository --server --requests --seed --shape --threads --output --help --" -- "$cur")
            else
                _swapnetctl_files -c -f
            fi
            ;;
        esac
        ;;
    doctor)
        case $prev in
        -s | --store) _swapnetctl_files -d ;;
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--output --json --store --help --" -- "$cur")
            else
                _swapnetctl_files -c -f
            fi
            ;;
        esac
        ;;
    serve)
        case $prev in
        serve) mapfile -t COMPREPLY < <(compgen -W "plan --help" -- "$cur") ;;
        -f | --from) _swapnetctl_files -f ;;
        -b | --budget) mapfile -t COMPREPLY < <(compgen -W "64M 128M 256M 512M 1G 2G" -- "$cur") ;;
        --policy) mapfile -t COMPREPLY < <(compgen -W "completion exact tardy tardy-paper edf no-batch batch dynamic lazy nexus symphony lookahead masa masa-ordered masa-code bulk deepeye deepeye-frugal" -- "$cur") ;;
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        -d | --duration | --disk | --seed | --time-error | --turns) COMPREPLY=() ;;
        --arrivals) mapfile -t COMPREPLY < <(compgen -W "poisson pareto constant" -- "$cur") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "--from --budget --duration --policy --disk --seed --arrivals --time-error --turns --output --help" -- "$cur") ;;
        esac
        ;;
    status | list)
        case $prev in
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--output --help" -- "$cur")
            else
                _swapnetctl_offer "$cur" '[0-9]+' < <(_swapnetctl_pids)
            fi
            ;;
        esac
        ;;
    top)
        case $prev in
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        -d | --delay | -n | --times) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "--delay --times --output --help" -- "$cur") ;;
        esac
        ;;
    set)
        case $prev in
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--output --help" -- "$cur")
            elif ((COMP_CWORD == 2)); then
                _swapnetctl_offer "$cur" '[0-9]+' < <(_swapnetctl_pids)
            else
                compopt -o nospace 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -W "budget= urgency=" -- "$cur")
            fi
            ;;
        esac
        ;;
    total | drain | version)
        case $prev in
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        *)
            if [[ $cur == -* || $command != total ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--output --help" -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -W "auto 256M 512M 1G 2G 4G" -- "$cur")
            fi
            ;;
        esac
        ;;
    profile)
        case $prev in
        -o | --output | --show) _swapnetctl_files -f ;;
        -b | --budget) mapfile -t COMPREPLY < <(compgen -W "64M 128M 256M 512M 1G 2G" -- "$cur") ;;
        -s | --store) _swapnetctl_files -d ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--output --budget --store --disk --show --help --" -- "$cur")
            else
                _swapnetctl_files -c -f
            fi
            ;;
        esac
        ;;
    plan)
        case $prev in
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        -t | --total) mapfile -t COMPREPLY < <(compgen -W "256M 512M 1G 2G 4G" -- "$cur") ;;
        --policy) mapfile -t COMPREPLY < <(compgen -W "eq1 equal minmax" -- "$cur") ;;
        -d | --device)
            _swapnetctl_files -f -W "jetson-nx jetson-nano raspberry-pi-3b-plus raspberry-pi-4b"
            ;;
        --delta) ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--total --policy --device --delta --output --help" -- "$cur")
            else
                _swapnetctl_files -f
            fi
            ;;
        esac
        ;;
    cache)
        case $prev in
        -o | --output) mapfile -t COMPREPLY < <(compgen -W "table json csv" -- "$cur") ;;
        -s | --store) _swapnetctl_files -d ;;
        cap) mapfile -t COMPREPLY < <(compgen -W "none 10G 20G 50G" -- "$cur") ;;
        *)
            if ((COMP_CWORD == 2)) && [[ $cur != -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "ls rm cap" -- "$cur")
            elif [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--output --all --store --help" -- "$cur")
            elif [[ ${COMP_WORDS[2]} == rm ]]; then
                _swapnetctl_offer "$cur" '[0-9a-f]+\.swnstore' < <(swapnetctl cache ls -o json 2>/dev/null |
                    sed -n 's/.*"name": "\(.*\)",*$/\1/p')
            fi
            ;;
        esac
        ;;
    add-torch)
        case $prev in
        -j | --jobs) ;;
        *)
            if [[ $cur == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "--jobs --no-serve --help" -- "$cur")
            else
                _swapnetctl_files -c -f
            fi
            ;;
        esac
        ;;
    help)
        mapfile -t COMPREPLY < <(compgen -W "run verify doctor status list top set total drain profile plan serve cache add-torch version help" -- "$cur")
        ;;
    esac
}

complete -F _swapnetctl swapnetctl
