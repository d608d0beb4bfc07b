/* torch_link.c - makes the library that stands for PyTorch's: see torch_link.h. */
#define _GNU_SOURCE
#include "skeleton/abi/torch_link.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

enum { MOST_STRINGS = 2 * PATH_MAX + 64 };

/* The whole file, which is loaded as it is. No name is looked up in it, so it has no hash table; the dynamic loader
 * takes the strings' begin for the end of the symbols then. */
struct image {
    ElfW(Ehdr) head;
    ElfW(Phdr) parts[3];
    ElfW(Dyn) dynamic[8];
    ElfW(Sym) none;
    char strings[MOST_STRINGS];
};

/* Paths of PyTorch's libraries. */
struct found {
    char c10[PATH_MAX], torch_cpu[PATH_MAX];
};

/* What this code itself is of. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static int is_called(const char *path, const char *name)
{
    const char *base = strrchr(path, '/');
    return base && !strncmp(base + 1, name, strlen(name)) && strlen(path) < PATH_MAX;
}

static int look_for_c10(struct dl_phdr_info *info, size_t size, void *out)
{
    struct found *found = out;
    (void)size;
    if (!is_called(info->dlpi_name, "libc10.so"))
        return 0;
    snprintf(found->c10, sizeof found->c10, "%s", info->dlpi_name);
    return 1;
}

/* The one that lies beside that libc10, or else the first. */
static int look_for_torch_cpu(struct dl_phdr_info *info, size_t size, void *out)
{
    struct found *found = out;
    const char *path = info->dlpi_name;
    (void)size;
    if (!is_called(path, "libtorch_cpu.so"))
        return 0;
    size_t directory = (size_t)(strrchr(path, '/') + 1 - path);
    int beside = !strncmp(path, found->c10, directory) && !strchr(found->c10 + directory, '/');
    if (beside || !found->torch_cpu[0])
        snprintf(found->torch_cpu, sizeof found->torch_cpu, "%s", path);
    return beside;
}

/* A process may have loaded libc10 alone so far: the library that its PyTorch comes with. */
static void expect_torch_cpu(struct found *found)
{
    const char *name = strrchr(found->c10, '/') + 1, *suffix = name + strlen("libc10");
    int n = snprintf(found->torch_cpu, sizeof found->torch_cpu, "%.*slibtorch_cpu%s", (int)(name - found->c10),
                     found->c10, suffix);
    if (n < 0 || (size_t)n >= sizeof found->torch_cpu || access(found->torch_cpu, R_OK))
        found->torch_cpu[0] = 0;
}

/* Appends a string; its place. */
static size_t add(struct image *image, size_t *used, const char *text)
{
    size_t at = *used;
    *used += (size_t)snprintf(image->strings + at, sizeof image->strings - at, "%s", text) + 1;
    return at;
}

/* Of a library that needs these; the bytes that it takes. */
static size_t fill(struct image *image, const struct found *found)
{
    size_t used = 1;
    ElfW(Dyn) *entry = image->dynamic;
    *entry++ = (ElfW(Dyn)){.d_tag = DT_SONAME, .d_un.d_val = add(image, &used, SWN_TORCH_LINK)};
    *entry++ = (ElfW(Dyn)){.d_tag = DT_NEEDED, .d_un.d_val = add(image, &used, found->c10)};
    if (found->torch_cpu[0])
        *entry++ = (ElfW(Dyn)){.d_tag = DT_NEEDED, .d_un.d_val = add(image, &used, found->torch_cpu)};
    *entry++ = (ElfW(Dyn)){.d_tag = DT_STRTAB, .d_un.d_ptr = offsetof(struct image, strings)};
    *entry++ = (ElfW(Dyn)){.d_tag = DT_STRSZ, .d_un.d_val = used};
    *entry++ = (ElfW(Dyn)){.d_tag = DT_SYMTAB, .d_un.d_ptr = offsetof(struct image, none)};
    *entry++ = (ElfW(Dyn)){.d_tag = DT_SYMENT, .d_un.d_val = sizeof image->none};

    size_t size = offsetof(struct image, strings) + used, dynamic = offsetof(struct image, dynamic);
    image->head = __ehdr_start;
    image->head.e_type = ET_DYN;
    image->head.e_entry = image->head.e_shoff = 0;
    image->head.e_phoff = offsetof(struct image, parts);
    image->head.e_phnum = sizeof image->parts / sizeof *image->parts;
    image->head.e_shnum = image->head.e_shstrndx = 0;
    image->parts[0] = (ElfW(Phdr)){.p_type = PT_LOAD,
                                   .p_flags = PF_R | PF_W,
                                   .p_filesz = size,
                                   .p_memsz = size,
                                   .p_align = (ElfW(Xword))sysconf(_SC_PAGESIZE)};
    image->parts[1] = (ElfW(Phdr)){.p_type = PT_DYNAMIC,
                                   .p_flags = PF_R | PF_W,
                                   .p_offset = dynamic,
                                   .p_vaddr = dynamic,
                                   .p_paddr = dynamic,
                                   .p_filesz = sizeof image->dynamic,
                                   .p_memsz = sizeof image->dynamic,
                                   .p_align = sizeof(void *)};
    /* Without it the dynamic loader would make the stacks executable. */
    image->parts[2] = (ElfW(Phdr)){.p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W, .p_align = 16};
    return size;
}

/* Kernels may be told to refuse files in memory that could be run; old ones do not know that this one cannot. */
static int memory_file(void)
{
    int fd = memfd_create(SWN_TORCH_LINK, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create(SWN_TORCH_LINK, MFD_CLOEXEC) : fd;
}

/* This thread's, by its number: a debugger opens what it is told, and must not find a file of its own there. */
static void path_of(int fd, char *path, size_t size)
{
    char self[64] = "";
    ssize_t n = readlink("/proc/thread-self", self, sizeof self - 1);
    snprintf(path, size, "/proc/%s/fd/%d", n > 0 ? self : "thread-self", fd);
}

/* The path is another file's as soon as the descriptor is closed, so the library goes by its name alone from then on.
 */
static int load_from(int fd, char *why, size_t why_size)
{
    char path[128];
    path_of(fd, path, sizeof path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct link_map *map = NULL;
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map)) {
        snprintf(why, why_size, "cannot name PyTorch's libraries: %s", dlerror());
        return -ENOEXEC;
    }
    static_assert(sizeof SWN_TORCH_LINK <= sizeof "/proc/1/task/1/fd/0", "the name takes its path's place");
    memcpy(map->l_name, SWN_TORCH_LINK, sizeof SWN_TORCH_LINK);
    return 0;
}

static int load(const struct image *image, size_t size, char *why, size_t why_size)
{
    int fd = memory_file(), error = errno;
    if (fd >= 0) {
        ssize_t written = write(fd, image, size);
        error = written < 0 ? errno : ENOSPC;
        int rc = written == (ssize_t)size ? load_from(fd, why, why_size) : 1;
        close(fd);
        if (rc <= 0)
            return rc;
    }
    snprintf(why, why_size, "cannot name PyTorch's libraries: %s", strerror(error));
    return -error;
}

int swn_torch_link(const char *c10, char *why, size_t why_size)
{
    struct image image = {.strings = ""};
    struct found found = {.c10 = ""};
    if (dlopen(SWN_TORCH_LINK, RTLD_LAZY | RTLD_NOLOAD))
        return 0;
    if (c10 && is_called(c10, "libc10.so"))
        snprintf(found.c10, sizeof found.c10, "%s", c10);
    else if (!dl_iterate_phdr(look_for_c10, &found)) {
        snprintf(why, why_size, "PyTorch's libc10 is not in this process");
        return -ENOENT;
    }
    dl_iterate_phdr(look_for_torch_cpu, &found);
    if (!found.torch_cpu[0])
        expect_torch_cpu(&found);
    if (strchr(found.c10, '$') ||
        strchr(found.torch_cpu, '$')) { /* the dynamic loader would put something else there */
        snprintf(why, why_size, "the path of PyTorch's libraries has a '$'");
        return -EINVAL;
    }
    size_t size = fill(&image, &found);
    return load(&image, size, why, why_size);
}
