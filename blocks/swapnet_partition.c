/* swapnet_partition.c - the command line's front door: finds the command, prints help. The commands are in part_*.c. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "part.h"
#include "swn_why.h"

static int show_version(int argc, char **argv);
static int show_help(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
    const char *help;
} commands[] = {
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
     "  -s, --store DIR         the cache directory (SWAPNET_STORE)\n"
     "  -q, --quiet             no progress bar\n"
     "  -h, --help              show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 4 for no room; 5 when the input is refused; 6 when the\n"
     "checkpoint changed while it was read, or the store given is damaged.\n"},
    {"plan", part_plan, "cut a store into blocks for a budget",
     "Usage: swapnet-partition plan --budget SIZE [--blocks N] [-o table|json] FILE\n"
     "\n"
     "Shows the blocks into which a store (or checkpoint) is cut so that any two neighbours fit SIZE together.\n"
     "\n"
     "  -b, --budget SIZE    memory for two blocks, e.g. 256M\n"
     "  -n, --blocks N       cut into exactly N blocks\n"
     "  -o, --output FORMAT  table (default) or json\n"
     "  -h, --help           show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 5 when the file is refused; 7 when the budget is too small.\n"},
    {"verify", part_verify, "compare a store with its checksums and its checkpoint",
     "Usage: swapnet-partition verify STORE [CHECKPOINT]\n"
     "\n"
     "Reads all of the store. The checkpoint, if given or still where it was, is compared byte by byte.\n"
     "\n"
     "  -h, --help  show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 5 when a file is refused; 6 when bytes do not match.\n"},
    {"extract", part_extract, "write a store's tensors as .safetensors",
     "Usage: swapnet-partition extract STORE -o FILE.safetensors\n"
     "\n"
     "Every tensor is written contiguous and on its own, also those that share memory.\n"
     "\n"
     "  -o, --output FILE  the file to be written\n"
     "  -h, --help         show this text\n"
     "\n"
     "Exit status: 0; 1 for failure; 2 for wrong usage; 4 for no room; 5 when the store is refused, or holds what\n"
     "safetensors has no name for; 6 when a checksum does not match.\n"},
    {"version", show_version, "show the version", "Usage: swapnet-partition version\n"},
    {"help", show_help, "show help, also of one command", "Usage: swapnet-partition help [COMMAND]\n"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* Names of files and tensors are in it: a terminal must not take them for commands. */
void part_error(const char *format, ...)
{
    char text[SWN_WHY];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    fprintf(stderr, "swapnet-partition: %s\n", text);
}

void part_bad_option(char **argv, int result)
{
    const char *word = argv[optind - 1];
    if (result == ':')
        part_error("option '%s' needs a value; see 'swapnet-partition help %s'", word, argv[0]);
    else if (strncmp(word, "--", 2) != 0) /* of several letters in one word optopt is the one */
        part_error("unknown option '-%c'; see 'swapnet-partition help %s'", optopt, argv[0]);
    else
        part_error("unknown or wrong option '%s'; see 'swapnet-partition help %s'", word, argv[0]);
}

int part_exit_code(int err)
{
    switch (err) {
    case 0:
        return PART_OK;
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
        return PART_FAILURE;
    }
}

int part_wants_json(const char *format)
{
    if (strcmp(format, "json") == 0 || strcmp(format, "table") == 0)
        return format[0] == 'j';
    part_error("unknown format '%s': use table or json", format);
    return -EINVAL;
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

int part_help(const char *name)
{
    const struct command *c = find(name);
    if (!c)
        return -ENOENT;
    fputs(c->help, stdout);
    return 0;
}

static void overview(FILE *out)
{
    fputs("Usage: swapnet-partition COMMAND [OPTION]...\n\nMakes and looks at the block stores of models.\n\n", out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].summary);
    fputs("\nSee 'swapnet-partition help COMMAND', swapnet-partition(1) and swapnet(7).\n", out);
}

static int show_version(int argc, char **argv)
{
    if (argc > 1) {
        part_error("unexpected argument '%s'", argv[1]);
        return PART_USAGE;
    }
    puts("swapnet-partition " SWAPNET_VERSION);
    return PART_OK;
}

static int show_help(int argc, char **argv)
{
    if (argc > 2) {
        part_error("unexpected argument '%s'", argv[2]);
        return PART_USAGE;
    }
    if (argc < 2) {
        overview(stdout);
    } else if (part_help(argv[1]) != 0) {
        part_error("no such command: '%s'", argv[1]);
        return PART_USAGE;
    }
    return PART_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        overview(stderr);
        return PART_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct command *c = find(name);
    if (!c) {
        part_error("no such command: '%s'; see 'swapnet-partition help'", name);
        return PART_USAGE;
    }
    opterr = 0;
    int rc = c->run(argc - 1, argv + 1);
    /* an answer that did not reach its reader is no success */
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == PART_OK) {
        part_error("cannot write to standard output: %s", strerror(errno));
        rc = PART_FAILURE;
    }
    return rc;
}
