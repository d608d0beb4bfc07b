/* tools/partition/main.c - the table of commands and their help texts; each command is in its own file in
 * tools/partition. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/partition/partition_tool.h"

static const struct swn_cli_command commands[] = {
    {"inspect", part_inspect, "show the layers of a checkpoint or store",
     "Usage: swapnet-partition inspect [-o table|json] FILE\n"
     "\n"
     "Shows the layers of a checkpoint (.pt, .pth, .bin, .safetensors, an index .json) or of a block store.\n"
     "\n"
     "  -o, --output FORMAT  table (default) or json\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 5 when the file is refused.\n"},
    {"build", part_build, "make the block store of a checkpoint",
     "Usage: swapnet-partition build [OPTION]... CHECKPOINT\n"
     "       swapnet-partition build [OPTION]... --from-store STORE\n"
     "\n"
     "Copies the weights into a block store, from which programs under swapnet fetch them, and prints its path. "
     "Without\n"
     "--output it goes into the cache, where the library finds it; a sharded checkpoint then gets a store per shard.\n"
     "\n"
     "  -o, --output STORE      write this file\n"
     "      --order FILE        layers in execution order, one name a line; those not named follow\n"
     "      --from-store STORE  cut an existing store anew (in place without --output)\n"
     "      --encoding KIND     raw; narrow: float32 that is exact in 16 bits is stored so as well, to be read from\n"
     "                          there; auto (default): what pays\n"
     "  -s, --store DIR         the cache directory (SWAPNET_STORE)\n"
     "  -q, --quiet             no progress bar\n"
     "  -h, --help              show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 4 for no room; 5 when the input is refused; 6 when the\n"
     "checkpoint changed while it was read, or the store given is damaged.\n"},
    {"plan", part_plan, "cut a store into blocks for a budget",
     "Usage: swapnet-partition plan --budget SIZE [OPTION]... FILE\n"
     "\n"
     "Shows the blocks into which a store, checkpoint or model profile is cut so that any two neighbours fit SIZE\n"
     "together. With a profile the cut is the fastest one, and latencies are predicted.\n"
     "\n"
     "  -b, --budget SIZE    memory for two blocks, e.g. 256M\n"
     "  -n, --blocks N       cut into exactly N blocks\n"
     "  -p, --profile FILE   a model profile (swapnetctl profile) with the times of FILE's layers\n"
     "  -d, --device NAME    the device to plan for: a file, or a shipped profile such as jetson-nx\n"
     "      --delta SHARE    reserve this share of the budget (default 0)\n"
     "      --curve[=N]      predicted latency at N budgets (default 16)\n"
     "  -o, --output FORMAT  table (default) or json\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 5 when the file is refused; 7 when the budget is too small.\n"},
    {"table", part_table, "compute the lookup table of a store",
     "Usage: swapnet-partition table [OPTION]... FILE\n"
     "\n"
     "Computes the partitions of FILE that are the fastest within some budget, and keeps them beside it if it is a\n"
     "store: plan looks them up. Shows how many there are, or those into N blocks.\n"
     "\n"
     "  -n, --blocks N       show the partitions into N blocks\n"
     "  -p, --profile FILE   a model profile with the times of FILE's layers\n"
     "  -d, --device NAME    the device to plan for\n"
     "  -o, --output FORMAT  table (default) or json\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage, or when times are missing; 5 when the file is refused.\n"},
    {"verify", part_verify, "compare a store with its checksums and its checkpoint",
     "Usage: swapnet-partition verify STORE [CHECKPOINT]\n"
     "\n"
     "Reads all of the store. The checkpoint, if given or still where it was, is compared byte by byte.\n"
     "\n"
     "  -h, --help  show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 5 when a file is refused; 6 when bytes do not match.\n"},
    {"extract", part_extract, "write a store's tensors as .safetensors",
     "Usage: swapnet-partition extract [--skip] STORE -o FILE.safetensors\n"
     "\n"
     "Every tensor is written contiguous and on its own, also those that share memory.\n"
     "\n"
     "  -o, --output FILE  the file to be written\n"
     "      --skip         leave out, and name, tensors that safetensors cannot hold or the store does not have\n"
     "  -h, --help         show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 4 for no room; 5 when the store is refused, or not all of the\n"
     "checkpoint can be written and --skip is not given; 6 when a checksum does not match.\n"},
};

int part_exit_code(int err)
{
    switch (err) {
    case 0:
        return SWN_CLI_OK;
    case -ENOSPC:
    case -EDQUOT:
    case -EFBIG:
        return PART_NO_ROOM;
    case -EINVAL:
    case -ENOTSUP:
    case -E2BIG:
        return PART_REFUSED;
    case -EILSEQ:
    case -ESTALE:
        return PART_MISMATCH;
    default:
        return SWN_CLI_FAILURE;
    }
}

int part_cannot_cut(const char *path, int err)
{
    swn_cli_error("%s: cannot be cut into blocks: %s", path,
                  err == -EINVAL ? "it has too many layers, or too many bytes" : strerror(-err));
    return part_exit_code(err);
}

/* All shards of a checkpoint are open at once; it may have more than the 1,024 files that are allowed unasked. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    static const struct swn_cli cli = {.program = "swapnet-partition",
                                       .purpose = "Makes and looks at the block stores of models.",
                                       .see = "swapnet-partition(1) and swapnet(7)",
                                       .commands = commands,
                                       .count = sizeof commands / sizeof *commands};
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit fails with EFBIG, and the command cleans up */
    allow_descriptors();
    return swn_cli_main(&cli, argc, argv);
}
