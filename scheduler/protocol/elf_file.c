/* scheduler/protocol/elf_file.c - see elf_file.h. */
#define _GNU_SOURCE
#include "scheduler/protocol/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADERS_MOST 64

/* The fields that both classes have, at their places in each. */
struct header {
    unsigned machine, type, count, size;
    uint64_t at;
};

static int read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    if (at > INT64_MAX - bytes)
        return -ENOEXEC;
    ssize_t got = pread(fd, to, bytes, (off_t)at);
    return got < 0 ? -errno : (size_t)got == bytes ? 0 : -ENOEXEC;
}

static int read_header(int fd, unsigned char class, struct header *h)
{
    Elf64_Ehdr e64;
    Elf32_Ehdr e32;
    int rc;
    if (class == ELFCLASS64) {
        rc = read_at(fd, &e64, sizeof e64, 0);
        if (!rc)
            *h = (struct header){e64.e_machine, e64.e_type, e64.e_phnum, e64.e_phentsize, e64.e_phoff};
        return rc || h->size == sizeof(Elf64_Phdr) || !h->count ? rc : -ENOEXEC;
    }
    rc = read_at(fd, &e32, sizeof e32, 0);
    if (!rc)
        *h = (struct header){e32.e_machine, e32.e_type, e32.e_phnum, e32.e_phentsize, e32.e_phoff};
    return rc || h->size == sizeof(Elf32_Phdr) || !h->count ? rc : -ENOEXEC;
}

/* Where the loader's name is, and its length with the 0; 0 where the i-th header is of something else. */
static int find_name(int fd, unsigned char class, uint64_t at, uint64_t *name, uint64_t *length)
{
    Elf64_Phdr p64;
    Elf32_Phdr p32;
    int rc = class == ELFCLASS64 ? read_at(fd, &p64, sizeof p64, at) : read_at(fd, &p32, sizeof p32, at);
    if (rc)
        return rc;
    if ((class == ELFCLASS64 ? p64.p_type : p32.p_type) != PT_INTERP)
        return 0;
    *name = class == ELFCLASS64 ? p64.p_offset : p32.p_offset;
    *length = class == ELFCLASS64 ? p64.p_filesz : p32.p_filesz;
    return 1;
}

static int read_loader(int fd, unsigned char class, const struct header *h, char out[SWN_ELF_LOADER])
{
    uint64_t name = 0, length = 0;
    int rc = 0;
    out[0] = 0;
    for (unsigned i = 0; !rc && i < h->count && i < HEADERS_MOST; i++)
        rc = find_name(fd, class, h->at + (uint64_t)i * h->size, &name, &length);
    if (rc <= 0 || !length)
        return rc;
    if (length > SWN_ELF_LOADER)
        length = SWN_ELF_LOADER;
    rc = read_at(fd, out, (size_t)length, name);
    out[rc ? 0 : length - 1] = 0;
    return rc;
}

static int look(int fd, struct swn_elf *out)
{
    unsigned char ident[EI_NIDENT];
    struct header h = {0};
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENOEXEC;
    int rc = read_at(fd, ident, sizeof ident, 0);
    if (rc)
        return rc;
    /* The fields of a file of the other byte order would be read wrongly. */
    if (memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_DATA] != ELFDATA2LSB ||
        (ident[EI_CLASS] != ELFCLASS64 && ident[EI_CLASS] != ELFCLASS32))
        return -ENOEXEC;
    rc = read_header(fd, ident[EI_CLASS], &h);
    if (rc)
        return rc;
    *out = (struct swn_elf){
        .machine = h.machine, .bits = ident[EI_CLASS] == ELFCLASS64 ? 64 : 32, .is_shared = h.type == ET_DYN};
    return read_loader(fd, ident[EI_CLASS], &h, out->loader);
}

int swn_elf_read(const char *path, struct swn_elf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int rc = look(fd, out);
    close(fd);
    return rc;
}

const char *swn_elf_machine(const struct swn_elf *elf)
{
    if (elf->machine == EM_X86_64)
        return elf->bits == 64 ? "x86-64" : "x32";
    if (elf->machine == EM_AARCH64)
        return "AArch64";
    return elf->machine == EM_386 ? "32-bit x86" : "another processor";
}

int swn_elf_is_musl(const struct swn_elf *elf)
{
    const char *name = strrchr(elf->loader, '/');
    return name && strncmp(name, "/ld-musl-", 9) == 0;
}
