/* scheduler/protocol/elf_file.h - what a program or a library says of itself: for which processor it is, and which
 * loader starts it.
 *
 * The file is anybody's: each size is checked, and no more than its headers is read. Thread-safe.
 */
#ifndef SWN_SCHEDULER_PROTOCOL_ELF_FILE_H
#define SWN_SCHEDULER_PROTOCOL_ELF_FILE_H

/* Longer names of loaders are cut. */
#define SWN_ELF_LOADER 128

struct swn_elf {
    unsigned machine;            /* EM_X86_64 and so on */
    unsigned bits;               /* 32 or 64 */
    int is_shared;               /* a library, or a program that can be at any address */
    char loader[SWN_ELF_LOADER]; /* "" for libraries and statically linked programs */
};

/* 0; -ENOEXEC: it is no ELF file, or is damaged; another -errno. */
int swn_elf_read(const char *path, struct swn_elf *out);

/* "x86-64", "AArch64", or "another processor". Static. */
const char *swn_elf_machine(const struct swn_elf *elf);

/* Whether musl's loader starts it, which knows no libraries of glibc's. */
int swn_elf_is_musl(const struct swn_elf *elf);

#endif
