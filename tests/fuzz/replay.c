/* replay - main() of the fuzz targets where libFuzzer is not linked in: runs the target on each file it is given, and
 * on each file in the directories it is given. Exit status 1 when there was none. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st)) {
        perror(path);
        exit(1);
    }
    /* exactly as large as the file, so that a sanitizer sees the first byte too much */
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, f) != size) {
        perror(path);
        exit(1);
    }
    fclose(f);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static int run(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    if (!dir)
        return run_file(path);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char inside[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        n += run_file(inside);
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++)
        n += run(argv[i]);
    printf("%d inputs\n", n);
    return n ? 0 : 1;
}
