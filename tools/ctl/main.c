/* tools/ctl/main.c - the table of commands and their help texts; each command is in its own file in tools/ctl. */
#include "tools/ctl/ctl.h"

static const struct swn_cli_command commands[] = {
    {"run", ctl_run, "run a program within a memory budget",
     "Usage: swapnetctl run [--budget SIZE|--memory SIZE] [OPTION]... [--] COMMAND [ARGUMENT]...\n"
     "\n"
     "Runs COMMAND with libswapnet.so in front of LD_PRELOAD. Options win over SWAPNET_* in the environment.\n"
     "\n"
     "  -b, --budget SIZE   memory for tensors, e.g. 256M or 1.5G (at least 4M); auto: what there is;\n"
     "                      N%: activations and that share of the weights, with --profile\n"
     "      --profile FILE  the model profile that N% is of, see 'swapnetctl help profile'\n"
     "      --memory SIZE   memory for the whole process, interpreter and libraries included\n"
     "      --device-budget SIZE  memory of a GPU for weights, which come and go there\n"
     "      --unified KIND  how a GPU shares this memory: auto, off, pageable, registered or managed\n"
     "      --name NAME     what to call it, in `swapnetctl set` and elsewhere\n"
     "      --urgency U     its urgency under swapnetd, from 0.001 to 1000; 1 is ordinary\n"
     "      --daemon WHICH  auto, off or the socket of a swapnetd\n"
     "  -s, --store DIR     where block stores and spill files go\n"
     "      --stats FILE    write the counters as JSON at exit\n"
     "      --trace FILE    write a timeline for Perfetto\n"
     "      --fetch PATH    how to read: auto, uring, pread or buffered\n"
     "      --strict        fail an allocation rather than exceed the budget\n"
     "      --verbose       print the effective settings at start\n"
     "      --library FILE  the libswapnet.so to use\n"
     "  -h, --help          show this text\n"
     "\n"
     "Exit status: that of COMMAND; 125 when swapnetctl itself fails, 126 when COMMAND cannot be executed,\n"
     "127 when it is not found.\n"},
    {"verify", ctl_verify, "run a program without swapnet and with it, and compare all bits",
     "Usage: swapnetctl verify [--budget SIZE|--memory SIZE] [OPTION]... [--] COMMAND [ARGUMENT]...\n"
     "       swapnetctl verify --model-repository DIR [--memory SIZE|--server HOST:PORT] [OPTION]... [MODEL]...\n"
     "\n"
     "Runs COMMAND twice and compares what each of PyTorch's operators returned, in all of its threads and children. "
     "If\n"
     "that differs, it runs COMMAND without swapnet once more, to see whether it does the same twice. What COMMAND "
     "prints\n"
     "goes to standard error; its standard input is empty.\n"
     "With --model-repository: sends random inputs to a swapnet-serve for each model, and compares its answers with\n"
     "those of the model in plain PyTorch.\n"
     "\n"
     "  -b, --budget SIZE    memory for tensors; without: a quarter of what they take without swapnet\n"
     "      --memory SIZE    memory for the whole process\n"
     "  -s, --store DIR      where block stores, spill files and what is recorded go\n"
     "      --model-repository DIR  the models of a server; all, or those that are named\n"
     "      --server HOST:PORT  a server that runs; without, one is started with --memory\n"
     "      --requests N     for each model (default 3); --seed N: of their inputs\n"
     "      --shape [MODEL/]INPUT:SIZE,...  of an input whose sizes the server does not know\n"
     "      --threads N      that server and PyTorch compute with\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0: the same bits; 4: others; 5: the program does not repeat itself; 1: it could not be found out; 2 "
     "for\n"
     "wrong usage; 126 and 127 as with run.\n"},
    {"doctor", ctl_doctor, "say whether programs can run under swapnet here",
     "Usage: swapnetctl doctor [-o table|json|csv] [-s DIR] [--] [PYTHON]\n"
     "\n"
     "Looks at this machine as the library does: the kernel, io_uring, the disk of the store directory, huge pages,\n"
     "memory and limits, other preloads, and the PyTorch of PYTHON (default: SWAPNET_PYTHON, or python3),\n"
     "of which it runs a small program.\n"
     "Says what works, what is slow, and what to change.\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "      --json           the same as -o json\n"
     "  -s, --store DIR      where block stores and spill files would go\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0: programs can run under swapnet here; 1: they cannot; 2 for wrong usage.\n"},
    {"status", ctl_status, "show the programs that run under swapnet",
     "Usage: swapnetctl status [-o table|json|csv] [PID]...\n"
     "\n"
     "Asks every swapnet process that you may ask, or those given, for its counters, and swapnetd, if it runs,\n"
     "for their leases. Of a swapnet-serve it shows the engines and models, too.\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 when a PID given does not answer; 2 for wrong usage.\n"},
    {"list", ctl_status, "same as status", NULL},
    {"top", ctl_top, "the same, again and again",
     "Usage: swapnetctl top [-d SECONDS] [-n TIMES] [-o table|json|csv]\n"
     "\n"
     "Redraws `status` on a terminal until Ctrl-C; prints it once where the output is no terminal.\n"
     "\n"
     "  -d, --delay SECONDS  time between two (default: 2)\n"
     "  -n, --times TIMES    end after so many\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"},
    {"set", ctl_set, "change the budget or the urgency of a program",
     "Usage: swapnetctl set [-o table|json|csv] PID|NAME [budget=SIZE|auto] [urgency=NUMBER]\n"
     "\n"
     "Changes what is given, all of it or nothing, while the program runs. Under swapnetd the budget is a fixed part "
     "of\n"
     "the total; budget=auto leaves it to the policy again. Urgency is from 0.001 to 1000, 1 is ordinary.\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 when it is refused, which says what would be accepted; 2 for wrong usage.\n"},
    {"total", ctl_total, "change what swapnetd divides",
     "Usage: swapnetctl total [-o table|json|csv] SIZE|auto\n"
     "\n"
     "All programs together get SIZE from now on. Those that lose give back first. auto: what swapnetd was started\n"
     "with, a size or a share of memory, counts again.\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"},
    {"drain", ctl_drain, "let swapnetd end when its programs have",
     "Usage: swapnetctl drain [-o table|json|csv]\n"
     "\n"
     "swapnetd takes no more programs, and ends when those it serves have ended.\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"},
    {"profile", ctl_profile, "run a program and measure its layers",
     "Usage: swapnetctl profile [-o FILE] [-b SIZE] [-s DIR] [--] COMMAND [ARGUMENT]...\n"
     "       swapnetctl profile --disk [-o FILE] [-s DIR]\n"
     "       swapnetctl profile --show FILE\n"
     "\n"
     "Runs COMMAND, writes a profile of its model and of this device, and says how well the delay model fits.\n"
     "With --disk: measures how many reads of what size the disk with the block stores likes at once, and writes\n"
     "that where programs under swapnet find it.\n"
     "\n"
     "  -o, --output FILE  the profile (default swapnet-profile.json)\n"
     "  -b, --budget SIZE  run within a budget; without, nothing is streamed and the disk is measured afterwards\n"
     "  -s, --store DIR    where block stores and spill files go\n"
     "      --disk         measure the disk instead, in two or three seconds\n"
     "      --show FILE    print a profile instead\n"
     "  -h, --help         show this text\n"
     "\n"
     "Exit status: that of COMMAND; 1 when COMMAND succeeded and no profile came of it; 125 to 127 as with run.\n"},
    {"plan", ctl_plan, "divide a total over models and predict latencies",
     "Usage: swapnetctl plan --total SIZE [OPTION]... MODEL[,urgency=U][,profile=FILE][,name=NAME]...\n"
     "\n"
     "What would be: each model's budget, its blocks, and what an inference takes. A MODEL is a model profile, a\n"
     "block store or a checkpoint; no process is needed.\n"
     "\n"
     "  -t, --total SIZE     memory for all models together\n"
     "      --policy POLICY  minmax (default), eq1 or equal\n"
     "  -d, --device NAME    the device to plan for: a file, or a shipped profile such as jetson-nx\n"
     "      --delta SHARE    share of each budget that blocks leave free (default 0)\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 when the total is too small or a file cannot be read; 2 for wrong usage.\n"},
    {"serve", ctl_serve, "what a server's models would do with other memory",
     "Usage: swapnetctl serve plan --from PID|FILE --budget SIZE [OPTION]... MODEL,rate=R[,deadline=MS]...\n"
     "\n"
     "What would be: simulates a server's policy, and shows for each model how much of it would be in memory, how "
     "many\n"
     "requests would share a reading, how long they would take, and how many would be on time. What layer groups "
     "weigh\n"
     "and take comes from a swapnet-serve that runs, or from a file that has what 'status -o json' prints of one.\n"
     "\n"
     "  -f, --from PID|FILE     the server, or the file\n"
     "  -b, --budget SIZE       memory for models: weights and activations\n"
     "  -d, --duration SECONDS  for which requests come (default 60)\n"
     "      --policy NAME       as of swapnet-serve (default completion)\n"
     "      --disk SIZE         what the disk gives in a second, instead of what the server measured\n"
     "      --seed N            of the times at which requests come (default 1)\n"
     "      --arrivals KIND     poisson (default), pareto (with crowds), or constant\n"
     "      --time-error PART   how far the times that the policy knows are off (default 0)\n"
     "      --turns N           requests that run a layer group together at most (default 32, as in a server)\n"
     "  -o, --output FORMAT     table (default), json or csv\n"
     "  -h, --help              show this text\n"
     "\n"
     "Exit status: 0; 1 when a model is not there or was not measured; 2 for wrong usage.\n"},
    {"cache", ctl_cache, "look after the cache of block stores",
     "Usage: swapnetctl cache ls [-o table|json|csv]\n"
     "       swapnetctl cache rm NAME...|--all\n"
     "       swapnetctl cache cap [SIZE|none]\n"
     "\n"
     "Shows the block stores that checkpoints have in the cache, removes some, shows or sets how large all may be.\n"
     "\n"
     "  -o, --output FORMAT  table (default), json or csv\n"
     "      --all            remove every store\n"
     "  -s, --store DIR      the cache directory (SWAPNET_STORE)\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 when something cannot be read or removed; 2 for wrong usage.\n"},
    {"add-torch", ctl_add_torch, "build what swapnet needs for a PyTorch that it was not built for",
     "Usage: swapnetctl add-torch [-j N] [--no-serve] [PYTHON]\n"
     "\n"
     "Builds the torch backend and the serve backend for the PyTorch of the interpreter PYTHON (default: "
     "SWAPNET_PYTHON, or python3), "
     "from "
     "its\n"
     "headers and with your compiler, in a minute or a few. They go into a directory of yours, where libswapnet.so "
     "and\n"
     "swapnet-engine look for what was not installed with them.\n"
     "\n"
     "  -j, --jobs N    compile so many files at once (default: one for each processor and 1.5 GB)\n"
     "      --no-serve  only what programs need, and swapnet-serve does not\n"
     "  -h, --help      show this text\n"
     "\n"
     "Exit status: 0; 1 when something is missing, which it names, or does not compile; 2 for wrong usage.\n"},
};

int main(int argc, char **argv)
{
    static const struct swn_cli cli = {.program = "swapnetctl",
                                       .purpose = "Runs PyTorch programs within a memory budget.",
                                       .see = "swapnetctl(1) and swapnet(7)",
                                       .commands = commands,
                                       .count = sizeof commands / sizeof *commands};
    return swn_cli_main(&cli, argc, argv);
}
